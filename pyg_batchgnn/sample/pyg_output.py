"""Minibatches in the forms that PyG's loaders and their transforms know."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch_geometric.sampler import HeteroSamplerOutput, NumNeighbors, SamplerOutput
from torch_geometric.sampler.base import SubgraphType

from pyg_batchgnn.data import Relation
from pyg_batchgnn.sample.sampled import SampledMinibatch
from pyg_batchgnn.sample.sampled_parts import SampledEdges
from pyg_batchgnn.store import reversed_relation

PygOutput: TypeAlias = SamplerOutput | HeteroSamplerOutput


class Names(enum.Enum):
    """The names in a sample: of no types, or of all."""

    NONE = "none"  # SamplerOutput, of a homogeneous graph
    TYPES = "types"  # HeteroSamplerOutput, whatever the number of types


class Direction(enum.Enum):
    """The direction in which neighbours are looked for (PyG's ``sample_direction``)."""

    FORWARD = "forward"  # the sources of edges into a node
    BACKWARD = "backward"  # the targets of edges from a node

    @classmethod
    def parse(cls, name: Any) -> Direction:
        """Returns the direction of that name.

        Raises:
            ValueError: there is none of that name.
        """
        try:
            return cls(name)
        except ValueError:
            raise ValueError(f"sample_direction must be 'forward' or 'backward', got {name!r}") from None

    def fanouts(self, num_neighbors: Any) -> Any:
        """Returns ``num_neighbors`` with the relations that are sampled in this direction."""
        values = getattr(num_neighbors, "values", None)
        if self is Direction.FORWARD or isinstance(num_neighbors, (list, tuple)):
            return num_neighbors
        if isinstance(num_neighbors, Mapping):
            return {_backward(names): fanouts for names, fanouts in num_neighbors.items()}
        if isinstance(values, Mapping):
            return NumNeighbors(self.fanouts(values), default=num_neighbors.default)
        return num_neighbors


@dataclass(frozen=True)
class PygForm:
    """The form of the samples that a loader makes.

    Attributes:
        names: whether samples name types.
        subgraph: which edges they have.
        index_dtype: the dtype of node ids and edges, which is that of the user's edges.
        direction: the direction that was sampled in. Samples have the edges as the user knows them.
    """

    names: Names = Names.NONE
    subgraph: SubgraphType = SubgraphType.directional
    index_dtype: torch.dtype = torch.int64
    direction: Direction = Direction.FORWARD

    def output(self, minibatch: SampledMinibatch) -> PygOutput:
        """Returns a minibatch in this form."""
        made = self._plain(minibatch) if self.names is Names.NONE else self._typed(minibatch)
        if self.direction is Direction.BACKWARD:
            made = _restored(made)
        if self.subgraph is SubgraphType.bidirectional:
            return made.to_bidirectional()
        if self.subgraph is SubgraphType.induced:
            return replace(made, num_sampled_nodes=None, num_sampled_edges=None)
        return made

    def _plain(self, minibatch: SampledMinibatch) -> SamplerOutput:
        (nodes,), (edges,) = minibatch.nodes, minibatch.edges
        row, col = self._index(edges.edge_index)
        return SamplerOutput(
            node=self._index(nodes.node),
            row=row,
            col=col,
            edge=edges.edge,
            batch=None if nodes.example is None else self._index(nodes.example),
            num_sampled_nodes=list(nodes.nodes_per_hop),
            num_sampled_edges=list(edges.edges_per_hop),
            metadata=_metadata(minibatch),
        )

    def _typed(self, minibatch: SampledMinibatch) -> HeteroSamplerOutput:
        schema = minibatch.schema
        nodes = dict(zip(schema.node_types, minibatch.nodes, strict=True))
        edges = dict(zip(schema.relations, minibatch.edges, strict=True))
        ends = self._ends(edges)
        is_disjoint = any(one.example is not None for one in minibatch.nodes)
        return HeteroSamplerOutput(
            node={name: self._index(one.node) for name, one in nodes.items()},
            row={name: end[0] for name, end in ends.items()},
            col={name: end[1] for name, end in ends.items()},
            edge={name: one.edge for name, one in edges.items()},
            batch={name: self._index(one.example) for name, one in nodes.items() if one.example is not None}
            if is_disjoint
            else None,
            num_sampled_nodes={name: list(one.nodes_per_hop) for name, one in nodes.items()},
            num_sampled_edges={name: list(one.edges_per_hop) for name, one in edges.items()},
            metadata=_metadata(minibatch),
        )

    def _ends(self, edges: Mapping[Relation, SampledEdges]) -> dict[Relation, tuple[Tensor, Tensor]]:
        """Returns sources and targets by relation.

        Relations that are not reached share a part, whose ends are found once.
        """
        found: dict[int, tuple[Tensor, Tensor]] = {}
        for one in edges.values():
            if id(one) not in found:
                index = self._index(one.edge_index)
                found[id(one)] = index[0], index[1]
        return {name: found[id(one)] for name, one in edges.items()}

    def _index(self, values: Tensor) -> Tensor:
        return values if values.dtype is self.index_dtype else values.to(self.index_dtype)


def _backward(names: Any) -> tuple[str, ...]:
    """Returns the reverse of an edge type: a tuple of names, or PyG's string of them."""
    if isinstance(names, str):
        return tuple(reversed(names.to_tuple() if hasattr(names, "to_tuple") else names.split("__")))
    return tuple(reversed(names))


def _restored(made: PygOutput) -> PygOutput:
    """Returns a sample of reversed edges with the edges and relations as the user knows them."""
    if isinstance(made, SamplerOutput):
        return replace(made, row=made.col, col=made.row)

    def renamed(by_relation: Any) -> Any:
        return {reversed_relation(names): part for names, part in by_relation.items()}

    counts = made.num_sampled_edges
    return replace(
        made,
        row=renamed(made.col),
        col=renamed(made.row),
        edge=renamed(made.edge),
        num_sampled_edges=None if counts is None else renamed(counts),
    )


def _metadata(minibatch: SampledMinibatch) -> Any:
    """Returns what PyG's loaders hand on: about seeds, or about links.

    Those of links of several relations are a dict by relation.
    """
    if len(minibatch.links) == 1:
        return minibatch.links[0].metadata
    if minibatch.links:
        return {one.relation: one.metadata for one in minibatch.links}
    return (
        _by_seed_type(minibatch, minibatch.input_id),
        _by_seed_type(minibatch, minibatch.seed_time),
    )


def _by_seed_type(minibatch: SampledMinibatch, values: Tensor | None) -> Any:
    """Returns what belongs to the seeds: a dict by type if they are of several types."""
    if values is None or len(minibatch.seed_types) == 1:
        return values
    counts = [minibatch.nodes[number].nodes_per_hop[0] for number in minibatch.seed_types]
    names = [minibatch.schema.node_types[number] for number in minibatch.seed_types]
    return dict(zip(names, values.split(counts), strict=True))
