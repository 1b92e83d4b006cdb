"""Partitioning: from a data set that every rank can read to the parts that each holds."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from pyg_batchgnn.comm import Communicator
from pyg_batchgnn.data import Dataset
from pyg_batchgnn.partition.attributes import deliver_rows, deliver_split
from pyg_batchgnn.partition.book import PartitionBook
from pyg_batchgnn.partition.deliver import OwnNodes, Runs, deliver_lists, translate_sources
from pyg_batchgnn.partition.numbering import Directory, make_directory, number_nodes
from pyg_batchgnn.partition.owners import contiguous_owners, random_owners
from pyg_batchgnn.partition.part import Part
from pyg_batchgnn.partition.reading import ReadingSlice, read_slice

#: Told what is being done, in a few words, as each stage begins.
Progress = Callable[[str], None]

SPLITS = ("train", "val", "test")


def partition(
    dataset: Dataset,
    policy: str = "random",
    *,
    comm: Communicator,
    seed: int = 0,
    progress: Progress | None = None,
) -> Part:
    """Cuts a graph into one part for each rank while reading it. Collective.

    Every rank reads some of the input and sends edges, features, labels and splits to their owners in rounds
    of bounded size: no rank ever holds the whole graph, all features or a map of all nodes.

    Args:
        dataset: the same on every rank; arrays that are mapped from files are read in pieces.
        policy: who owns a node: "random" (by hash of seed and id) or "contiguous" (ranges of ids, balanced by
            edges and nodes).
        comm: of all ranks.
        seed: of the random choices.
        progress: called with a few words as each stage begins.

    Returns:
        This rank's part, its number the rank.

    Raises:
        AgreementError: ranks were given different arguments.
        DatasetError: an edge has a node id outside [0, N).
    """
    tell = progress or (lambda _: None)
    runs = Runs(comm.size, comm.size)
    _check(dataset, policy, comm, seed, runs.parts)
    tell("reading edges")
    part = read_slice(dataset, comm)
    tell("assigning owners")
    owner = _owners(part, policy, comm, seed, runs.parts)
    numbering = number_nodes(comm, owner, runs.parts)
    directory = make_directory(comm, numbering.internal, part.first, dataset.num_nodes)
    tell("translating sources")
    translate_sources(comm, part, directory)
    tell("sending adjacency lists")
    nodes = deliver_lists(comm, part, numbering, runs)
    del part, owner
    tell("sending attributes")
    book = numbering.book
    del numbering
    return _finish(dataset, comm, nodes, book, directory, runs)


def _check(dataset: Dataset, policy: str, comm: Communicator, seed: int, parts: int) -> None:
    if policy not in ("random", "contiguous"):
        raise ValueError(f"policy must be 'random' or 'contiguous', not {policy!r}")
    tables = {"x": dataset.x, "y": dataset.y, "edge_attr": dataset.edge_attr}
    comm.check_agreement(
        {
            "data set": dataset.name,
            "nodes": dataset.num_nodes,
            "edges": dataset.num_edges,
            "tables": {name: None if t is None else [str(t.dtype), *t.shape] for name, t in tables.items()},
            "splits": [len(getattr(dataset, f"{name}_idx")) for name in SPLITS],
            "policy": policy,
            "seed": seed,
            "parts": parts,
        }
    )


def _owners(part: ReadingSlice, policy: str, comm: Communicator, seed: int, parts: int) -> Tensor:
    if policy == "random":
        return random_owners(part, parts, seed)
    return contiguous_owners(comm, part, parts)


def _finish(
    dataset: Dataset,
    comm: Communicator,
    nodes: OwnNodes,
    book: PartitionBook,
    directory: Directory,
    runs: Runs,
) -> Part:
    """Attributes to the owners, and everything in one place."""
    tables = {"x": dataset.x, "y": dataset.y}
    splits = {name: getattr(dataset, f"{name}_idx") for name in SPLITS}
    return Part(
        book=book,
        number=comm.rank,
        node=nodes.node,
        indptr=nodes.indptr,
        indices=nodes.indices,
        edge_ids=nodes.edge_ids,
        num_edges=dataset.num_edges,
        directory=directory.internal,
        tables={
            name: deliver_rows(comm, table, nodes.node) for name, table in tables.items() if table is not None
        },
        edge_tables={}
        if dataset.edge_attr is None
        else {"edge_attr": deliver_rows(comm, dataset.edge_attr, nodes.edge_ids)},
        splits={
            name: deliver_split(comm, split, directory, book, runs) - nodes.first
            for name, split in splits.items()
        },
    )
