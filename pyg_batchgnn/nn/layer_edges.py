"""The edges and the rows of one layer: of a sampled minibatch, or of a whole graph.

One CSC by destination holds every layer of a minibatch. Layer l of L, counted from 1 nearest the
input, takes a prefix of its rows and edges (`LayerHops`). In an induced subgraph every layer
takes all.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias, TypeGuard
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from pyg_batchgnn import ops
from pyg_batchgnn.types import LayerHops, Relation, SampledMinibatch


@dataclass(frozen=True, eq=False)
class LayerRows:
    """The nodes of one type that a layer reads and computes."""

    num_targets: int  # D, the number of rows that the layer computes
    num_sources: int  # N >= D, the number of rows that it reads
    node: Tensor | None = None  # [D] int64, the ids of the rows for dropout; None: 0 to D - 1
    key: int | None = None  # the key of the dropout after the layer; None if each call draws one

    def dropout_key(self) -> int:
        return ops.drawn_key() if self.key is None else self.key


@dataclass(frozen=True, eq=False)
class LayerGraph:
    """The in-edges of the targets of a layer. The targets are also its first sources."""

    # The in-edges of the D targets. ``edge_ids`` are places in the user's order, None if the same.
    in_edges: ops.InEdges
    num_sources: int  # N; N >= D except where sources and targets are nodes of two types
    node: Tensor | None = None  # [D] int64, the ids of the targets for dropout; None: 0 to D - 1
    key: int | None = None  # the key of the dropout of the layer; None if each call draws one
    # [N] the in-edges of each source in the whole graph, for GCN: loops are counted unless the
    # layer replaces them. None if these edges are all that count.
    degree: Tensor | None = None
    # The graph whose degrees normalise the layer; None if it is the layer's own.
    whole: LayerGraph | None = None

    @property
    def indptr(self) -> Tensor:
        """[D + 1] int64, where each target's in-edges begin."""
        return self.in_edges.indptr

    @property
    def indices(self) -> Tensor:
        """[E] int32 or int64, the sources."""
        return self.in_edges.indices

    @property
    def edge(self) -> Tensor | None:
        """[E], the place of each edge in the user's order; None if the same."""
        return self.in_edges.edge_ids

    @property
    def num_targets(self) -> int:
        return self.in_edges.num_targets

    @property
    def num_edges(self) -> int:
        return self.in_edges.num_edges

    @cached_property
    def by_source(self) -> ops.BySource:
        """The edges sorted by source, for the gradient of the layer's input."""
        if self.whole is not None and self.whole.in_edges is self.in_edges:
            return self.whole.by_source
        return ops.transpose(self.indptr, self.indices, self.num_sources)

    def by_source_for(self, x: Tensor) -> ops.BySource | tuple[()]:
        """Returns `by_source` if the gradient of ``x`` needs it, else ()."""
        return self.by_source if x.requires_grad and torch.is_grad_enabled() else ()

    @cached_property
    def targets(self) -> Tensor:
        """[E] int64, the target of each edge."""
        return self.in_edges.targets()

    def dropout_key(self) -> int:
        """Returns the key of the layer's dropout: fixed for a layer of a minibatch, drawn from
        torch's default generator for a whole graph."""
        return ops.drawn_key() if self.key is None else self.key

    def edge_rows(self, attr: Tensor | None, columns: int | None, dtype: torch.dtype) -> Tensor:
        """Returns [E, columns], the features of the layer's edges in its order. ``attr``: of all
        edges of the minibatch, or in the user's order. ``columns``: None for any number."""
        edges = self.num_edges
        if attr is None:
            raise ValueError("the layer reads edge_attr, the features of edges, but it is not given")
        if attr.dim() != 2 or columns not in (None, attr.size(1)):
            raise ValueError(f"edge_attr must be [E, {columns or 'columns'}], got {list(attr.shape)}")
        if attr.size(0) < edges:
            raise ValueError(f"edge_attr has {attr.size(0)} entries, but the layer has {edges} edges")
        return self._in_order(attr).to(dtype)

    def edge_weights(self, weight: Tensor, dtype: torch.dtype) -> Tensor:
        """Returns [E], the weights of the layer's edges in its order. ``weight``: of all edges."""
        edges = (self.whole or self).num_edges
        if weight.dim() != 1 or weight.numel() != edges:
            raise ValueError(f"edge_weight must be [{edges}], one entry per edge, got {list(weight.shape)}")
        return self._in_order(weight).to(dtype)

    def _in_order(self, values: Tensor) -> Tensor:
        return values[: self.num_edges] if self.edge is None else values.index_select(0, self.edge)


@dataclass(frozen=True, eq=False)
class HaloGraph(LayerGraph):
    """The in-edges of a layer that reads rows of halo nodes from caches. Halo nodes have no
    in-edges in the minibatch, so that their degrees are unknown."""


#: The rows that a layer computes, with the ids and the key of their dropout.
Targets: TypeAlias = LayerRows | LayerGraph

# Layers of minibatches ############################################################################


def is_sampled(edges: Any) -> TypeGuard[SampledMinibatch]:
    """Returns whether ``edges`` are a minibatch of one node type and one relation."""
    return isinstance(edges, SampledMinibatch) and edges.has_one_type


def is_typed(edges: Any) -> TypeGuard[SampledMinibatch]:
    """Returns whether ``edges`` are a minibatch, whose types and relations can be named."""
    return isinstance(edges, SampledMinibatch)


def has_halo(minibatch: Any) -> bool:
    """Returns whether a minibatch is one with historical embeddings."""
    return hasattr(minibatch, "begin_pass")


_Stamp: TypeAlias = tuple[tuple[int, int], tuple[int, int]]
#: The layers of each minibatch by relation, with the stamp of the edges that they were made of.
_layers: WeakKeyDictionary[SampledMinibatch, dict[Relation | None, tuple[_Stamp, dict[int, LayerGraph]]]] = (
    WeakKeyDictionary()
)


def layer_graph(minibatch: SampledMinibatch, layer: int, relation: Relation | None = None) -> LayerGraph:
    """Returns the edges of a layer of a minibatch: the same object until the minibatch is changed.

    Args:
        layer: 1 is nearest the input.
        relation: the relation of the edges; None if there is only one.
    """
    if not isinstance(minibatch, SampledMinibatch):
        raise TypeError(
            f"expected a minibatch, got {type(minibatch).__name__}; a loader with export='native' yields "
            "minibatches"
        )
    if relation is None and not minibatch.has_one_type:
        raise TypeError(
            f"the minibatch has the relations {list(minibatch.schema.relations)}, but the layer takes "
            "one; use pyg_batchgnn.nn.HeteroConv"
        )
    number = 0 if relation is None else minibatch.schema.relation_number(relation)
    edges = minibatch.edges[number]
    stamp = _stamp(edges.indptr), _stamp(edges.indices)
    of_minibatch = _layers.setdefault(minibatch, {})
    known, made = of_minibatch.get(relation, (None, {}))
    if known != stamp:
        made = {}
        of_minibatch[relation] = (stamp, made)
    if layer not in made:
        made[layer] = _layer_graph(minibatch, number, layer, relation)
    return made[layer]


def _stamp(values: Tensor) -> tuple[int, int]:
    """Returns a pair that changes when a tensor is replaced or torch writes to it."""
    return id(values), 0 if values.is_inference() else values._version


def _layer_graph(
    minibatch: SampledMinibatch, number: int, layer: int, relation: Relation | None
) -> LayerGraph:
    if has_halo(minibatch):
        raise ValueError(
            "what this minibatch's layers read of halo nodes depends on caches: take their edges and inputs "
            "from HaloPass(minibatch), or call a native model, which does"
        )
    schema, edges = minibatch.schema, minibatch.edges[number]
    sources, targets = (minibatch.nodes[ends[number]] for ends in (schema.source_types, schema.target_types))
    key = _dropout_key(minibatch, layer, relation)
    whole = None if layer == 1 else layer_graph(minibatch, 1, relation)
    prefix = LayerHops.of(minibatch.num_layers, layer)
    if prefix.hops is None and whole is not None:
        return replace(whole, key=key, whole=whole)
    num_targets = prefix.targets(targets.nodes_per_hop)
    num_edges = prefix.edges(edges.edges_per_hop, edges.num_edges)
    if edges.indptr.numel() <= num_targets or edges.num_edges < num_edges:
        raise ValueError(
            f"layer {layer} has {num_targets} targets and {num_edges} edges by the minibatch's counts, but "
            f"indptr has {edges.indptr.numel()} entries and indices {edges.num_edges}"
        )
    num_sources = prefix.sources(sources.nodes_per_hop)
    in_edges = ops.InEdges(ops.prefix(edges.indptr, num_targets + 1), ops.prefix(edges.indices, num_edges))
    in_edges.check(num_sources=num_sources)
    in_edges.note_checked(num_sources, of_graph=False)
    return LayerGraph(
        in_edges,
        num_sources=num_sources,
        node=dropout_node(targets.node, targets.example, num_targets),
        key=key,
        whole=whole,
    )


def layer_rows(minibatch: SampledMinibatch, layer: int, name: str) -> LayerRows:
    """Returns the nodes of a type that a layer reads and computes. ``layer``: from 1 on, or 0 for a
    layer below the first, which computes all nodes."""
    nodes = minibatch.nodes_of(name)
    count = sources = nodes.node.numel()
    if layer != 0:
        prefix = LayerHops.of(minibatch.num_layers, layer)
        count, sources = prefix.targets(nodes.nodes_per_hop), prefix.sources(nodes.nodes_per_hop)
    node = dropout_node(nodes.node, nodes.example, count)
    return LayerRows(count, sources, node, _dropout_key(minibatch, layer, (name,)))


def all_nodes(minibatch: SampledMinibatch) -> LayerGraph:
    """Returns a layer below the first: all nodes are its targets, and it has no edges."""
    nodes = minibatch.node.numel()
    return LayerGraph(
        ops.InEdges(torch.zeros(nodes + 1, dtype=torch.int64), minibatch.indices[:0]),
        num_sources=nodes,
        node=dropout_node(minibatch.node, minibatch.example, nodes),
        key=_dropout_key(minibatch, 0, None),
    )


def dropout_node(node: Tensor, example: Tensor | None, rows: int | None = None) -> Tensor:
    """Returns [rows] int64, the ids by which dropout of rows is keyed: original node ids, in
    disjoint sampling folded with ``example``, so that copies of a node drop other elements."""
    return node[:rows] if example is None else ops.fold_key(node[:rows], example[:rows])


def _dropout_key(minibatch: SampledMinibatch, layer: int, names: tuple[str, ...] | None) -> int:
    """Returns the key of a layer's dropout. ``names``: of the node type or relation that it is for;
    ignored in a graph of one type and one relation."""
    key = ops.dropout_key(minibatch.seed, minibatch.epoch, minibatch.key, layer)
    return key if names is None or minibatch.schema.is_plain else named_key(key, names)


def named_key(key: int, names: tuple[str, ...]) -> int:
    """Folds the names of a node type or a relation into a key of dropout."""
    return ops.to_signed(ops.fold_key(key & _WORD, _digest(names)))


_WORD = (1 << 64) - 1
_digest = functools.lru_cache(maxsize=4096)(ops.names_key)


# Whole graphs #####################################################################################

#: By edge_index: its version and sizes when it was sorted, the sums of its contents, the graph.
_whole: WeakTensorKeyDictionary = WeakTensorKeyDictionary()


def whole_graph(edge_index: Tensor, num_sources: int, num_targets: int) -> LayerGraph:
    """Returns a whole graph from edges in any order. They are sorted once, until the tensor is
    modified: writes of torch change its version, other writes (``.data``, NumPy, DLPack) the sums
    of its contents.

    Args:
        edge_index: [2, E] int64 (or int32), sources above targets, checked here.

    Raises:
        TypeError: ``edge_index`` is not a dense integer tensor.
        ValueError, IndexError: it has another shape, or it names nodes that do not exist.
    """
    if not isinstance(edge_index, Tensor) or edge_index.layout != torch.strided:
        kind = edge_index.layout if isinstance(edge_index, Tensor) else type(edge_index).__name__
        raise TypeError(
            f"edges must be a [2, E] tensor or a minibatch, got {kind}; for a sparse matrix use "
            f"torch_geometric.utils.to_edge_index(adj_t), for a SparseTensor torch.stack(adj_t.t().coo()[:2])"
        )
    if type(edge_index) is not Tensor:  # PyG's EdgeIndex
        edge_index = edge_index.as_subclass(Tensor)
    if edge_index.dim() != 2 or edge_index.size(0) != 2:
        raise ValueError(f"edge_index must have shape [2, num_edges], got {list(edge_index.shape)}")
    stamp = (None if edge_index.is_inference() else edge_index._version, num_sources, num_targets)
    if stamp[0] is not None and edge_index in _whole:
        known, sums, graph = _whole[edge_index]
        if known == stamp and torch.equal(sums, ops.content_sums(edge_index)):
            return graph
    if edge_index.size(1):
        ops.check_range("edge_index[0]", edge_index[0].contiguous(), num_sources, "sources")
        ops.check_range("edge_index[1]", edge_index[1].contiguous(), num_targets, "targets")
    found = ops.build_csc(edge_index, max(num_sources, num_targets))
    graph = LayerGraph(
        ops.InEdges(ops.prefix(found.indptr, num_targets + 1), found.indices, found.edge_ids), num_sources
    )
    if stamp[0] is not None:
        _whole[edge_index] = (stamp, ops.content_sums(edge_index), graph)
    return graph
