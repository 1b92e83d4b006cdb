"""Writes a data set to a folder, under a temporary name until it is complete."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.data.check import check_node_counts
from pyg_batchgnn.data.csc import EDGE_IDS, INDICES, INDPTR
from pyg_batchgnn.data.dataset import Dataset, EdgeSet
from pyg_batchgnn.data.files.durable import begin_folder, new_file, rename_whole, sync_tree, writing
from pyg_batchgnn.data.files.npy import write_tensor
from pyg_batchgnn.data.meta import (
    FOLDERS,
    SPLITS_FOLDER,
    LinkArray,
    Meta,
    attribute_array,
    csc_array,
    decoding_array,
    edge_array,
    split_array,
    write_meta,
)
from pyg_batchgnn.data.pyg import as_dataset

if TYPE_CHECKING:
    from torch_geometric.data import Data, HeteroData


def write_folder(dataset: Dataset | Data | HeteroData, path: str | Path) -> Path:
    """Writes a data set, or a PyG `Data` or `HeteroData`, to a new folder, and returns the folder.

    >>> read_folder(write_folder(data, "graphs/mine")).num_nodes  # doctest: +SKIP
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


def arrays_of(dataset: Dataset) -> dict[str, Tensor]:
    return {
        **{array: tensor for edges in dataset.edge_sets for array, tensor in _topology(edges).items()},
        **{
            attribute_array(one.group, name): ops.as_stored(table)
            for one in dataset.sets
            for name, table in one.tables.items()
        },
        **{
            decoding_array(one.group, name): table.decoding
            for one in dataset.sets
            for name, table in one.tables.items()
            if isinstance(table, ops.QuantizedTensor)
        },
        **{
            split_array(nodes.group, name): index
            for nodes in dataset.node_sets
            for name, index in nodes.splits.items()
        },
        **{
            str(LinkArray(edges.group, split, name)): array
            for edges in dataset.edge_sets
            for split, links in edges.links.items()
            for name, array in links.arrays().items()
        },
    }


def _topology(edges: EdgeSet) -> dict[str, Tensor]:
    if edges.csc is None:
        return {edge_array("edge_index", edges.group): edges.edge_index}
    named = {INDPTR: edges.csc.indptr, INDICES: edges.csc.indices, EDGE_IDS: edges.csc.edge_ids}
    return {csc_array(edges.group, name): one for name, one in named.items() if one is not None}


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
