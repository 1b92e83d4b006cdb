"""Cuts a data set that every rank can read into parts, one or several per rank."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.comm import Communicator
from pyg_batchgnn.data import Dataset, as_dataset, check_node_counts
from pyg_batchgnn.ops import InEdges
from pyg_batchgnn.partition.book import PartitionBook
from pyg_batchgnn.partition.checks import check_comm, check_splits, with_files
from pyg_batchgnn.partition.deliver import (
    OwnNodes,
    deliver_lists,
    deliver_rows,
    deliver_splits,
    translate_sources,
)
from pyg_batchgnn.partition.multilevel import balanced_owners
from pyg_batchgnn.partition.numbering import Runs, make_directory, number_nodes
from pyg_batchgnn.partition.part import Part, directory_slices, slice_size
from pyg_batchgnn.partition.policy import (
    BuiltIn,
    Direct,
    Given,
    Policy,
    PolicyLike,
    Streaming,
    TwoLevel,
    as_policy,
    given_owners,
    name_of,
)
from pyg_batchgnn.partition.reading import ReadingSlice, read_slice
from pyg_batchgnn.partition.release import release_memory
from pyg_batchgnn.partition.stream import OwnerStream, contiguous_owners, random_owners
from pyg_batchgnn.types import Group, Schema

if TYPE_CHECKING:
    from torch_geometric.data import Data, HeteroData


MOST_PARTS = 100_000  # of a graph
Progress = Callable[[str], None]  # Told a few words as each stage begins.


def partition(
    dataset: Dataset | Data | HeteroData,
    policy: PolicyLike = "random",
    *,
    comm: Communicator | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Part:
    """Cuts a graph into one part for each rank while reading it. Collective.

    >>> partition(data, "contiguous")  # without a launcher, one rank
    Part(0 of 1, nodes=100 of 100, edges=600 of 600)

    Every rank reads a share of the input, and sends edges, features, labels and splits to their
    owners in rounds of bounded size: no rank ever holds the whole graph, all features or a map of
    all nodes.

    With "random" and "contiguous" the parts depend only on graph, policy, seed and number of parts;
    with the other policies also on the number of ranks that read.

    Args:
        dataset: a data set, or a PyG `Data` or `HeteroData`, the same on every rank. Of arrays
            mapped from files, each rank reads its share.
        policy: decides which part owns a node: "random" (by hash of seed, type and id),
            "contiguous" (ranges of ids of each type, balanced by edges and nodes), "ldg" or
            "fennel" (by the owners of in-neighbours; `Streaming` has options), "multilevel" (the
            fewest cut edges; see `Multilevel`), "metis" (the METIS library; see `Metis`), a .npy
            file of owners (see `Given`), or a function (see `Policy`).
        comm: the communicator of all ranks; None makes one for this call.
        seed: seed of the policy's random choices.
        progress: told a few words as each stage begins.

    Returns:
        This rank's part. Its number is the rank.

    Raises:
        AgreementError: ranks were given different arguments.
        DatasetError: on every rank, if an edge or a split has a node id outside [0, N).
        TypeError, ValueError: the policy is unknown, or cannot be used with this graph.
    """
    if comm is None:
        with Communicator.create("partition") as own:
            return partition(dataset, policy, comm=own, seed=seed, progress=progress)
    check_comm(comm)
    return partition_parts(as_dataset(dataset), policy, comm.size, comm=comm, seed=seed, progress=progress)[0]


def partition_parts(
    dataset: Dataset | Data | HeteroData,
    policy: PolicyLike,
    parts: int,
    *,
    comm: Communicator,
    seed: int = 0,
    progress: Progress | None = None,
) -> list[Part]:
    """Cuts a graph into any number of parts, to save them. Collective. Arguments and errors as for
    `partition`. Returns this rank's parts: numbers rank * parts // ranks up to, but without, (rank
    + 1) * parts // ranks."""
    dataset = as_dataset(dataset)
    check_comm(comm)
    for name, value in (("parts", parts), ("seed", seed)):
        ops.check_type(name, value, int, f"give int({name})")
    if not 1 <= parts <= MOST_PARTS:
        raise ValueError(f"parts must be 1 to {MOST_PARTS}, not {parts}")
    tell = progress or (lambda _: None)
    runs, chosen = Runs(int(parts), comm.size), as_policy(policy)
    _check(dataset, name_of(chosen), comm, seed, parts)
    check_splits(comm, dataset)
    tell("reading edges")
    part = read_slice(dataset, comm)
    tell("assigning owners")
    owner = _owners(dataset, part, chosen, comm, seed, parts)
    numbering = number_nodes(comm, part, owner, parts)
    counts = [nodes.num_nodes for nodes in dataset.node_sets]
    bounds = [(runs.bounds * slice_size(count, parts)).clamp(max=count) for count in counts]
    directory = make_directory(comm, part, numbering.internal, bounds)
    splits = deliver_splits(comm, dataset, part, numbering, runs)
    tell("translating sources")
    translate_sources(comm, part, numbering)
    tell("sending adjacency lists")
    release_memory()  # a rank may get several times the share that it has read
    nodes = deliver_lists(comm, part, numbering, runs)
    book = numbering.book
    del part, owner, numbering
    tell("sending attributes")
    ids = [*nodes.nodes, *(edges.explicit_edge_ids() for edges in nodes.relations)]
    attributes = {
        found.group: {name: deliver_rows(comm, table, rows) for name, table in found.tables.items()}
        for found, rows in zip(dataset.sets, ids, strict=True)
    }
    edge_counts = tuple(edges.num_edges for edges in dataset.edge_sets)
    return cut_run(dataset.schema, book, edge_counts, nodes, directory, attributes, splits)


def _check(dataset: Dataset, policy: str, comm: Communicator, seed: int, parts: int) -> None:
    comm.check_agreement(
        {
            "data set": dataset.name,
            "nodes": {nodes.name: nodes.num_nodes for nodes in dataset.node_sets},
            "edges": {str(edges.group): edges.num_edges for edges in dataset.edge_sets},
            "attributes": {
                str(found.group): {name: [str(t.dtype), *t.shape] for name, t in found.tables.items()}
                for found in dataset.sets
            },
            "splits": {
                nodes.name: {name: len(index) for name, index in nodes.splits.items()}
                for nodes in dataset.node_sets
            },
            "policy": policy,
            "seed": seed,
            "parts": parts,
        }
    )
    check_node_counts(dataset, processes=comm.size)


def _owners(
    dataset: Dataset, part: ReadingSlice, policy: BuiltIn | Policy, comm: Communicator, seed: int, parts: int
) -> Tensor:
    if policy is Direct.RANDOM:
        return random_owners(part, parts, seed)
    if policy is Direct.CONTIGUOUS:
        return contiguous_owners(comm, part, parts)
    if isinstance(policy, Given):
        return with_files(comm, lambda: given_owners(part, dataset, policy.file, parts))
    if isinstance(policy, TwoLevel):
        return balanced_owners(comm, part, dataset, policy, parts, seed)
    stream = OwnerStream(comm, part, dataset, parts, seed)
    if isinstance(policy, Streaming):
        return stream.by_score(policy)
    assert callable(policy)
    return stream.by_function(policy)


Tables = Mapping[Group, Mapping[str, Tensor]]


def cut_run(
    schema: Schema,
    book: PartitionBook,
    edge_counts: tuple[int, ...],
    nodes: OwnNodes,
    directory: Sequence[tuple[int, Tensor]],
    attributes: Tables,
    splits: Tables,
) -> list[Part]:
    """Returns the parts that this rank builds, a run of consecutive ones. Their arrays are views of
    the run's if possible. ``directory``: by type, the first original id of the run's range, and its
    internal ids. ``splits``: by group and name, the run's internal ids, ascending."""
    found = []
    for at, number in enumerate(nodes.parts):
        rows = [slice(*own.starts[at : at + 2].tolist()) for own in nodes.rows]
        relations, where = list[InEdges](), dict(zip(schema.node_groups, rows, strict=True))
        for edges, target, group in zip(
            nodes.relations, schema.target_types, schema.edge_groups, strict=True
        ):
            own = edges.edges(range(rows[target].start, rows[target].stop))
            where[group] = slice(own.start, own.stop)
            indptr = edges.indptr[rows[target].start : rows[target].stop + 1] - own.start
            ids = edges.explicit_edge_ids()[where[group]]
            relations.append(InEdges(indptr, edges.indices[where[group]], ids))
        known = zip(directory_slices(book, number), directory, strict=True)
        found.append(
            Part(
                schema=schema,
                book=book,
                number=number,
                node=_joined([node[own] for node, own in zip(nodes.nodes, rows, strict=True)]),
                relations=tuple(relations),
                edge_counts=edge_counts,
                directory=_joined([ids[own.start - first : own.stop - first] for own, (first, ids) in known]),
                attributes={
                    group: {name: table[where[group]] for name, table in tables.items()}
                    for group, tables in attributes.items()
                },
                splits={
                    group: {
                        name: _rows_among(split, book.nodes_of(number, of_type))
                        for name, split in splits.get(group, {}).items()
                    }
                    for of_type, group in enumerate(schema.node_groups)
                },
            )
        )
    return found


def _joined(pieces: list[Tensor]) -> Tensor:
    return pieces[0] if len(pieces) == 1 else torch.cat(pieces)


def _rows_among(internal: Tensor, own: range) -> Tensor:
    """Returns which of the ascending internal ids lie in the range ``own``, as rows of it."""
    begin, end = torch.searchsorted(internal, torch.tensor([own.start, own.stop])).tolist()
    return internal[begin:end] - own.start
