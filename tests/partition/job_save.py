"""The jobs of ranks in test_save.py."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pyg_batchgnn.comm import Communicator
from pyg_batchgnn.data import DatasetError
from pyg_batchgnn.partition import (
    Part,
    PartitionBook,
    directory_slice,
    load_partition,
    partition_parts,
    save_partition,
)
from tests.partition.job_partition import assert_same, expected, graph, owner_of

PARTS = (1, 2, 3)
#: seed, nodes, edges, skewed
CASES = [(1, 50, 300, False), (2, 40, 200, True), (3, 0, 0, False), (6, 2, 5, False), (8, 30, 0, False)]


def save(folder: str) -> None:
    with Communicator.create("save", timeout=20) as comm:
        for parts in PARTS:
            for seed, nodes, edges, skew in CASES:
                dataset = graph(seed, nodes, edges, skew=skew)
                found = partition_parts(dataset, "random", parts, comm=comm, seed=seed)
                found = [replace(part, tables={**part.tables, "half": _half(part)}) for part in found]
                path = Path(folder, f"{parts}-{seed}")
                assert save_partition(found, path, comm, {"policy": "random"}) == path
        assert not [path for path in Path(folder).iterdir() if path.name.startswith(".")]
        try:
            save_partition([], Path(folder, "1-1"), comm)
            raise AssertionError("the folder was there")
        except DatasetError as error:
            assert "exists already" in str(error)
        comm.barrier()


def _half(part: Part) -> Tensor:
    """A table of a type that NumPy lacks."""
    return part.node.view(-1, 1).to(torch.bfloat16)


def load(folder: str) -> None:
    with Communicator.create("load", timeout=20) as comm:
        for parts in PARTS:
            for seed, nodes, edges, skew in CASES:
                dataset = graph(seed, nodes, edges, skew=skew)
                owner = owner_of(dataset, "random", parts, seed)
                found = load_partition(Path(folder, f"{parts}-{seed}"), comm)
                assert torch.equal(found.tables["half"], _half(found))
                found = replace(found, tables={n: t for n, t in found.tables.items() if n != "half"})
                old = [expected(dataset, owner, parts, number) for number in range(parts)]
                assert_same(found, cut_anew(old, found.book, comm.rank))
                weights = [len(found.book.nodes_of(rank)) for rank in range(comm.size)]
                assert parts == comm.size or max(weights) <= max(nodes, 1)


def cut_anew(old: list[Part], book: PartitionBook, rank: int) -> Part:
    """The part of a range of internal ids, by putting all parts together and cutting."""
    own = book.nodes_of(rank)
    rows = slice(own.start, own.stop)
    degree = torch.cat([part.indptr.diff() for part in old])
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), degree.cumsum(0)])
    edges = slice(int(indptr[own.start]), int(indptr[own.stop]))
    known = directory_slice(book.num_nodes, book.parts, rank)

    def splits(name: str) -> Tensor:
        internal = torch.cat([part.splits[name] + part.first for part in old])
        return internal[(internal >= own.start) & (internal < own.stop)] - own.start

    return Part(
        book=book,
        number=rank,
        node=torch.cat([part.node for part in old])[rows],
        indptr=indptr[own.start : own.stop + 1] - edges.start,
        indices=torch.cat([part.indices for part in old])[edges],
        edge_ids=torch.cat([part.edge_ids for part in old])[edges],
        num_edges=old[0].num_edges,
        directory=torch.cat([part.directory for part in old])[known.start : known.stop],
        tables={name: torch.cat([part.tables[name] for part in old])[rows] for name in old[0].tables},
        edge_tables={
            name: torch.cat([part.edge_tables[name] for part in old])[edges] for name in old[0].edge_tables
        },
        splits={name: splits(name) for name in old[0].splits},
    )


def load_damaged(folder: str) -> list[Any]:
    """A file that one rank alone reads is damaged: all are told."""
    with Communicator.create("load", timeout=20) as comm:
        try:
            load_partition(folder, comm)
        except DatasetError as error:
            comm.barrier()
            return [str(error)]
    raise AssertionError
