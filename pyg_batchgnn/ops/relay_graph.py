"""The graph of a relay: the owners of all nodes, and the in-edges of those that a rank owns."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pyg_batchgnn.ops.checks import check_ids, check_indptr, check_vector
from pyg_batchgnn.ops.sample import SampledGraph


@dataclass(frozen=True)
class RelayBook:
    """The owners of all nodes, and the relations.

    Attributes:
        offsets: the first internal id of each part and node type, then the number of nodes.
        num_types: the number of node types.
        rank: this rank, the number of its part.
        source, target: by relation, the numbers of its types.
        num_edges: by relation, the edges of the whole graph.
        wide: True if ids are exchanged as int64, else as int32.
    """

    offsets: list[int]
    num_types: int
    rank: int
    source: list[int]
    target: list[int]
    num_edges: list[int]
    wide: bool

    @property
    def num_nodes(self) -> int:
        """The number of nodes of the whole graph, of all types."""
        return self.offsets[-1]

    def check(self) -> None:
        """Raises ValueError unless the numbers fit together."""
        offsets, types = self.offsets, self.num_types
        if not offsets or offsets[0] != 0 or any(b < a for a, b in itertools.pairwise(offsets)):
            raise ValueError(f"the offsets of parts must ascend from 0, got {list(offsets)}")
        if types < 1 or (len(offsets) - 1) % types:
            raise ValueError(f"{len(offsets)} offsets do not fit {types} node types")
        if not 0 <= self.rank < (len(offsets) - 1) // types:
            raise ValueError(f"rank {self.rank} has no part among {(len(offsets) - 1) // types}")
        _check_relations(self.source, self.target, self.num_edges, types)


@dataclass(frozen=True, eq=False)
class OwnedGraph:
    """The in-edges of the nodes that a rank owns, by relation.

    Attributes:
        arrays: the in-edges. ``num_nodes`` holds the rank's own nodes of each type. Row i of a
            relation is its i-th node of the target type, and sources are internal ids. Edge ids are
            not empty where there are edges.
        node: [n] int64, the original id of each owned node, by type.
        first: the internal id of the first owned node.
        all_nodes: the number of nodes of the whole graph.
        num_edges: by relation, the edges of the whole graph.
    """

    arrays: SampledGraph
    node: Tensor
    first: int
    all_nodes: int
    num_edges: list[int]

    def held(self) -> Tensor:
        """Returns the arrays in the form that the kernel takes, checked once for as long as torch
        does not write to them.

        Raises:
            TypeError, ValueError, IndexError: the arrays do not fit together.
        """
        return self.arrays.held(self._check)

    def _check(self) -> None:
        arrays = self.arrays
        own = sum(arrays.num_nodes)
        _check_relations(arrays.source, arrays.target, self.num_edges, len(arrays.num_nodes))
        check_vector("node", self.node, (torch.int64,))
        if self.node.numel() != own:
            raise ValueError(f"{self.node.numel()} original ids came with {own} nodes")
        if not 0 <= self.first <= self.all_nodes - own:
            raise ValueError(
                f"{own} nodes from {self.first} on are not all among the {self.all_nodes} of the graph"
            )
        if not len(arrays.indptr) == len(arrays.indices) == len(arrays.edge_ids) == len(arrays.target):
            raise ValueError("every relation needs one indptr, indices, edge_ids, source and target")
        for number, target in enumerate(arrays.target):
            self._check_edges(number, arrays.num_nodes[target])

    def _check_edges(self, number: int, rows: int) -> None:
        arrays = self.arrays
        indptr, indices, ids = arrays.indptr[number], arrays.indices[number], arrays.edge_ids[number]
        check_indptr("indptr", indptr, indices.numel())
        check_ids("indices", indices, self.all_nodes)
        check_ids("edge_ids", ids, self.num_edges[number], "edge ids")
        if indptr.numel() != rows + 1:
            raise ValueError(f"indptr of relation {number} is of {indptr.numel() - 1} nodes, not of {rows}")
        if ids.numel() != indices.numel():
            raise ValueError(
                f"relation {number} has {ids.numel()} edge ids for {indices.numel()} edges; over ranks every "
                "edge needs its own"
            )


def _check_relations(
    source: Sequence[int], target: Sequence[int], num_edges: Sequence[int], types: int
) -> None:
    if not len(source) == len(target) == len(num_edges):
        raise ValueError("every relation needs one source, target and number of edges")
    for number in (*source, *target):
        if not 0 <= number < types:
            raise ValueError(f"a relation names the node type {number}, but there are {types}")
