"""The jobs of ranks in test_save.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pyg_batchgnn.comm import Communicator
from pyg_batchgnn.data import HOMOGENEOUS, NODES, DatasetError
from pyg_batchgnn.ops import InEdges
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
                for part in found:
                    part.attributes[NODES]["a/b %"] = _half(part)
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
                assert torch.equal(found.attributes[NODES].pop("a/b %"), _half(found))
                old = [expected(dataset, owner, parts, number) for number in range(parts)]
                assert_same(found, cut_anew(old, found.book, comm.rank))
                weights = [len(found.book.nodes_of(rank)) for rank in range(comm.size)]
                assert parts == comm.size or max(weights) <= max(nodes, 1)


def cut_anew(old: list[Part], book: PartitionBook, rank: int) -> Part:
    """The part of a range of internal ids, by putting all parts together and cutting."""
    own = book.nodes_of(rank)
    rows = slice(own.start, own.stop)
    degree = torch.cat([part.in_edges.indptr.diff() for part in old])
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), degree.cumsum(0)])
    edges = slice(int(indptr[own.start]), int(indptr[own.stop]))
    known = directory_slice(book.num_nodes, book.parts, rank)

    def splits(name: str) -> Tensor:
        internal = torch.cat([part.split(name) + part.first for part in old])
        return internal[(internal >= own.start) & (internal < own.stop)] - own.start

    return Part(
        schema=HOMOGENEOUS,
        book=book,
        number=rank,
        node=torch.cat([part.node for part in old])[rows],
        relations=(
            InEdges(
                indptr[own.start : own.stop + 1] - edges.start,
                torch.cat([part.in_edges.indices for part in old])[edges],
                torch.cat([part.in_edges.explicit_edge_ids() for part in old])[edges],
            ),
        ),
        edge_counts=old[0].edge_counts,
        directory=torch.cat([part.directory for part in old])[known.start : known.stop],
        attributes={
            group: {
                name: torch.cat([part.attributes[group][name] for part in old])[
                    rows if group.is_node else edges
                ]
                for name in tables
            }
            for group, tables in old[0].attributes.items()
        },
        splits={NODES: {name: splits(name) for name in old[0].splits[NODES]}},
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
