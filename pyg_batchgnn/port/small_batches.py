"""Small parts of a batch, with which a new program is compared with its graph.

Each is a sample itself: some seeds, and of every hop the nodes and edges that they reach. Its rows
are rows of the batch, so that ids, times and categories are ones that the model knows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from pyg_batchgnn.port.batches import ArgumentTensor
from pyg_batchgnn.port.prefixes import NodesByHop, PrefixEdges, sorted_prefixes
from pyg_batchgnn.port.structure import DrawnKey, SampledBatch, Structure, UnsampledGraph, prefix
from pyg_batchgnn.port.values import BatchEdges, Edges, Nodes, SeedIds


@dataclass
class SmallBatch:
    """A part of a batch.

    Attributes:
        structure: its nodes and edges.
        nodes: by type, the rows of its nodes in the batch.
        edges: by relation, the places of its edges.
        edge_index: by relation.
        links: how many links it keeps; their ends are among its seeds.
    """

    structure: Structure
    nodes: Mapping[Any, Tensor]
    edges: Mapping[Any, Tensor]
    edge_index: Mapping[Any, Tensor]
    links: int = 0

    def value(self, leaf: ArgumentTensor) -> Tensor:
        """Returns the part of an argument."""
        axis = leaf.axis
        if isinstance(axis, BatchEdges):
            return self.edge_index[axis.relation]
        value = leaf.tensor().detach()
        if isinstance(axis, Nodes):
            return value[self.nodes[axis.name][: prefix(self.structure, "nodes", axis.name, axis.hops)]]
        if isinstance(axis, Edges):
            return value[self.edges[axis.relation]]
        if isinstance(axis, SeedIds):
            return self._links(axis, value)
        return value

    def _links(self, axis: SeedIds, value: Tensor) -> Tensor:
        kept = value[..., : self.links]
        if value.dim() == 2 and isinstance(axis.name, tuple):
            ends = zip(kept, (axis.name[0], axis.name[2]), strict=True)
            return torch.stack([self._seeds(one, name) for one, name in ends])
        return self._seeds(kept, axis.name)

    def _seeds(self, ids: Tensor, name: Any) -> Tensor:
        nodes = self.nodes[name if name in self.nodes else next(iter(self.nodes))]
        place = {int(one): number for number, one in reversed(list(enumerate(nodes.tolist())))}
        return torch.tensor([place[int(one)] for one in ids.flatten()], dtype=ids.dtype).view(ids.shape)


def small_batches(structure: Structure, leaves: list[ArgumentTensor]) -> Iterator[SmallBatch]:
    """Yields parts of a batch with different numbers of seeds, nodes and edges; in the last of a
    sample, a node is a seed twice."""
    for number in range(2):
        if isinstance(structure, SampledBatch):
            yield _sampled(structure, leaves, number)
        elif isinstance(structure, UnsampledGraph):
            yield _unsampled(structure, number)


def _sampled(structure: SampledBatch, leaves: list[ArgumentTensor], number: int) -> SmallBatch:
    links = 3 + 2 * number
    ends: dict[Any, list[int]] = {name: [] for name in structure.nodes}
    for leaf in leaves:
        if isinstance(leaf.axis, SeedIds):
            _add_ends(ends, leaf, links)
    has_links = any(ends.values())
    seeds = {}
    for name, by_hop in structure.nodes.items():
        count = by_hop.per_hop[0]
        some = [*range(min(count, 2 + number)), *([count - 1] if count > 3 else []), *ends[name]]
        seeds[name] = list(dict.fromkeys(some))
        if number == 1 and count and not has_links:
            seeds[name].append(seeds[name][0])
    walk = _Walk(structure, seeds)
    for hop in range(1, structure.hops + 1):
        walk.step(hop)
    return walk.found(links)


def _add_ends(ends: dict[Any, list[int]], leaf: ArgumentTensor, links: int) -> None:
    value, name = leaf.tensor()[..., :links], leaf.axis.name  # type: ignore[union-attr]
    if value.dim() == 2 and isinstance(name, tuple):
        for row, of_type in zip(value, (name[0], name[2]), strict=True):
            ends[of_type] += row.tolist()
    else:
        ends[name if name in ends else next(iter(ends))] += value.flatten().tolist()


@dataclass
class _Walk:
    """The nodes and edges that seeds reach, hop by hop."""

    structure: SampledBatch
    seeds: Mapping[Any, list[int]]
    nodes: dict[Any, list[int]] = field(default_factory=dict)
    places: dict[Any, dict[int, int]] = field(default_factory=dict)
    per_hop: dict[Any, list[int]] = field(default_factory=dict)
    edges: dict[Any, list[int]] = field(default_factory=dict)
    ends: dict[Any, list[tuple[int, int]]] = field(default_factory=dict)
    edges_per_hop: dict[Any, list[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, rows in self.seeds.items():
            self.nodes[name], self.per_hop[name] = list(rows), [len(rows)]
            self.places[name] = {row: place for place, row in reversed(list(enumerate(rows)))}
        for relation in self.structure.relations:
            self.edges[relation], self.ends[relation], self.edges_per_hop[relation] = [], [], []

    def step(self, hop: int) -> None:
        before = {name: len(rows) for name, rows in self.nodes.items()}
        for relation, of_relation in self.structure.relations.items():
            source, _, target = relation or (None, None, None)
            last = before[target]
            first = last - self.per_hop[target][hop - 1]
            count = self._expand(relation, of_relation, source, range(first, last), target)
            self.edges_per_hop[relation].append(count)
        for name, rows in self.nodes.items():
            self.per_hop[name].append(len(rows) - before[name])

    def _expand(self, relation: Any, edges: PrefixEdges, source: Any, targets: range, target: Any) -> int:
        """Adds the in-edges of some nodes, and the sources that are new."""
        indptr, indices = edges.in_edges.indptr, edges.in_edges.indices
        count = 0
        for place in targets:
            row = self.nodes[target][place]
            if row + 1 >= indptr.numel():
                continue
            first, last = int(indptr[row]), int(indptr[row + 1])
            for edge, node in zip(range(first, last), indices[first:last].tolist(), strict=True):
                if node not in self.places[source]:
                    self.places[source][node] = len(self.nodes[source])
                    self.nodes[source].append(node)
                self.edges[relation].append(edge)
                self.ends[relation].append((self.places[source][node], place))
                count += 1
        return count

    def found(self, links: int) -> SmallBatch:
        by_hop = {name: NodesByHop(counts) for name, counts in self.per_hop.items()}
        edge_index = {
            one: torch.tensor(ends, dtype=torch.int64).view(-1, 2).t().contiguous()
            for one, ends in self.ends.items()
        }
        relations: dict[Any, PrefixEdges] = {}
        for relation, index in edge_index.items():
            source, _, target = relation or (None, None, None)
            made = sorted_prefixes(index, by_hop[source], by_hop[target], self.edges_per_hop[relation])
            assert made is not None, "edges by target, hop by hop"
            relations[relation] = made
        structure = SampledBatch(relations, by_hop, self.structure.hops, None, DrawnKey())
        nodes = {name: torch.tensor(rows, dtype=torch.int64) for name, rows in self.nodes.items()}
        edges = {one: torch.tensor(places, dtype=torch.int64) for one, places in self.edges.items()}
        return SmallBatch(structure, nodes, edges, edge_index, links)


def _unsampled(structure: UnsampledGraph, number: int) -> SmallBatch:
    """Returns the first nodes, with the first edges between some of them."""
    nodes = {name: torch.arange(min(count, 17 + 6 * number)) for name, count in structure.nodes.items()}
    edges, edge_index = {}, {}
    for relation, index in structure.edge_index.items():
        source, _, target = relation or (None, None, None)
        counts = torch.tensor([[nodes[source].numel()], [nodes[target].numel()]])
        kept = min(index.size(1), 41 + 10 * number) if int(counts.min()) else 0
        edges[relation] = torch.arange(kept)
        edge_index[relation] = index[:, :kept] % counts.clamp(min=1).to(index.dtype)
    made = UnsampledGraph(edge_index, {name: one.numel() for name, one in nodes.items()})
    return SmallBatch(made, nodes, edges, edge_index)
