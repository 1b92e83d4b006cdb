"""The layers of a sampled minibatch, of one relation or of several."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeGuard
from weakref import WeakKeyDictionary

from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.nn.graph import LayerGraph, LayerRows
from pyg_batchgnn.nn.layer_hops import LayerHops, num_layers

#: The names of a relation: its source type, its own name and its target type.
Relation = tuple[str, str, str]


class KeyedBatch(Protocol):
    """The keys of a minibatch, from which dropout draws."""

    @property
    def seed(self) -> int: ...
    @property
    def epoch(self) -> int: ...
    @property
    def key(self) -> int: ...


class SampledBatch(KeyedBatch, Protocol):
    """The attributes of a minibatch that layers read. `pyg_batchgnn.Minibatch` has them.

    One CSC by destination holds every layer: layer l of L, counted from 1 nearest the input,
    computes the first ``sum(nodes_per_hop[:L-l+1])`` rows from the first
    ``sum(edges_per_hop[:L-l+1])`` edges. An induced subgraph does not count edges by hop: its
    ``edges_per_hop`` is empty. Every layer then computes all rows from all edges, and there may be
    any number of layers.
    """

    @property
    def node(self) -> Tensor: ...
    @property
    def indptr(self) -> Tensor: ...
    @property
    def indices(self) -> Tensor: ...
    @property
    def nodes_per_hop(self) -> Sequence[int]: ...
    @property
    def edges_per_hop(self) -> Sequence[int]: ...


class TypedBatch(KeyedBatch, Protocol):
    """The attributes of a minibatch of several types that layers read.

    ``nodes`` and ``edges`` have, by number of the type and of the relation, what a `SampledBatch`
    has of its nodes and edges. `pyg_batchgnn.Minibatch` has them.
    """

    @property
    def schema(self) -> Any: ...
    @property
    def nodes(self) -> Sequence[Any]: ...
    @property
    def edges(self) -> Sequence[Any]: ...


def is_sampled(edges: Any) -> TypeGuard[SampledBatch]:
    """Returns whether ``edges`` are a minibatch of one node type and one relation."""
    return hasattr(edges, "nodes_per_hop") and hasattr(edges, "indptr")


def is_typed(edges: Any) -> TypeGuard[TypedBatch]:
    """Returns whether ``edges`` are a minibatch whose types and relations can be named."""
    return all(hasattr(edges, name) for name in ("schema", "nodes", "edges"))


@dataclass(frozen=True)
class _Part:
    """The arrays of one relation of a minibatch; see `SampledBatch`."""

    indptr: Tensor
    indices: Tensor
    edges_per_hop: Sequence[int]
    sources_per_hop: Sequence[int]
    targets_per_hop: Sequence[int]
    node: Tensor
    example: Tensor | None


_Stamp = tuple[tuple[int, int], tuple[int, int]]
_Layers = dict[Relation | None, tuple[_Stamp, dict[int, LayerGraph]]]
#: For each minibatch and relation: the stamp of its edges, and the layers that were made of them.
_layers: WeakKeyDictionary[SampledBatch | TypedBatch, _Layers] = WeakKeyDictionary()


def layer_graph(
    minibatch: SampledBatch | TypedBatch, layer: int, relation: Relation | None = None
) -> LayerGraph:
    """Returns a layer of a minibatch, the same object on every call; layer 1 is nearest the input.

    If the edges of the minibatch are changed, the layers are made again.

    Args:
        minibatch: the minibatch.
        layer: the number of the layer, from 1.
        relation: the relation whose edges are wanted; None if there is only one.

    Raises:
        KeyError: the minibatch has no such relation.
        TypeError: ``minibatch`` is no minibatch, or it has several relations.
        ValueError: there is no such layer, or the counts of the minibatch do not fit its arrays.
    """
    part = _part(minibatch, relation)
    stamp = _stamp(part.indptr), _stamp(part.indices)
    of_minibatch = _layers.setdefault(minibatch, {})
    known, made = of_minibatch.get(relation, (None, {}))
    if known != stamp:
        made = {}
        of_minibatch[relation] = (stamp, made)
    if layer not in made:
        made[layer] = _layer_graph(minibatch, part, layer, relation)
    return made[layer]


def layer_rows(minibatch: TypedBatch, layer: int, name: str) -> LayerRows:
    """Returns the nodes of a type that a layer of a minibatch computes.

    Raises:
        KeyError: the minibatch has no such type.
        ValueError: there is no such layer.
    """
    nodes = minibatch.nodes[minibatch.schema.type_number(name)]
    taken = LayerHops.of(num_sampled_layers(minibatch), layer)
    count = taken.targets(nodes.nodes_per_hop)
    return LayerRows(
        num_targets=count,
        num_sources=taken.sources(nodes.nodes_per_hop),
        node=dropout_node(nodes.node, nodes.example, count),
        key=_dropout_key(minibatch, layer, None if _is_plain(minibatch) else (name,)),
    )


def all_rows(minibatch: TypedBatch, name: str) -> LayerRows:
    """Returns all nodes of a type, which the layer below the lowest sampled one computes.

    Raises:
        KeyError: the minibatch has no such type.
    """
    nodes = minibatch.nodes[minibatch.schema.type_number(name)]
    count = nodes.node.numel()
    return LayerRows(
        num_targets=count,
        num_sources=count,
        node=dropout_node(nodes.node, nodes.example, count),
        key=_dropout_key(minibatch, 0, None if _is_plain(minibatch) else (name,)),
    )


def num_sampled_layers(minibatch: SampledBatch | TypedBatch) -> int | None:
    """Returns the number of layers that a minibatch was sampled for.

    Returns None for an induced subgraph, on which a model may have any number of layers.
    """
    if is_typed(minibatch):
        edges = minibatch.edges
        return num_layers(
            minibatch.nodes[0].nodes_per_hop, edges[0].edges_per_hop if len(edges) > 0 else None
        )
    assert is_sampled(minibatch)
    return num_layers(minibatch.nodes_per_hop, minibatch.edges_per_hop)


def _part(minibatch: Any, relation: Relation | None) -> _Part:
    if relation is not None and is_typed(minibatch):
        schema = minibatch.schema
        number = schema.relation_number(relation)
        sources, targets = (
            minibatch.nodes[ends[number]] for ends in (schema.source_types, schema.target_types)
        )
        edges = minibatch.edges[number]
        return _Part(
            edges.indptr,
            edges.indices,
            edges.edges_per_hop,
            sources.nodes_per_hop,
            targets.nodes_per_hop,
            targets.node,
            targets.example,
        )
    if not is_sampled(minibatch):
        if is_typed(minibatch):
            raise TypeError(
                f"the minibatch has the relations {list(minibatch.schema.relations)}, but the layer takes "
                "one; use pyg_batchgnn.nn.HeteroConv"
            )
        raise TypeError(
            f"expected a minibatch, got {type(minibatch).__name__}; a loader with export='native' yields "
            "minibatches"
        )
    nodes = minibatch.nodes_per_hop
    example: Tensor | None = getattr(minibatch, "example", None)
    return _Part(
        minibatch.indptr, minibatch.indices, minibatch.edges_per_hop, nodes, nodes, minibatch.node, example
    )


def _stamp(values: Tensor) -> tuple[int, int]:
    """Returns what changes when the tensor is replaced, or when torch writes to it."""
    return id(values), 0 if values.is_inference() else values._version


def _layer_graph(
    minibatch: SampledBatch | TypedBatch, part: _Part, layer: int, relation: Relation | None
) -> LayerGraph:
    if hasattr(minibatch, "begin_pass"):
        raise ValueError(
            "what this minibatch's layers read of halo nodes depends on caches: take their edges and inputs "
            "from HaloPass(minibatch), or call a native model, which does"
        )
    key = _dropout_key(minibatch, layer, None if _is_plain(minibatch) else relation)
    whole = None if layer == 1 else layer_graph(minibatch, 1, relation)
    taken = LayerHops.of(num_layers(part.targets_per_hop, part.edges_per_hop), layer)
    if taken.hops is None and whole is not None:
        return replace(whole, key=key, whole=whole)
    targets = taken.targets(part.targets_per_hop)
    edges = taken.edges(part.edges_per_hop, part.indices.numel())
    if part.indptr.numel() <= targets or part.indices.numel() < edges:
        raise ValueError(
            f"layer {layer} has {targets} targets and {edges} edges by the minibatch's counts, but indptr "
            f"has {part.indptr.numel()} entries and indices {part.indices.numel()}"
        )
    return LayerGraph(
        ops.InEdges(ops.prefix(part.indptr, targets + 1), ops.prefix(part.indices, edges)),
        num_sources=taken.sources(part.sources_per_hop),
        node=dropout_node(part.node, part.example, targets),
        key=key,
        whole=whole,
    )


def _is_plain(minibatch: SampledBatch | TypedBatch) -> bool:
    """Returns whether there is one node type and one relation, whose names are in no key."""
    return not is_typed(minibatch) or minibatch.schema.is_plain


def dropout_node(node: Tensor, example: Tensor | None, rows: int) -> Tensor:
    """Returns the ids of rows for dropout; those of two examples of a node differ."""
    return node[:rows] if example is None else ops.fold_key(node[:rows], example[:rows])


def _dropout_key(minibatch: SampledBatch | TypedBatch, layer: int, names: tuple[str, ...] | None) -> int:
    """Returns the key of the dropout of a layer, for a type or a relation that has names."""
    key = ops.dropout_key(minibatch.seed, minibatch.epoch, minibatch.key, layer)
    if names is None:
        return key
    return ops.to_signed(ops.fold_key(key & _WORD, _digest(names)))


_WORD = (1 << 64) - 1
_digest = functools.lru_cache(maxsize=4096)(ops.names_key)
