"""Node ids of raw files, and the files of converted arrays."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pyg_batchgnn.data.errors import broken
from pyg_batchgnn.data.groups import Group
from pyg_batchgnn.data.layout import attribute_array

_AGAIN = "download the data set again"


def narrow_ids(file: Path, ids: np.ndarray, num_nodes: int, id_type: type) -> np.ndarray:
    """Returns node ids in the type they are stored in.

    They are checked first, because narrowing would hide a bad one.
    """
    if ids.size and not 0 <= int(ids.min()) <= int(ids.max()) < num_nodes:
        worst = int(ids.max()) if int(ids.max()) >= num_nodes else int(ids.min())
        raise broken(file, "edge_index", f"node id {worst} is outside [0, {num_nodes})", _AGAIN)
    return ids.astype(id_type)


def array_file(target: Path, group: Group, name: str) -> Path:
    """Returns the file of an attribute."""
    return target / f"{attribute_array(group, name)}.npy"
