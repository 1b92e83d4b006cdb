"""The arguments of a model's ``forward``, from a batch by name or as the user gave them."""

from __future__ import annotations

import copy
import functools
import inspect
import itertools
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from inspect import Signature
from types import BuiltinFunctionType, FunctionType
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData

from pyg_batchgnn import nn, ops
from pyg_batchgnn.port.modules import are_plain_edges, fits, refuse_batch, refuse_on_device, seeds_of
from pyg_batchgnn.port.recording import WHOLE, Axis, BatchEdges, Count, Edges, Form, Nodes, Refusal, SeedIds
from pyg_batchgnn.port.structure import (
    DrawnKey,
    InducedBatch,
    NodesByHop,
    PrefixEdges,
    SampledBatch,
    SampleKeys,
    Structure,
    UnsampledGraph,
    known_prefixes,
    prefix,
    sampled_batch,
)
from pyg_batchgnn.sample import ENDS
from pyg_batchgnn.types import Relation, SampledMinibatch


@dataclass(frozen=True)
class ArgumentTensor:
    """A tensor among the arguments of a model, and what its rows stand for (its axis)."""

    #: the tensor, rows read in place, or a function that makes it; None once only the axis matters
    value: Tensor | nn.RowView | Callable[[], Tensor] | None
    axis: Axis  # what its rows are

    def tensor(self) -> Tensor:
        if isinstance(self.value, Tensor):
            return self.value
        assert self.value is not None, "only its axis matters"
        return self.value.gather() if isinstance(self.value, nn.RowView) else self.value()

    @property
    def columns(self) -> tuple[int, ...] | None:
        """The shape of one row of nodes or edges; None for an edge index or another value."""
        by_row = isinstance(self.axis, (Nodes, Edges)) and isinstance(self.value, (Tensor, nn.RowView))
        return tuple(self.value.shape[1:]) if by_row else None  # type: ignore[union-attr]

    def stand_in(self, structure: Structure) -> Tensor:
        """Returns the tensor for tracing: one that nobody wrote if it is read in place."""
        if isinstance(self.value, torch.nn.Parameter):  # which is no input of the model
            return self.value.view_as(self.value)
        if type(self.value) is Tensor:
            return self.value
        if isinstance(self.value, (Tensor, nn.RowView)):
            return torch.empty(tuple(self.value.shape), dtype=self.value.dtype)
        assert isinstance(self.axis, BatchEdges)
        edges = prefix(structure, "edges", self.axis.name, structure.hops)
        return torch.empty((2, edges), dtype=torch.int64)


def hop_counts(kind: str, name: Any, counts: Sequence[int]) -> list[Count]:
    first = 0 if kind == "nodes" else 1
    return [Count(count, Form.of({(kind, name, hop): 1})) for hop, count in enumerate(counts, first)]


def axis_by_size(name: str, value: Tensor, structure: Structure, key: Any = None) -> Axis:
    """Returns what the rows of an argument stand for, by their number, the argument's name and the
    ``key`` of the dict that holds it."""
    hops, rows = structure.hops, value.size(0) if value.dim() else -1
    axes: list[Any] = [Edges(key, hops)]
    if not isinstance(key, tuple) and (key is not None or not name.startswith("edge")):
        axes = [Nodes(key, hops), *(axes if key is None else [])]
    try:
        return next((one for one in axes if rows == prefix(structure, one.kind, key, hops)), WHOLE)
    except KeyError:  # there is no such type or relation
        return WHOLE


def is_batch(one: Any) -> bool:
    if isinstance(one, HeteroData):
        return bool(one.edge_types)
    return isinstance(one, SampledMinibatch) or (isinstance(one, Data) and hasattr(one, "edge_index"))


@dataclass(eq=False)
class Batch:
    """A batch of PyG's form or a native minibatch, with its numbers of nodes and edges by hop."""

    source: Any
    structure: Structure
    seeds: Mapping[str | None, int]  # by node type, their number
    by_type: bool = False  # ``x`` and ``edge_index`` are dicts by type, even if there is one type alone

    @classmethod
    def of(cls, source: Any, needs_seeds: bool = True) -> Batch | None:
        """Returns a batch; None if its edges have an unknown form."""
        if isinstance(source, SampledMinibatch):
            if nn.has_halo(source):
                return None
            native = InducedBatch(source, DrawnKey()) if source.num_layers is None else _native(source)
            names = [None] if source.has_one_type else source.schema.node_types
            counts = [one.nodes_per_hop[0] for one in source.nodes]
            return cls(source, native, dict(zip(names, counts, strict=True)))
        of_nodes, of_edges = _stores(source)
        edges = {name: store.get("edge_index") for name, store in of_edges.items()}
        if not all(map(are_plain_edges, edges.values())):
            return None
        nodes = {name: store.num_nodes or 0 for name, store in of_nodes.items()}
        if isinstance(x := of_nodes[None].get("x") if None in of_nodes else None, Tensor):
            nodes[None] = x.size(0)
        per_hop = {name: store.get("num_sampled_nodes") for name, store in of_nodes.items()}
        edges_per_hop = {name: store.get("num_sampled_edges") for name, store in of_edges.items()}
        found = sampled_batch(edges, nodes, per_hop, edges_per_hop)
        structure = found or UnsampledGraph(edges, nodes)
        if isinstance(source, HeteroData):
            seeds = {name: int(store.get("batch_size", 0) or 0) for name, store in of_nodes.items()}
            if not any(seeds.values()) and found:
                seeds = {name: one.per_hop[0] for name, one in found.nodes.items()}
            return cls(source, structure, seeds)
        first = structure.counter(("nodes", None, 0))
        links = "edge_label_index" in source or any(name in source for name in _TRIPLETS)
        if links and source.get("batch_size") is None:  # what a `Batch` calls so is the number of its graphs
            count = first if needs_seeds else 0
        else:
            count = seeds_of(source, nodes[None]) if needs_seeds else 0
        return cls(source, UnsampledGraph(edges, nodes) if count > first else structure, {None: count})

    @property
    def ids(self) -> dict[str | None, Any]:
        """The original ids of the nodes by type, if the batch holds them."""
        if not isinstance(self.source, SampledMinibatch):
            return {name: store.get("n_id") for name, store in _stores(self.source)[0].items()}
        names = [None] if self.source.has_one_type else self.source.schema.node_types
        return {name: one.node for name, one in zip(names, self.source.nodes, strict=True)}

    @staticmethod
    def holds(source: Any, name: str, *, by_type: bool) -> bool:
        name = _by_type_name(source, name, by_type)
        if isinstance(source, HeteroData):
            stores = _stores_with(source, name.removesuffix("_dict"))
            return bool(stores) if name.endswith("_dict") else len(stores) == 1
        if isinstance(source, Data):
            return name in source
        # Properties of a minibatch copy rows, so that asking for them would cost as much.
        tables = (rows.tables for rows in getattr(source, "attributes", {}).values())
        held = {one for of_group in tables for one in of_group}
        return name.removesuffix("_dict") in held or name in _OF_MINIBATCHES

    def get(self, name: str) -> Any:
        name = _by_type_name(self.source, name, self.by_type)
        if isinstance(self.source, SampledMinibatch):
            return self._of_minibatch(name)
        if isinstance(self.source, Data):
            return self._value(name, getattr(self.source, name), None, self.source)
        inside = name.removesuffix("_dict")
        stores = _stores_with(self.source, inside)
        if inside == name:
            ((key, store),) = stores.items()
            return self._value(name, store[name], key, store)
        return {key: self._value(inside, store[inside], key, store) for key, store in stores.items()}

    def attribute_of(self, value: Tensor) -> Any:
        for store in getattr(self.source, "stores", ()):
            name = next((name for name, one in store.items() if one is value), None)
            if name is not None:
                return self._value(name, value, store._key, store)
        return None

    def attributes(self) -> dict[Any, Any]:
        """Returns all attributes as arguments by type and relation. An object that holds tensors
        becomes a dict of its attributes."""

        def of_store(key: Any, store: Any) -> dict[str, Any]:
            each = ((name, self._value(name, one, key, store)) for name, one in store.items())
            return {name: self._opened(name, one, key) for name, one in each}

        return {key: of_store(key, store) for key, store in _all_stores(self.source).items()}

    def _opened(self, name: str, value: Any, key: Any, depth: int = 0) -> Any:
        if isinstance(value, (ArgumentTensor, Count)):
            return value
        if depth > 6:
            raise Refusal(f"the batch holds a {type(value).__name__} in objects that hold each other")
        inside = attributes_of(value)
        value = value if inside is None else inside
        if isinstance(value, dict):
            return {one: self._opened(str(one), held, key, depth + 1) for one, held in value.items()}
        if isinstance(value, Tensor):
            return ArgumentTensor(value, axis_by_size(name, value, self.structure, key))
        return value

    def copied(self, attributes: Mapping[Any, Any]) -> Any:
        made = copy.copy(self.source)
        for key, store in _all_stores(made).items():
            for name, value in attributes[key].items():
                store[name] = _closed(store[name], value)
        return made

    def _value(self, name: str, value: Any, key: Any, store: Any) -> Any:
        if isinstance(value, Tensor):
            return ArgumentTensor(value, self._axis(name, value, key, store))
        sampled, hops = isinstance(self.structure, SampledBatch), self.structure.hops
        if sampled and name == "batch_size" and value == self.structure.counter(("nodes", key, 0)):
            return Count(int(value), Form.prefix("nodes", key, 0))
        if sampled and name == "num_nodes" and value == prefix(self.structure, "nodes", key, hops):
            return Count(int(value), Form.prefix("nodes", key, hops))
        if sampled and name in ("num_sampled_nodes", "num_sampled_edges") and isinstance(value, list):
            return hop_counts(name.removeprefix("num_sampled_"), key, value)
        return value

    def _axis(self, name: str, value: Tensor, key: Any, store: Any) -> Axis:
        hops = self.structure.hops
        if name == "edge_index":
            return BatchEdges(key, hops)
        if name in _TRIPLETS or (name == "edge_label_index" and value.dim() == 2):
            return SeedIds(key)
        if not value.dim() or name.startswith("edge_label"):
            return WHOLE
        if name in ("seed_time", "input_id"):
            seeds = not isinstance(key, tuple) and value.size(0) == self.structure.counter(("nodes", key, 0))
            return Nodes(key, 0) if seeds and value.dim() == 1 else WHOLE
        if not isinstance(key, tuple) and store.is_node_attr(name):
            return Nodes(key, hops)
        return Edges(key, hops) if not isinstance(key, str) and store.is_edge_attr(name) else WHOLE

    def _of_minibatch(self, name: str) -> Any:
        batch, hops = self.source, self.structure.hops
        if name == "edge_index_dict":
            edges = {one: batch.edges_of(one) for one in batch.schema.relations}
            makers = {name: partial(getattr, one, "edge_index") for name, one in edges.items()}
            return {one: ArgumentTensor(make, BatchEdges(one, hops)) for one, make in makers.items()}
        if name == "edge_index":
            return ArgumentTensor(lambda: batch.edge_index, BatchEdges(None, hops))
        if name == "edge_label_index":
            return ArgumentTensor(batch.links[0].index, SeedIds(batch.links[0].relation))
        if name == "batch_size":
            return self._value(name, batch.batch_size, None, None)
        if name.endswith("_dict"):
            return self._by_type(name.removesuffix("_dict"))
        if batch.has_one_type and name in getattr(batch, "block", {}):
            return self._rows(batch.attributes_of(batch.schema.node_types[0]), name, Nodes(None, hops))
        value = getattr(batch, name) if name in _OF_MINIBATCHES else batch.attribute(name)
        if not isinstance(value, Tensor):
            return value
        if name in ("n_id", "input_id", "seed_time"):
            return ArgumentTensor(value, Nodes(None, hops if name == "n_id" else 0))
        return ArgumentTensor(value, Edges(None, hops))

    def _by_type(self, name: str) -> dict[Any, ArgumentTensor]:
        found: dict[Any, ArgumentTensor] = {}
        for group, rows in self.source.attributes.items():
            if name in rows.tables:
                kind = Nodes if isinstance(group.name, str) else Edges
                found[group.name] = self._rows(rows, name, kind(group.name, self.structure.hops))
        return found

    @staticmethod
    def _rows(rows: Any, name: str, axis: Axis) -> ArgumentTensor:
        table = rows.tables[name]
        in_place = isinstance(table, Tensor) and table.dim() == 2 and not table.requires_grad
        if rows.row is not None and in_place:
            return ArgumentTensor(nn.RowView(table, rows.row), axis)
        return ArgumentTensor(table if rows.row is None else rows.gather(name), axis)


_OF_MINIBATCHES = {"edge_index", "edge_index_dict", "edge_label_index", "batch_size", "n_id", "input_id"}
_OF_MINIBATCHES |= {"seed_time"}


def attributes_of(value: Any) -> dict[str, Any] | None:
    """Returns the attributes of an object by name; None for modules, tensors and functions. Raises
    Refusal if it may have others."""
    if isinstance(value, (type, Tensor, torch.nn.Module, FunctionType, BuiltinFunctionType)):
        return None
    home, slots = type(value).__module__.partition(".")[0], getattr(type(value), "__slots__", None)
    if slots and home not in sys.stdlib_module_names:
        raise Refusal(f"the batch holds a {type(value).__name__}, whose class has __slots__")
    inside = getattr(value, "__dict__", None)
    return inside if inside and isinstance(inside, dict) else None


def _closed(source: Any, attributes: Any) -> Any:
    inside = attributes_of(source)
    if inside is not None:
        made = copy.copy(source)
        vars(made).update(_closed(inside, attributes))
        return made
    if isinstance(source, dict):
        return {name: _closed(one, attributes[name]) for name, one in source.items()}
    return attributes


_TRIPLETS = ("src_index", "dst_pos_index", "dst_neg_index")


def _by_type_name(source: Any, name: str, by_type: bool) -> str:
    """Returns ``name``, or for a batch of several types PyG's name of the dict by type: a model
    that `to_hetero` made takes ``x``, where the batch has ``x_dict``."""
    typed = isinstance(source, SampledMinibatch) and not source.has_one_type
    if isinstance(source, HeteroData):
        typed = by_type or len(source.node_types) > 1 or len(source.edge_types) > 1
    return f"{name}_dict" if typed and name in ("x", "edge_index", "edge_attr", "edge_weight") else name


def _stores_with(source: HeteroData, name: str) -> dict[Any, Any]:
    return {key: store for key, store in _all_stores(source).items() if name in store}


def _stores(source: Data | HeteroData) -> tuple[dict[Any, Any], dict[Any, Any]]:
    """Returns the stores of nodes and those of edges, by name; None is that of the only type."""
    both = source.node_stores, source.edge_stores
    of_nodes, of_edges = ({store._key: store for store in of_kind} for of_kind in both)
    return of_nodes, of_edges


def _all_stores(source: Data | HeteroData) -> dict[Any, Any]:
    of_nodes, of_edges = _stores(source)
    return {**of_nodes, **of_edges}


def _native(batch: SampledMinibatch) -> SampledBatch:
    schema, one_type = batch.schema, batch.has_one_type
    keys = SampleKeys(batch.seed, batch.epoch, batch.key)
    nodes: dict[str | None, NodesByHop] = {}
    for name, of_type in zip(schema.node_types, batch.nodes, strict=True):
        ids = nn.dropout_node(of_type.node, of_type.example)
        nodes[None if one_type else name] = NodesByHop(of_type.nodes_per_hop, ids)
    relations: dict[Relation | None, PrefixEdges] = {}
    for relation, edges in zip(schema.relations, batch.edges, strict=True):
        source, _, target = (None, None, None) if one_type else relation
        own = keys if schema.is_plain else SampleKeys(batch.seed, batch.epoch, batch.key, relation)
        in_edges = ops.InEdges(edges.indptr, edges.indices)
        made = PrefixEdges(in_edges, nodes[source], nodes[target], edges.edges_per_hop, own)
        relations[None if one_type else relation] = made
    return SampledBatch(relations, nodes, batch.num_layers or 0, keys, DrawnKey())


@dataclass(frozen=True)
class Bound:
    #: by name: an `ArgumentTensor` for a tensor, a `Count` for a number that the sizes of the batch
    #: tell, and a `Batch` for a batch that is an argument itself
    arguments: Mapping[str, Any]
    structure: Structure  # the nodes and edges that it is about
    #: by node type, the number of seeds if their rows alone are wanted, else None
    seeds: Mapping[str | None, int] | None
    by_name: bool = False  # the arguments are attributes of a batch
    left_out: tuple[str, ...] = ()  # values of edges that the batch holds, and that were not asked for
    ids: Mapping[str | None, Any] = field(default_factory=dict)  # by type, those of the nodes, if known


def bind(
    forward: Any, args: tuple, kwargs: dict, *, rows: str | None, names: Sequence[str] | None, by_type: bool
) -> Bound | None:
    """Returns the arguments of a call of ``forward``; None if nodes and edges of the call are
    unknown. Raises TypeError if the batch lacks an argument.

    ``rows``: "seeds" if a ``forward`` that takes the batch itself shall return rows of the seeds.
    ``names``: the parameters that are taken from a batch; None for all. ``by_type``: ``x`` and
    ``edge_index`` are dicts even for one type.
    """
    signature = _signature(forward)
    every = list(signature.parameters)[1:]
    if not args and every and every[0] not in ("x", "x_dict") and is_batch(kwargs.get(every[0])):
        args, kwargs = (kwargs[every[0]],), {name: one for name, one in kwargs.items() if name != every[0]}
    if args and every and is_batch(args[0]):
        if signature.parameters[every[0]].kind is _SEVERAL:
            return None
        if _takes_batch(signature, every, args, kwargs):
            return _of_whole_batch(signature, args, kwargs, rows)
        if len(args) > 1:
            refuse_batch(args[0], args[1])
        batch = Batch.of(args[0])
        if batch is None:
            refuse_on_device(args[0])
            return None
        batch.by_type = by_type
        return _by_name(signature, every, names or every, batch, kwargs)
    try:
        found = _named(signature, args, kwargs)
    except TypeError as error:
        required = [one for one in every if _is_required(signature.parameters[one])]
        if len(args) != 1 or len(required) < 2 or not isinstance(args[0], (Tensor, Data, HeteroData)):
            return None
        raise TypeError(
            f"expected a batch with {' and '.join(required)}, or model({', '.join(required)}), got "
            f"{type(args[0]).__name__} ({error})"
        ) from None
    return None if found is None else _as_given(found)


def _named(signature: Signature, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any] | None:
    """Returns the arguments of a call by name; None if ``*args`` takes some, which have none."""
    found: dict[str, Any] = {}
    _, *given = signature.bind(None, *args, **kwargs).arguments.items()
    for name, one in given:
        kind = signature.parameters[name].kind
        if kind is _SEVERAL:
            return None
        found.update(one if kind is _KEYWORDS else {name: one})
    return found


_signature = functools.lru_cache(maxsize=256)(inspect.signature)


def _takes_batch(signature: Signature, names: list[str], args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    first, *rest = names
    others = [one for one in rest[len(args) - 1 :] if _is_required(signature.parameters[one])]
    alone = names == ["batch"]  # not the numbers of the seeds that disjoint batches call so
    held = first in kwargs or (not alone and Batch.holds(args[0], first, by_type=True))
    return not held and all(one in kwargs for one in others)


def _is_required(parameter: inspect.Parameter) -> bool:
    named = parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    return named and parameter.default is parameter.empty


def _by_name(
    signature: Signature, names: list[str], bound: Sequence[str], batch: Batch, kwargs: dict[str, Any]
) -> Bound:
    found: dict[str, Any] = {}
    holds = functools.partial(Batch.holds, batch.source, by_type=batch.by_type)
    required = {name for name in names if _is_required(signature.parameters[name])}
    lacking = [name for name in names if name in required and name not in kwargs and not holds(name)]
    if lacking:
        given_so = ", ".join(f"{name}=..." for name in lacking)
        raise TypeError(
            f"forward takes {' and '.join(lacking)}, but the batch has no attribute of this name; give it: "
            f"model(batch, {given_so})"
        )
    kinds = {name: signature.parameters[name].kind for name in names}
    single = [name for name in names if kinds[name] not in (_SEVERAL, _KEYWORDS)]
    for name in (*single, *(one for one in kwargs if one not in single)):
        if name in kwargs:
            found[name] = _beside_batch(name, kwargs[name], batch.structure, batch=batch)
            continue
        wanted = name in required or (name in bound and name not in _ONLY_IF_GIVEN)
        if wanted and holds(name):
            found[name] = batch.get(name)
    unknown = [name for name in kwargs if name not in single]
    if unknown and _KEYWORDS not in kinds.values():
        raise TypeError(f"forward takes no argument {unknown[0]!r}; it takes {', '.join(names)}")
    left_out = [one for one in _ONLY_IF_GIVEN if one in names and one not in found and holds(one)]
    return Bound(found, batch.structure, batch.seeds, by_name=True, left_out=tuple(left_out), ids=batch.ids)


_SEVERAL, _KEYWORDS = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD
#: Values of edges that a batch holds are used only if they are given.
_ONLY_IF_GIVEN = ("edge_weight", "edge_attr", "edge_weight_dict", "edge_attr_dict")


def _of_whole_batch(
    signature: Signature, args: tuple[Any, ...], kwargs: dict[str, Any], rows: str | None
) -> Bound | None:
    if not isinstance(args[0], (Data, HeteroData)):
        return None
    batch = Batch.of(args[0], needs_seeds=rows == "seeds")
    if batch is None:
        return None
    given = _named(signature, args, kwargs)
    if given is None:
        return None
    (name, _), *others = given.items()
    found = {key: _beside_batch(key, one, batch.structure, batch=batch) for key, one in others}
    seeds = batch.seeds if rows == "seeds" else None
    return Bound({name: batch, **found}, batch.structure, seeds, ids=batch.ids)


def _beside_batch(
    name: str, tree: Any, structure: Structure, key: Any = None, batch: Batch | None = None
) -> Any:
    """Returns an argument that is given beside a batch. ``key``: of the dict that holds it. A
    tensor of ``batch`` is treated as that attribute."""
    if isinstance(tree, Tensor):
        known = None if batch is None else batch.attribute_of(tree)
        return ArgumentTensor(tree, axis_by_size(name, tree, structure, key)) if known is None else known
    if isinstance(tree, (list, tuple)):
        return type(tree)(_beside_batch(name, one, structure, batch=batch) for one in tree)
    if isinstance(tree, Mapping):
        return {key: _beside_batch(name, one, structure, key, batch) for key, one in tree.items()}
    return tree


def _as_given(arguments: dict[str, Any]) -> Bound | None:
    """Returns the arguments of a call without a batch. The first edge index is the graph."""
    values = list(arguments.values())
    by_type = any(map(_is_by_type, values))
    if by_type:
        dicts = (one for one in values if isinstance(one, Mapping) and one)
        edges = next((one for one in dicts if all(isinstance(name, tuple) for name in one)), {})
        rows: Mapping[Any, Any] = next(filter(_is_by_type, values))
    else:
        floats = (one for one in values if isinstance(one, Tensor) and one.is_floating_point())
        x = arguments.get("x")
        rows = {None: x if isinstance(x, Tensor) else next(floats, None)}
        edges = {None: next(filter(are_plain_edges, values), None)}
    sizes = {name: one.size(0) for name, one in rows.items() if isinstance(one, Tensor) and one.dim()}
    if not edges or len(sizes) < len(rows) or not all(_joins(*one, sizes) for one in edges.items()):
        return None
    structure = _structure(edges, sizes, values)
    sampled = structure if isinstance(structure, SampledBatch) else None

    def described(name: str, one: Any, key: Any = None) -> Any:
        if isinstance(one, Mapping) and by_type:
            return {each: described(name, value, each) for each, value in one.items()}
        if isinstance(one, Tensor):
            if edges.get(key) is one:
                return ArgumentTensor(one, BatchEdges(key, structure.hops))
            return ArgumentTensor(one, axis_by_size(name, one, structure, key))
        if sampled and isinstance(one, list) and key in sampled.nodes and one == sampled.nodes[key].per_hop:
            return hop_counts("nodes", key, one)
        if sampled and isinstance(one, list) and key in sampled.relations:
            return hop_counts("edges", key, one) if one == sampled.relations[key].edges_per_hop else one
        seeds = sampled.nodes[None].per_hop[0] if sampled and None in sampled.nodes else -1
        return Count(one, Form.prefix("nodes", None, 0)) if name == "batch_size" and one == seeds else one

    made = {name: described(name, one) for name, one in arguments.items()}
    ids: dict[Any, Any] = {name: one.node for name, one in sampled.nodes.items()} if sampled else {}
    for relation, one in edges.items() if by_type else ():
        ids.update(zip(relation[::2], ENDS.get(one, ()), strict=False))
    return Bound(made, structure, None, ids=ids)


def _is_by_type(one: Any) -> bool:
    return isinstance(one, Mapping) and bool(one) and all(isinstance(name, str) for name in one)


def _joins(relation: Any, edge_index: Any, sizes: Mapping[Any, int]) -> bool:
    source, _, target = relation or (None, None, None)
    known = source in sizes and target in sizes and are_plain_edges(edge_index)
    return known and fits(edge_index, sizes[source], sizes[target])


def _structure(edges: Mapping[Any, Tensor], sizes: Mapping[Any, int], arguments: list[Any]) -> Structure:
    known = known_prefixes(edges[None]) if None in edges else None
    if known is not None:
        found = [SampledBatch.of_one_type(known)] if sum(known.of_targets.per_hop) == sizes[None] else []
    else:
        by_type: list[Any] = [one for one in arguments if isinstance(one, Mapping)]
        counts = [{None: one} for one in arguments] if None in edges else by_type
        of_nodes = [one for one in counts if one.keys() == sizes.keys()]
        pairs = itertools.product(of_nodes, [one for one in counts if one.keys() == edges.keys()])
        found = [one for pair in pairs if (one := sampled_batch(edges, sizes, *pair)) is not None]
    return found[0] if found else UnsampledGraph(edges, sizes)
