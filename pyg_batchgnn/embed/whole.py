"""Whole tables in one .npy file, written and read without any rank holding one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pyg_batchgnn.comm import Communicator, Header, MessageKind
from pyg_batchgnn.data.files import NpyAppender, as_tensor, broken, open_npy, rename_whole, sync_file
from pyg_batchgnn.embed.table import EmbeddingTable
from pyg_batchgnn.partition import with_files

#: Bytes of rows that the first rank receives at once.
_PIECE = 16 << 20
_HEADER = Header(MessageKind.EMBEDDINGS)


def export_table(table: EmbeddingTable, num_nodes: int, path: Path, comm: Communicator) -> None:
    """Writes the rows of all nodes of a type, in the order of original ids, to a new file.
    Collective.

    The first rank receives them in pieces and writes. Only its file system matters.

    Raises:
        DatasetError: on every rank, if the file cannot be written.
    """
    size = max(1, _PIECE // (table.columns * table.weight.element_size()))
    node, order = table.node.sort()
    temporary = path.with_name(f".{path.name}.partial")
    shape = (table.columns,)
    writer = with_files(
        comm, lambda: None if comm.rank else NpyAppender(temporary, table.weight.numpy().dtype, shape)
    )
    for begin in range(0, num_nodes, size):
        bounds = torch.tensor([begin, min(begin + size, num_nodes)])
        first, last = torch.searchsorted(node, bounds).tolist()
        ids, rows = node[first:last], table.weight[order[first:last]]
        none = [0] * (comm.size - 1)
        ids = comm.exchange(ids, [len(ids), *none], _HEADER).rows
        rows = comm.exchange(rows, [len(rows), *none], _HEADER).rows
        with_files(comm, lambda: writer.append(_in_order(ids, rows)) if writer else None)  # noqa: B023

    def end() -> None:
        if writer is not None:
            writer.__exit__(None, None, None)
            sync_file(temporary)
            rename_whole(temporary, path)

    with_files(comm, end)


def _in_order(ids: Tensor, rows: Tensor) -> np.ndarray:
    return rows[ids.argsort()].numpy()


def read_table(table: EmbeddingTable, num_nodes: int, path: Path, comm: Communicator) -> None:
    """Overwrites rows by those of a .npy file with one row per node, in the order of original ids.
    Collective.

    The file is mapped. A pickle is never read.

    Raises:
        DatasetError: on every rank, if the file is missing or damaged, or has other rows.
    """

    def read() -> None:
        saved = as_tensor(open_npy(path, "rows"), path, "rows")
        if tuple(saved.shape) != (num_nodes, table.columns) or not saved.is_floating_point():
            expected = [num_nodes, table.columns]
            fact = f"is {saved.dtype} {list(saved.shape)}, expected floats of shape {expected}"
            raise broken(path, "rows", fact, "give one row per node, in the order of node ids")
        size = max(1, _PIECE // (table.columns * saved.element_size()))
        begin = 0
        for node in table.node.split(size):
            table.weight[begin : begin + len(node)] = saved[node]
            begin += len(node)

    with_files(comm, read)
