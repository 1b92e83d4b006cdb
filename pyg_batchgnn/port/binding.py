"""The arguments of a model's ``forward``, from a batch by name or as the user gave them."""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from inspect import Signature
from typing import Any

from torch import Tensor
from torch_geometric.data import Data, HeteroData

from pyg_batchgnn.port.batches import ArgumentTensor, Batch, axis_by_size, hop_counts, is_batch
from pyg_batchgnn.port.modules import are_plain_edges, fits, refuse_batch, refuse_on_device
from pyg_batchgnn.port.recording import BatchEdges, Count, Form
from pyg_batchgnn.port.structure import SampledBatch, Structure, UnsampledGraph, known_prefixes, sampled_batch


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
    """Returns the arguments of a call of ``forward``; None if its nodes and edges are not known.

    ``rows``: "seeds" if a ``forward`` that takes a batch is asked for the rows of the seeds.
    ``names``: the parameters that a batch gives values to; all where None. ``by_type``: ``x`` and
    ``edge_index`` are always dicts. Raises TypeError if the batch lacks an argument.
    """
    signature = _signature(forward)
    every = list(signature.parameters)[1:]
    if not args and every and every[0] not in ("x", "x_dict") and is_batch(kwargs.get(every[0])):
        args, kwargs = (kwargs[every[0]],), {name: one for name, one in kwargs.items() if name != every[0]}
    if args and every and is_batch(args[0]):
        if signature.parameters[every[0]].kind is inspect.Parameter.VAR_POSITIONAL:
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
        found = signature.bind(None, *args, **kwargs).arguments
    except TypeError as error:
        required = [one for one in every if _is_required(signature.parameters[one])]
        if len(args) != 1 or len(required) < 2 or not isinstance(args[0], (Tensor, Data, HeteroData)):
            return None
        raise TypeError(
            f"expected a batch with {' and '.join(required)}, or model({', '.join(required)}), got "
            f"{type(args[0]).__name__} ({error})"
        ) from None
    return _as_given({name: found[name] for name in every if name in found})


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
    for name in names:
        parameter = signature.parameters[name]
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        if name in kwargs:
            found[name] = _beside_batch(name, kwargs[name], batch.structure, batch=batch)
            continue
        wanted = name in required or (name in bound and name not in _ONLY_IF_GIVEN)
        if wanted and holds(name):
            found[name] = batch.get(name)
    unknown = [name for name in kwargs if name not in names]
    if unknown:
        raise TypeError(f"forward takes no argument {unknown[0]!r}; it takes {', '.join(names)}")
    left_out = [one for one in _ONLY_IF_GIVEN if one in names and one not in found and holds(one)]
    return Bound(found, batch.structure, batch.seeds, by_name=True, left_out=tuple(left_out), ids=batch.ids)


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
    _, (name, _), *others = signature.bind(None, *args, **kwargs).arguments.items()
    found = {key: _beside_batch(key, one, batch.structure, batch=batch) for key, one in others}
    seeds = batch.seeds if rows == "seeds" else None
    return Bound({name: batch, **found}, batch.structure, seeds, ids=batch.ids)


def _beside_batch(
    name: str, tree: Any, structure: Structure, key: Any = None, batch: Batch | None = None
) -> Any:
    """Returns an argument beside a batch. ``key``: of the dict that it is in. A tensor of the
    ``batch`` itself is the attribute that it is."""
    if isinstance(tree, Tensor):
        known = None if batch is None else batch.attribute_of(tree)
        return ArgumentTensor(tree, axis_by_size(name, tree, structure, key)) if known is None else known
    if isinstance(tree, (list, tuple)):
        return type(tree)(_beside_batch(name, one, structure, batch=batch) for one in tree)
    if isinstance(tree, Mapping):
        return {key: _beside_batch(name, one, structure, key, batch) for key, one in tree.items()}
    return tree


def _as_given(arguments: dict[str, Any]) -> Bound | None:
    """Returns the arguments of a call with tensors or dicts. The first edges are the graph's."""
    by_type = any(map(_is_by_type, arguments.values()))
    rows, edges = (_typed_graph if by_type else _plain_graph)(list(arguments.values()), arguments.get("x"))
    sizes = {name: one.size(0) for name, one in rows.items() if isinstance(one, Tensor) and one.dim()}
    if not edges or len(sizes) < len(rows) or not all(_joins(*one, sizes) for one in edges.items()):
        return None
    structure = _structure(edges, sizes, list(arguments.values()))
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
    ids = {name: one.node for name, one in sampled.nodes.items()} if sampled else {}
    return Bound(made, structure, None, ids=ids)


def _is_by_type(one: Any) -> bool:
    return isinstance(one, Mapping) and bool(one) and all(isinstance(name, str) for name in one)


def _plain_graph(arguments: list[Any], x: Any) -> tuple[dict[Any, Any], dict[Any, Any]]:
    if not isinstance(x, Tensor):
        tensors = (one for one in arguments if isinstance(one, Tensor) and one.is_floating_point())
        x = next(tensors, None)
    return {None: x}, {None: next((one for one in arguments if are_plain_edges(one)), None)}


def _typed_graph(arguments: list[Any], _: Any) -> tuple[Mapping[Any, Any], Mapping[Any, Any]]:
    dicts = [one for one in arguments if isinstance(one, Mapping) and one]
    by_relation = (one for one in dicts if all(isinstance(name, tuple) for name in one))
    return next(filter(_is_by_type, dicts)), next(by_relation, {})


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
