"""The layers of a sampled batch that PyG's models see as an ``edge_index``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from pyg_batchgnn import nn, ops
from pyg_batchgnn.sample import HandedOut, handed_out
from pyg_batchgnn.types import LayerHops


@dataclass(frozen=True, eq=False)
class NodesByHop:
    per_hop: list[int]  # the number of nodes of each hop, seeds first
    node: Tensor | None = None  # [N] int64, their ids for dropout; row numbers where None

    def ids(self, rows: int) -> Tensor | None:
        return None if self.node is None else self.node[:rows]


@dataclass(frozen=True)
class SampleKeys:
    """The components of the keys of dropout in the layers of a sample."""

    seed: int
    epoch: int
    minibatch: int  # the key of the minibatch
    #: the name of a type, or the names of a relation, where there are several
    names: tuple[str, ...] | None = None

    def of_layer(self, layer: int) -> int:
        key = ops.dropout_key(self.seed, self.epoch, self.minibatch, layer)
        return key if self.names is None else nn.named_key(key, self.names)


class PrefixEdges:
    """The edges of a batch by destination, as `edge_index` orders them. Each layer takes a prefix
    (design, section 3). ``targets``, ``sources``: the nodes of the two types that a relation joins.
    ``keys``: what dropout is keyed by, if a loader of this process made the sample."""

    def __init__(
        self,
        in_edges: ops.InEdges,
        targets: NodesByHop,
        edges_per_hop: Sequence[int],
        keys: SampleKeys | None = None,
        sources: NodesByHop | None = None,
    ) -> None:
        self.in_edges, self.of_targets, self.edges_per_hop = in_edges, targets, list(edges_per_hop)
        self.of_sources = targets if sources is None else sources
        self.keys = keys
        self._graphs: dict[tuple[int, int, bool, int | None], nn.LayerGraph] = {}

    @property
    def hops(self) -> int:
        return len(self.edges_per_hop)

    @property
    def nodes_per_hop(self) -> list[int]:
        return self.of_targets.per_hop

    @property
    def num_nodes(self) -> int:
        return sum(self.nodes_per_hop)

    def edges(self, hops: int) -> int:
        return LayerHops(hops).edges(self.edges_per_hop, self.in_edges.num_edges)

    def targets(self, hops: int) -> int:
        """Returns the number of nodes that have edges in the first ``hops`` hops."""
        return LayerHops(hops).targets(self.of_targets.per_hop)

    def sources(self, hops: int) -> int:
        """Returns the number of nodes that are known after the first ``hops`` hops."""
        return LayerHops(hops).sources(self.of_sources.per_hop)

    def graph(
        self, layer: int, hops: int, *, padded: bool, normalised_by: int | None = None
    ) -> nn.LayerGraph:
        """Returns a layer, the same object on every call. ``layer``: its number for the keys of
        dropout, from 1; 0 draws a key at each call. ``padded``: computes a row for each node of
        these hops, not only for nodes that have edges. ``normalised_by``: the hops of the edges
        whose degrees GCN takes; those of the layer where None."""
        place = (layer, hops, padded, normalised_by)
        if place not in self._graphs:
            self._graphs[place] = self._graph(*place)
        return self._graphs[place]

    def _graph(self, layer: int, hops: int, padded: bool, normalised_by: int | None) -> nn.LayerGraph:
        edges = self.edges(hops)
        indptr = self.in_edges.indptr[: self.targets(hops) + 1]
        targets = LayerHops(hops).sources(self.of_targets.per_hop) if padded else self.targets(hops)
        if targets >= indptr.numel():
            rest = indptr.new_full((targets + 1 - indptr.numel(),), edges)
            indptr = torch.cat([indptr, rest])
        keyed = layer > 0 and self.keys is not None
        in_edges = ops.InEdges(indptr, self.in_edges.indices[:edges])
        in_edges.check(num_sources=self.sources(hops))
        in_edges.note_checked(self.sources(hops), of_graph=False)  # operators need not read them again
        return nn.LayerGraph(
            in_edges,
            num_sources=self.sources(hops),
            node=self.of_targets.ids(targets) if keyed else None,
            key=self.keys.of_layer(layer) if keyed and self.keys is not None else None,
            whole=None if normalised_by is None else self.graph(layer, normalised_by, padded=True),
        )


_prefixes: WeakKeyDictionary[HandedOut, PrefixEdges] = WeakKeyDictionary()


def known_prefixes(edge_index: Tensor) -> PrefixEdges | None:
    """Returns the layers of edges that a loader of this process handed out and nobody changed."""
    sample = handed_out(edge_index)
    if sample is None:
        return None
    found = _prefixes.get(sample)
    if found is None:
        in_edges = ops.InEdges(sample.indptr, sample.indices)
        keys = SampleKeys(sample.seed, sample.epoch, sample.key)
        nodes = NodesByHop(sample.nodes_per_hop, sample.node)
        found = _prefixes[sample] = PrefixEdges(in_edges, nodes, sample.edges_per_hop, keys)
    return found


def sorted_prefixes(
    edge_index: Tensor, sources: NodesByHop, targets: NodesByHop, edges_per_hop: Sequence[int]
) -> PrefixEdges | None:
    """Returns the layers of other edges with the counts of a sample. None if the edges are not by
    destination in the order of the nodes, or if the counts do not fit them."""
    counts = {len(sources.per_hop), len(targets.per_hop)}
    if counts != {len(edges_per_hop) + 1} or sum(edges_per_hop) != edge_index.size(1):
        return None
    whole = nn.whole_graph(edge_index, sum(sources.per_hop), sum(targets.per_hop))
    if whole.edge is not None:
        return None
    found = PrefixEdges(whole.in_edges, targets, edges_per_hop, sources=sources)
    for hops in range(1, found.hops + 1):
        edges, expanded = found.edges(hops), found.targets(hops)
        if int(whole.indptr[expanded]) != edges:
            return None
        if edges and ops.extent(whole.indices[:edges])[1] >= found.sources(hops):
            return None
    return found


def layer_edges(edge_index: Tensor, rows: int) -> nn.LayerGraph | None:
    """Returns the edges of one convolution that computes all ``rows`` rows, if a loader handed them
    out, or if they are its first hops as PyG's ``trim_to_layer`` takes them; else None."""
    base = edge_index if edge_index._base is None else edge_index._base
    found = known_prefixes(base)
    if found is None or edge_index.data_ptr() != base.data_ptr() or edge_index.stride() != base.stride():
        return None
    if edge_index.dim() != 2 or edge_index.size(0) != 2:
        return None
    for hops in range(found.hops, -1, -1):
        sources = found.sources(hops)
        if found.edges(hops) == edge_index.size(1) and sources <= rows:
            return found.graph(0, hops, padded=True) if rows == sources else None
    return None
