"""The arguments of a model's ``forward``, from a batch by name or as the user gave them."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from inspect import Signature
from typing import Any

from torch import Tensor
from torch_geometric.data import Data, HeteroData

from pyg_batchgnn.port.batches import (
    ArgumentTensor,
    Batch,
    are_counts,
    axis_by_size,
    hop_counts,
    is_batch,
    typed_prefixes,
)
from pyg_batchgnn.port.inputs import are_plain_edges, fits, refuse_batch, refuse_on_device
from pyg_batchgnn.port.prefixes import NodesByHop, PrefixEdges, known_prefixes, sorted_prefixes
from pyg_batchgnn.port.recording import BatchEdges, Count, Form, Nodes
from pyg_batchgnn.port.structure import SampledBatch, Structure, UnsampledGraph


@dataclass(frozen=True)
class BatchArgument:
    """A batch that is an argument itself: a copy of it holds the captured tensors and numbers."""

    batch: Batch


@dataclass(frozen=True)
class Bound:
    #: by name, with an `ArgumentTensor` for each tensor, and a `Count` for each number that follows
    #: from the sizes of the batch
    arguments: Mapping[str, Any]
    structure: Structure  # the nodes and edges that it is about
    #: by node type, the number of seeds if their rows alone are wanted, else None
    seeds: Mapping[str | None, int] | None
    by_name: bool = False  # the arguments are attributes of a batch
    left_out: tuple[str, ...] = ()  # values of edges that the batch holds, and that were not asked for


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
    given_now = {name: found[name] for name in every if name in found}
    return _as_typed(given_now) if any(map(_is_by_type, given_now.values())) else _as_given(given_now)


@functools.lru_cache(maxsize=256)
def _signature(forward: Callable[..., Any]) -> Signature:
    return inspect.signature(forward)


def _takes_batch(signature: Signature, names: list[str], args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    """Returns whether ``forward`` takes the batch itself: its first parameter is nothing in it."""
    first, *rest = names
    others = [one for one in rest[len(args) - 1 :] if _is_required(signature.parameters[one])]
    held = first in kwargs or Batch.holds(args[0], first, by_type=True)
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
    return Bound(found, batch.structure, batch.seeds, by_name=True, left_out=tuple(left_out))


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
    others = signature.bind(None, *args, **kwargs).arguments
    name = list(signature.parameters)[1]
    found = {
        key: _beside_batch(key, one, batch.structure, batch=batch) for key, one in list(others.items())[2:]
    }
    seeds = batch.seeds if rows == "seeds" else None
    return Bound({name: BatchArgument(batch), **found}, batch.structure, seeds)


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
    """Returns the arguments of a call with tensors. The first edges are those of the graph."""
    edges_name = next((name for name, one in arguments.items() if are_plain_edges(one)), None)
    x = arguments.get("x")
    if not isinstance(x, Tensor):
        tensors = (one for one in arguments.values() if isinstance(one, Tensor) and one.is_floating_point())
        x = next(tensors, None)
    if edges_name is None or x is None or x.dim() == 0:
        return None
    edge_index, nodes = arguments[edges_name], x.size(0)
    if not fits(edge_index, nodes, nodes):
        return None
    prefixes = known_prefixes(edge_index)
    if prefixes is None:
        prefixes = _counted(edge_index, nodes, list(arguments.values()))
    structure: Structure = UnsampledGraph({None: edge_index}, {None: nodes})
    if prefixes is not None and prefixes.num_nodes == nodes:
        structure = SampledBatch.of_one_type(prefixes)
    found: dict[str, Any] = {}
    for name, one in arguments.items():
        if name == edges_name:
            found[name] = ArgumentTensor(one, BatchEdges(None, structure.hops))
        elif isinstance(one, Tensor):
            found[name] = ArgumentTensor(one, axis_by_size(name, one, structure))
        else:
            found[name] = _numbers(name, one, structure)
    return Bound(found, structure, None)


def _counted(edge_index: Tensor, num_nodes: int, arguments: Sequence[Any]) -> PrefixEdges | None:
    """Returns the prefixes of edges by counts of sampled nodes and edges among the arguments."""
    counts = [one for one in arguments if are_counts(one) and one]
    for nodes in counts:
        for edges in counts:
            if len(nodes) == len(edges) + 1 and sum(nodes) == num_nodes and sum(edges) == edge_index.size(1):
                by_hop = NodesByHop(nodes)
                return sorted_prefixes(edge_index, by_hop, by_hop, edges)
    return None


def _numbers(name: str, value: Any, structure: Structure) -> Any:
    if not isinstance(structure, SampledBatch):
        return value
    edges = structure.relations[None]
    if name == "batch_size" and value == edges.nodes_per_hop[0]:
        return Count(int(value), Form.prefix("nodes", None, 0))
    if isinstance(value, list) and value == edges.nodes_per_hop and len(value) > 1:
        return hop_counts("nodes", None, value)
    if isinstance(value, list) and value == edges.edges_per_hop:
        return hop_counts("edges", None, value)
    return value


def _is_by_type(one: Any) -> bool:
    return isinstance(one, Mapping) and bool(one) and all(isinstance(name, str) for name in one)


def _are_counts(one: Mapping[Any, Any]) -> bool:
    return bool(one) and all(map(are_counts, one.values()))


def _as_typed(arguments: dict[str, Any]) -> Bound | None:
    rows = next((one for one in arguments.values() if _is_by_type(one)), None)
    dicts = (one for one in arguments.values() if isinstance(one, Mapping) and one)
    edges = next((one for one in dicts if all(isinstance(name, tuple) for name in one)), None)
    if rows is None or edges is None or not all(map(are_plain_edges, edges.values())):
        return None
    ends = {name for source, _, target in edges for name in (source, target)}
    if not ends <= set(rows) or not all(isinstance(one, Tensor) and one.dim() for one in rows.values()):
        return None
    sizes = {name: one.size(0) for name, one in rows.items()}
    if not all(fits(one, sizes[source], sizes[target]) for (source, _, target), one in edges.items()):
        return None
    counts = [one for one in arguments.values() if isinstance(one, Mapping) and _are_counts(one)]
    of_nodes = next((one for one in counts if set(one) == set(rows)), None)
    of_edges = next((one for one in counts if set(one) == set(edges)), None)
    structure: Structure = UnsampledGraph(edges, sizes)
    if of_nodes is not None and of_edges is not None:
        structure = typed_prefixes(edges, sizes, of_nodes, of_edges) or structure
    hops = structure.hops
    found: dict[str, Any] = {}
    for name, one in arguments.items():
        if one is rows:
            found[name] = {key: ArgumentTensor(value, Nodes(key, hops)) for key, value in one.items()}
        elif one is edges:
            found[name] = {key: ArgumentTensor(value, BatchEdges(key, hops)) for key, value in one.items()}
        elif isinstance(one, Mapping) and isinstance(structure, SampledBatch) and _are_counts(one):
            kind = "nodes" if one is of_nodes else "edges"
            known = one is of_nodes or one is of_edges
            found[name] = {key: hop_counts(kind, key, each) if known else each for key, each in one.items()}
        elif isinstance(one, Mapping):
            found[name] = _beside_batch(name, one, structure)
        else:
            found[name] = _beside_batch(name, one, structure) if isinstance(one, Tensor) else one
    return Bound(found, structure, None)
