"""Writes a data set to a folder, under a temporary name until it is complete."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from pyg_batchgnn.data.check import check_node_counts
from pyg_batchgnn.data.dataset import Dataset
from pyg_batchgnn.data.files.durable import begin_folder, new_file, rename_whole, sync_tree, writing
from pyg_batchgnn.data.files.npy import write_tensor
from pyg_batchgnn.data.meta import FOLDERS, SPLITS_FOLDER, Meta, arrays_of, write_meta
from pyg_batchgnn.data.pyg import as_dataset

if TYPE_CHECKING:
    from torch_geometric.data import Data, HeteroData


def write_folder(dataset: Dataset | Data | HeteroData, path: str | Path) -> Path:
    """Writes a data set, or a PyG `Data` or `HeteroData`, to a new folder, and returns the folder.

    >>> read_folder(write_folder(data, "graphs/mine")).num_nodes
    100

    Raises `DatasetError` if the folder exists, cannot be written, or has too many nodes for memory.
    """
    dataset = as_dataset(dataset)
    check_node_counts(dataset)
    with new_folder(path) as folder:
        tensors = arrays_of(dataset)
        arrays = {array: write_tensor(new_file(folder, array), tensors[array]) for array in tensors}
        write_meta(folder, Meta.of(dataset, arrays))
    return Path(path).expanduser()


@contextmanager
def new_folder(path: str | Path) -> Iterator[Path]:
    with temporary_folder(path) as temporary:
        with writing(Path(path)):
            for folder in (*FOLDERS.values(), SPLITS_FOLDER):
                (temporary / folder).mkdir(parents=True)
        yield temporary


@contextmanager
def temporary_folder(path: str | Path) -> Iterator[Path]:
    """Yields a folder beside `path`. It is renamed to `path` when the block ends and all is on
    disk, and removed on any error."""
    path = Path(path).expanduser()
    temporary = path.with_name(f".{path.name}.{os.getpid()}.partial")
    begin_folder(path, temporary)
    try:
        yield temporary
        sync_tree(temporary)
        rename_whole(temporary, path)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
