"""Writes a data set to a folder: to a temporary name, renamed when it is complete."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from pyg_batchgnn.data.dataset import Dataset
from pyg_batchgnn.data.errors import DatasetError
from pyg_batchgnn.data.files import rename_whole, sync_tree
from pyg_batchgnn.data.meta import Meta, write_meta


def write_folder(dataset: Dataset, path: str | Path) -> Path:
    """Write a data set to a new folder that `read_folder` reads; returns the folder.

    Raises:
        DatasetError: the folder exists already.
    """
    with new_folder(path) as folder:
        arrays = ("edge_index", "x", "y", "train_idx", "val_idx", "test_idx", "edge_attr")
        for array in arrays:
            tensor = getattr(dataset, array)
            if tensor is not None:
                np.save(folder / f"{array}.npy", tensor.numpy(), allow_pickle=False)
        write_meta(folder, Meta(dataset.name, dataset.source, dataset.num_nodes, dataset.num_classes))
    return Path(path).expanduser()


@contextmanager
def new_folder(path: str | Path) -> Iterator[Path]:
    """A temporary folder beside `path` to write to, renamed to `path` when all of it is on disk, and removed
    on any error.

    Raises:
        DatasetError: `path` exists, or its parent cannot be written to.
    """
    path = Path(path).expanduser()
    if path.exists():
        raise DatasetError(f"{path}: exists already; remove it or choose another folder")
    temporary = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
    except OSError as error:
        raise DatasetError(f"{path}: cannot be written ({error}); choose another folder") from error
    try:
        yield temporary
        sync_tree(temporary)
        rename_whole(temporary, path)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
