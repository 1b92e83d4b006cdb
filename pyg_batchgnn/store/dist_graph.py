"""A graph whose edges are spread over ranks, as a PyG `GraphStore`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import torch
from torch import Tensor
from torch_geometric.data import EdgeAttr, GraphStore
from torch_geometric.data.graph_store import EdgeLayout

from pyg_batchgnn import ops
from pyg_batchgnn.comm import Communicator
from pyg_batchgnn.partition import Part, PartitionBook, node_values
from pyg_batchgnn.store.directory import internal_ids, internal_ids_by_type, original_ids
from pyg_batchgnn.store.hybrid import HybridTopology
from pyg_batchgnn.types import Schema


@dataclass(frozen=True)
class StoreShape:
    """The node types and node counts of a graph that is partitioned over ranks."""

    schema: Schema  # the node types and the relations
    num_nodes: tuple[int, ...]  # the number of nodes of each type


class DistGraphStore(GraphStore):
    """The edges of a graph that is partitioned over ranks, as a PyG `GraphStore`. A rank holds all
    in-edges of the nodes that it owns. Making a store is collective. Methods that are collective
    say so.

    >>> with Communicator.create("graph") as comm:
    ...     part = partition(dataset, "ldg", comm=comm)
    ...     stores = DistFeatureStore(part, comm), DistGraphStore(part, comm)
    ...     loader = MacrobatchNeighborLoader(stores, [10, 5], "train", batch_size=32)

    Args:
        part: this rank's part, of as many parts as there are ranks.
        comm: the communicator of all ranks. The stores and loaders of a graph share it; training
            needs another one.
        topology: the whole graph, from `replicate_topology`, for hybrid partitioning: every rank
            has all edges and samples by itself; only attributes are spread over ranks.

    Raises:
        ValueError: the part is not this rank's, or the topology is of another graph.
        AgreementError: ranks have parts of different graphs.
    """

    #: By this a loader knows a graph over ranks, without importing this file.
    is_partitioned = True

    def __init__(self, part: Part, comm: Communicator, topology: HybridTopology | None = None) -> None:
        super().__init__()
        ops.check_type("part", part, Part, "make it with partition or load_partition")
        part.check_rank(comm)
        if topology is not None:
            graph = topology.graph
            counts = part.book.sizes.sum(0).tolist(), list(part.edge_counts)
            given = list(graph.num_nodes), [edges.num_edges for edges in graph.relations]
            if graph.schema != part.schema or given != counts:
                theirs, ours = ([" + ".join(map(str, one)) for one in both] for both in (given, counts))
                raise ValueError(
                    f"topology has {theirs[0]} nodes and {theirs[1]} edges, but the graph has {ours[0]} and "
                    f"{ours[1]}: give replicate_topology(part, comm)"
                )
        comm.check_agreement(
            {
                "partition book": part.book.digest,
                "types": [list(part.schema.node_types), [list(names) for names in part.schema.relations]],
                "edges": list(part.edge_counts),
                "hybrid": topology is not None,
            }
        )
        self.part, self.comm, self.topology = part, comm, topology

    @property
    def book(self) -> PartitionBook:
        """The partition book: the owner of each node."""
        return self.part.book

    @property
    def shape(self) -> StoreShape:
        """The node types and node counts of the whole graph."""
        return StoreShape(self.part.schema, tuple(self.book.sizes.sum(0).tolist()))

    @property
    def num_nodes(self) -> int:
        """The number of nodes of the whole graph."""
        return self.book.num_nodes

    @property
    def num_edges(self) -> int:
        """The number of edges of the whole graph."""
        return self.part.num_edges

    def internal_ids(self, original: Tensor, node_type: int = 0) -> Tensor:
        """As `store.internal_ids`; collective without ``topology``."""
        if self.topology is not None:
            return self.topology.internal[node_type][original].to(torch.int64)
        return internal_ids(self.part, self.comm, original, node_type=node_type)

    def internal_ids_by_type(self, original: Mapping[int, Tensor]) -> dict[int, Tensor]:
        """As `internal_ids`, by number of the node type. Collective without ``topology``."""
        return internal_ids_by_type(self.part, self.comm, original)

    def get_all_edge_attrs(self) -> list[EdgeAttr]:
        """Returns PyG's description of the edges of each relation."""
        schema, book = self.part.schema, self.book
        ends = zip(schema.relations, schema.source_types, schema.target_types, strict=True)
        return [
            EdgeAttr(name, EdgeLayout.COO, size=(book.num_nodes_of(source), book.num_nodes_of(target)))
            for name, source, target in ends
        ]

    def _get_edge_index(self, edge_attr: EdgeAttr) -> tuple[Tensor, Tensor] | None:
        """Returns (sources, targets) of this rank's edges of a relation, sorted by target, as
        original ids. Collective. All ranks together have every edge once."""
        if edge_attr.layout is not EdgeLayout.COO:
            raise ValueError(
                f"the graph is spread over ranks: a rank's own edges can be had in layout 'coo', not in "
                f"{edge_attr.layout.value!r}"
            )
        number = self.part.schema.relation_number(edge_attr.edge_type)
        edges = self.part.owned_edges_of(number)
        sources = self.comm.run_job(
            lambda: original_ids(self.part, self.comm, edges.in_edges.indices.to(torch.int64))
        )
        return sources, torch.repeat_interleave(edges.node, edges.in_edges.degrees)

    def _put_edge_index(self, edge_index: Any, edge_attr: EdgeAttr) -> NoReturn:
        raise NotImplementedError("edges of a partitioned graph cannot be changed; partition another one")

    def _remove_edge_index(self, edge_attr: EdgeAttr) -> NoReturn:
        raise NotImplementedError("edges of a partitioned graph cannot be removed; partition another one")

    def __repr__(self) -> str:
        kind = "hybrid" if self.topology is not None else "partitioned"
        return f"DistGraphStore({self.num_nodes:,} nodes, {self.num_edges:,} edges, {kind}, {self.comm!r})"


@dataclass(frozen=True, eq=False)
class OwnEdges:
    """The edges of a relation into a rank's own nodes."""

    index: Tensor  # [2, m] int64, sources above targets, original ids within their types
    edge: Tensor  # [m] int64, their input edge ids, ascending
    total: int  # the number of edges of the relation in the whole graph


def own_edges(part: Part, comm: Communicator, relation: int) -> OwnEdges:
    """Returns a rank's edges of a relation, by original ids. Collective, in rounds: the owners of
    remote sources are asked for the ids. Counts as `MessageKind.PARTITION`."""
    edges = part.relations[relation]
    distinct, (place,) = ops.unique_nodes([edges.indices.to(torch.int64)], part.book.num_nodes)
    source = node_values(comm, part.book, distinct, part.node)[place.long()]
    target = part.original_ids(part.schema.target_types[relation])[edges.targets()]
    edge, order = edges.explicit_edge_ids().to(torch.int64).sort()
    return OwnEdges(torch.stack([source, target])[:, order], edge, part.edge_counts[relation])
