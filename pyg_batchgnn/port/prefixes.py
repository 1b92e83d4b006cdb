"""The layers of a sampled batch that PyG's models see as an ``edge_index``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from pyg_batchgnn import nn, ops
from pyg_batchgnn.nn import dropout_node
from pyg_batchgnn.sample import HandedOut, handed_out
from pyg_batchgnn.types import LayerHops, SampledMinibatch


class PrefixEdges:
    """The edges of a batch by destination. Each layer takes a prefix of them (design, section 3).

    Args:
        in_edges: the in-edges of the expanded nodes, in the order of ``edge_index``.
        node: [N] int64, the ids of the nodes for dropout; row numbers where None.
        keys: the seed, the epoch and the minibatch key that dropout is keyed by, if a loader of this
            process made the sample; else None.
    """

    def __init__(
        self,
        in_edges: ops.InEdges,
        nodes_per_hop: Sequence[int],
        edges_per_hop: Sequence[int],
        node: Tensor | None = None,
        keys: tuple[int, int, int] | None = None,
    ) -> None:
        self.in_edges = in_edges
        self.nodes_per_hop, self.edges_per_hop = list(nodes_per_hop), list(edges_per_hop)
        self._node, self._keys = node, keys
        self._graphs: dict[tuple[int, int, bool, int | None], nn.LayerGraph] = {}

    @property
    def hops(self) -> int:
        return len(self.edges_per_hop)

    @property
    def num_nodes(self) -> int:
        return sum(self.nodes_per_hop)

    def edges(self, hops: int) -> int:
        return LayerHops(hops).edges(self.edges_per_hop, self.in_edges.num_edges)

    def targets(self, hops: int) -> int:
        """Returns the number of nodes that have edges in the first ``hops`` hops."""
        return LayerHops(hops).targets(self.nodes_per_hop)

    def sources(self, hops: int) -> int:
        """Returns the number of nodes that are known after the first ``hops`` hops."""
        return LayerHops(hops).sources(self.nodes_per_hop)

    def graph(
        self, layer: int, hops: int, *, padded: bool, normalised_by: int | None = None
    ) -> nn.LayerGraph:
        """Returns a layer, the same object on every call.

        Args:
            layer: its number for the keys of dropout, from 1; 0 draws a key at each call.
            padded: computes a row for each of its sources, not only for nodes that have edges.
            normalised_by: the hops of the edges whose degrees GCN takes; those of the layer where
                None.
        """
        place = (layer, hops, padded, normalised_by)
        if place not in self._graphs:
            self._graphs[place] = self._graph(*place)
        return self._graphs[place]

    def _graph(self, layer: int, hops: int, padded: bool, normalised_by: int | None) -> nn.LayerGraph:
        edges, sources = self.edges(hops), self.sources(hops)
        indptr = self.in_edges.indptr[: self.targets(hops) + 1]
        targets = sources if padded else self.targets(hops)
        if targets >= indptr.numel():
            rest = indptr.new_full((targets + 1 - indptr.numel(),), edges)
            indptr = torch.cat([indptr, rest])
        keyed = layer > 0 and self._keys is not None
        return nn.LayerGraph(
            ops.InEdges(indptr, self.in_edges.indices[:edges]),
            num_sources=sources,
            node=self._node[:targets] if keyed and self._node is not None else None,
            key=ops.dropout_key(*self._keys, layer) if keyed and self._keys is not None else None,
            whole=None if normalised_by is None else self.graph(layer, normalised_by, padded=True),
        )

    def dropout(self, layer: int, rows: int) -> tuple[int | None, Tensor | None]:
        """Returns the key of the dropout after a layer, None if no loader made the sample, and the
        ids of its rows."""
        if self._keys is None:
            return None, None
        return ops.dropout_key(*self._keys, layer), None if self._node is None else self._node[:rows]


def with_drawn_keys(*passes: Sequence[nn.LayerGraph]) -> list[list[nn.LayerGraph]]:
    """Returns the layers of some passes with the keys of one training pass.

    A number is drawn from torch's generator and added to the keys of the sample. So every training
    pass over a batch drops other elements, and ``passes`` drop the same ones.
    """
    drawn = ops.drawn_key()
    return [[_rekeyed(graph, drawn) for graph in graphs] for graphs in passes]


def _rekeyed(graph: nn.LayerGraph, drawn: int) -> nn.LayerGraph:
    if graph.key is None:
        return graph
    mask = (1 << 64) - 1
    return replace(graph, key=ops.to_signed(ops.fold_key(graph.key & mask, drawn & mask)))


_prefixes: WeakKeyDictionary[HandedOut, PrefixEdges] = WeakKeyDictionary()


def known_prefixes(edge_index: Tensor) -> PrefixEdges | None:
    """Returns the layers of edges that a loader of this process handed out and nobody changed."""
    sample = handed_out(edge_index)
    if sample is None:
        return None
    found = _prefixes.get(sample)
    if found is None:
        in_edges = ops.InEdges(sample.indptr, sample.indices)
        keys = (sample.seed, sample.epoch, sample.key)
        found = PrefixEdges(in_edges, sample.nodes_per_hop, sample.edges_per_hop, sample.node, keys)
        _prefixes[sample] = found
    return found


_of_minibatches: WeakKeyDictionary[SampledMinibatch, PrefixEdges] = WeakKeyDictionary()


def minibatch_prefixes(minibatch: SampledMinibatch) -> PrefixEdges | None:
    """Returns the layers of a native minibatch of one relation; None for an induced subgraph."""
    if minibatch.num_layers is None:
        return None
    found = _of_minibatches.get(minibatch)
    if found is None:
        nodes, edges = minibatch.nodes[0], minibatch.edges[0]
        keys = (minibatch.seed, minibatch.epoch, minibatch.key)
        found = PrefixEdges(
            ops.InEdges(edges.indptr, edges.indices),
            nodes.nodes_per_hop,
            edges.edges_per_hop,
            dropout_node(nodes.node, nodes.example),
            keys,
        )
        _of_minibatches[minibatch] = found
    return found


def sorted_prefixes(
    edge_index: Tensor, nodes_per_hop: Sequence[int], edges_per_hop: Sequence[int]
) -> PrefixEdges | None:
    """Returns the layers of other edges with the counts of a sample.

    Returns None if the edges are not by destination in the order of the nodes, or if the counts do
    not fit them.
    """
    nodes = sum(nodes_per_hop)
    if len(nodes_per_hop) != len(edges_per_hop) + 1 or sum(edges_per_hop) != edge_index.size(1):
        return None
    whole = nn.whole_graph(edge_index, nodes, nodes)
    if whole.edge is not None:
        return None
    found = PrefixEdges(whole.in_edges, nodes_per_hop, edges_per_hop)
    for hops in range(1, found.hops + 1):
        edges, targets = found.edges(hops), found.targets(hops)
        if int(whole.indptr[targets]) != edges:
            return None
        if edges and ops.extent(whole.indices[:edges])[1] >= found.sources(hops):
            return None
    return found


def layer_edges(edge_index: Tensor, rows: int) -> nn.LayerGraph | None:
    """Returns the edges of one convolution that computes all ``rows`` rows.

    ``edge_index`` is one that a loader handed out, or the edges of its first hops as PyG's
    ``trim_to_layer`` takes them. Returns None for other edges.
    """
    base = edge_index if edge_index._base is None else edge_index._base
    found = known_prefixes(base)
    if found is None or (base is not edge_index and not _is_first_part(edge_index, base)):
        return None
    for hops in range(found.hops, -1, -1):
        sources = found.sources(hops)
        if found.edges(hops) == edge_index.size(1) and sources <= rows:
            return found.graph(0, hops, padded=True) if rows == sources else None
    return None


def _is_first_part(part: Tensor, base: Tensor) -> bool:
    return (
        part.dim() == 2
        and part.size(0) == 2
        and part.stride() == base.stride()
        and part.data_ptr() == base.data_ptr()
    )
