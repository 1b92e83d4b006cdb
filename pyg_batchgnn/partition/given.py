"""Owners that were made elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.comm import Communicator
from pyg_batchgnn.data import Dataset, DatasetError
from pyg_batchgnn.partition.checks import with_files
from pyg_batchgnn.partition.reading import ReadingSlice


@dataclass(frozen=True, eq=False)
class Given:
    """The owners of all nodes, from METIS, KaMinPar, DGL or a partitioner of your own.

    Attributes:
        file: a ``.npy`` file of [N] integers that every rank can read: the part of each node, in
            order of ids. In a graph of several node types the nodes of the first type come first,
            then those of the second, and so on.
    """

    file: Path

    def __str__(self) -> str:
        return f"owners of {self.file}"


def given_owners(
    comm: Communicator, part: ReadingSlice, dataset: Dataset, given: Given, parts: int
) -> Tensor:
    """Returns the owners of the nodes of the slice, [n] int32. Collective.

    Raises:
        DatasetError: on every rank, where the file is missing, is of another number of nodes, or
            names a part that there is not.
    """
    return with_files(comm, lambda: _read(part, dataset, given.file, parts))


def _read(part: ReadingSlice, dataset: Dataset, file: Path, parts: int) -> Tensor:
    try:
        whole = np.load(file, mmap_mode="r", allow_pickle=False)
    except ValueError as error:
        raise DatasetError(f"{file}: is no array of NumPy ({error})") from None
    if whole.shape != (dataset.num_nodes,) or whole.dtype.kind not in "iu":
        raise DatasetError(
            f"{file}: holds {whole.dtype} {list(whole.shape)}, not one integer for each of the "
            f"{dataset.num_nodes} nodes of {dataset.name}"
        )
    owner, first = torch.empty(part.num_nodes, dtype=torch.int32), 0
    for number, nodes in enumerate(dataset.node_sets):
        own = part.nodes_of(number)
        piece = torch.from_numpy(whole[first + own.start : first + own.stop].astype(np.int64))
        low, high = ops.extent(piece)
        if low < 0 or high >= parts:
            bad = low if low < 0 else high
            raise DatasetError(f"{file}: names part {bad}, but there are {parts} parts, 0 to {parts - 1}")
        owner[part.rows_of(number)] = piece.to(torch.int32)
        first += nodes.num_nodes
    return owner
