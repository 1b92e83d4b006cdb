"""The arguments of a model's ``forward``, from a batch by name or as the user gave them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from pyg_batchgnn import nn
from pyg_batchgnn.port.inputs import are_plain_edges, refuse_batch, seeds_of
from pyg_batchgnn.port.prefixes import (
    PrefixEdges,
    known_prefixes,
    minibatch_prefixes,
    sorted_prefixes,
)
from pyg_batchgnn.port.structure import DrawnKey, InducedBatch, SampledBatch, Structure, WholeGraph
from pyg_batchgnn.port.values import WHOLE, Axis, Count, EdgeIndex, Edges, Form, Nodes, form_of
from pyg_batchgnn.types import SampledMinibatch


@dataclass(frozen=True)
class Given:
    """A tensor that is an argument.

    Attributes:
        axis: what its rows are.
        value: the tensor; rows of a table that are read in place; or a function that makes it.
        kind: what a graph depends on of it: its dtype, the sizes of its rows, and the like.
    """

    axis: Axis
    value: Tensor | nn.RowView | Callable[[], Tensor]
    kind: tuple[Any, ...]

    def tensor(self) -> Tensor:
        if isinstance(self.value, Tensor):
            return self.value
        return self.value.gather() if isinstance(self.value, nn.RowView) else self.value()


@dataclass(frozen=True)
class Bound:
    """The arguments of a call of ``forward``.

    Attributes:
        arguments: by name, with a `Given` for each tensor and a `Count` for each number that
            follows from the sizes of the batch.
        structure: the nodes and edges that it is about.
        seeds: the number of seeds if the rows of the seeds alone are wanted, else None.
    """

    arguments: Mapping[str, Any]
    structure: Structure
    seeds: int | None


def is_batch(one: Any) -> bool:
    """Returns whether something is a batch of one node type, in PyG's form or a native one."""
    return nn.is_sampled(one) or (isinstance(one, Data) and hasattr(one, "edge_index"))


def bind(
    forward: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    rows: str | None,
    names: tuple[str, ...] | None,
) -> Bound | None:
    """Returns the arguments of a call, or None for a call whose nodes and edges are not known.

    Args:
        forward: the model's own, as a function.
        args, kwargs: what the model was called with, without the model itself.
        rows: "seeds" if a ``forward`` that takes a batch is asked for the rows of the seeds.
        names: the parameters that a batch gives values to; all where None.

    Raises:
        TypeError: an argument is neither given nor held by the batch.
    """
    signature = inspect.signature(forward)
    every = list(signature.parameters)[1:]
    if len(args) > 1 and is_batch(args[0]) and not _takes_batch(signature, every, args[0], kwargs):
        refuse_batch(args[0], args[1])
    if len(args) == 1 and is_batch(args[0]) and every:
        held = _Batch.of(args[0])
        if held is None:
            return None
        if _takes_batch(signature, every, args[0], kwargs):
            return _of_whole_batch(every[0], held, kwargs, rows) if isinstance(args[0], Data) else None
        return _by_name(signature, every, names or every, held, kwargs)
    try:
        given = signature.bind(None, *args, **kwargs).arguments
    except TypeError as error:
        required = [one for one in every if _is_required(signature.parameters[one])]
        if len(args) != 1 or len(required) < 2:
            return None
        raise TypeError(
            f"expected a batch with {' and '.join(required)}, or model({', '.join(required)}), got "
            f"{type(args[0]).__name__} ({error})"
        ) from None
    return _as_given({name: given[name] for name in every if name in given})


def _takes_batch(signature: inspect.Signature, names: list[str], batch: Any, kwargs: dict[str, Any]) -> bool:
    """Returns whether ``forward`` takes the batch itself: its first parameter is nothing in it."""
    first, *rest = names
    required = [one for one in rest if _is_required(signature.parameters[one]) and one not in kwargs]
    return not _has(batch, first) and not required


def _is_required(parameter: inspect.Parameter) -> bool:
    named = parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    return named and parameter.default is parameter.empty


def _has(batch: Any, name: str) -> bool:
    if isinstance(batch, Data):
        return name in batch
    # Properties of a minibatch copy rows, so that asking whether they are there costs as much.
    held = {*getattr(batch, "block", ()), *(name for rows in getattr(batch, "attributes", {}).values() for name in rows.tables)}
    return name in held or name in _OF_MINIBATCHES and getattr(batch, name) is not None


_OF_MINIBATCHES = ("edge_index", "batch_size", "n_id", "input_id", "seed_time", "num_nodes", "num_edges")


class _Batch:
    """A batch, and what is known of its nodes and edges."""

    def __init__(self, batch: Any, structure: Structure, prefixes: PrefixEdges | None, seeds: int) -> None:
        self.batch, self.structure, self.prefixes, self.seeds = batch, structure, prefixes, seeds

    @classmethod
    def of(cls, batch: Any) -> _Batch | None:
        if nn.is_sampled(batch):
            if nn.has_halo(batch):
                return None
            prefixes = minibatch_prefixes(batch)
            structure: Structure = InducedBatch(batch, DrawnKey())
            if prefixes is not None:
                structure = SampledBatch(prefixes, lambda: batch.edge_index, DrawnKey())
            return cls(batch, structure, prefixes, batch.batch_size)
        x, edge_index = getattr(batch, "x", None), batch.edge_index
        if not are_plain_edges(edge_index):
            return None
        nodes = x.size(0) if isinstance(x, Tensor) else batch.num_nodes
        seeds = seeds_of(batch, nodes)
        counts = getattr(batch, "num_sampled_nodes", None), getattr(batch, "num_sampled_edges", None)
        prefixes = prefixes_of(edge_index, nodes, *counts)
        if prefixes is None or seeds > prefixes.nodes_per_hop[0]:
            return cls(batch, WholeGraph(edge_index, nodes), None, seeds)
        return cls(batch, SampledBatch(prefixes, lambda: edge_index, DrawnKey()), prefixes, seeds)

    def get(self, name: str) -> Any:
        """Returns an attribute as an argument."""
        if isinstance(self.batch, SampledMinibatch):
            return self._of_minibatch(name)
        value = getattr(self.batch, name)
        if isinstance(value, Tensor):
            return given(value, self._axis(name, value))
        return self._number(name, value)

    def _axis(self, name: str, value: Tensor) -> Axis:
        hops = self.structure.hops
        if name == "edge_index":
            return EdgeIndex(None, hops)
        if value.dim() and self.batch.is_node_attr(name):
            return Nodes(None, hops)
        return Edges(None, hops) if value.dim() and self.batch.is_edge_attr(name) else WHOLE

    def _number(self, name: str, value: Any) -> Any:
        if name == "batch_size" and self.prefixes is not None and value == self.prefixes.nodes_per_hop[0]:
            return Count(int(value), Form.prefix("nodes", None, 0))
        if self.prefixes is not None and name == "num_sampled_nodes":
            return [_hop("nodes", hop, count) for hop, count in enumerate(value)]
        if self.prefixes is not None and name == "num_sampled_edges":
            return [_hop("edges", hop, count) for hop, count in enumerate(value, 1)]
        return value

    def _of_minibatch(self, name: str) -> Any:
        batch, hops = self.batch, self.structure.hops
        if name == "edge_index":
            kind = ("edges", torch.int64)
            return Given(EdgeIndex(None, hops), lambda: batch.edge_index, kind)
        if name in ("batch_size",):
            return self._number(name, batch.batch_size)
        row = getattr(batch, "row", None)
        table = getattr(batch, "block", {}).get(name)
        if table is not None and table.dim() == 2 and row is not None and not table.requires_grad:
            return given(nn.RowView(table, row), Nodes(None, hops))
        value = getattr(batch, name) if hasattr(batch, name) else batch.attribute(name)
        if not isinstance(value, Tensor):
            return value
        of_nodes = value.dim() and value.size(0) == batch.num_nodes and not name.startswith("edge")
        of_edges = value.dim() and value.size(0) == batch.num_edges and name.startswith("edge")
        axis = Nodes(None, hops) if of_nodes else Edges(None, hops) if of_edges else WHOLE
        return given(value, axis)


def _hop(kind: str, hop: int, count: Any) -> Any:
    return Count(int(count), Form.of({(kind, None, hop): 1}))


def prefixes_of(edge_index: Tensor, num_nodes: int, nodes: Any, edges: Any) -> PrefixEdges | None:
    """Returns the prefixes of a batch by its counts of sampled nodes and edges; None if these do
    not fit."""
    if not isinstance(nodes, list) or not isinstance(edges, list):
        return None
    if not all(type(one) is int for one in (*nodes, *edges)) or sum(nodes) != num_nodes:
        return None
    known = known_prefixes(edge_index)
    if known is not None and known.nodes_per_hop == nodes and known.edges_per_hop == edges:
        return known
    return sorted_prefixes(edge_index, nodes, edges)


def given(value: Any, axis: Axis) -> Given:
    kind = (type(value), value.dtype, tuple(value.shape[1:]), value.requires_grad)
    if isinstance(axis, EdgeIndex):
        kind = ("edges", value.dtype)  # type: ignore[assignment]
    elif isinstance(value, nn.RowView):
        kind = (Tensor, value.dtype, tuple(value.shape[1:]), False)
    elif value.dim() == 0:
        kind = (*kind, "scalar")  # type: ignore[assignment]
    return Given(axis, value, kind)


def _by_name(
    signature: inspect.Signature,
    names: list[str],
    bound: Sequence[str],
    held: _Batch,
    kwargs: dict[str, Any],
) -> Bound:
    found: dict[str, Any] = {}
    for name in names:
        parameter = signature.parameters[name]
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        if name in kwargs:
            found[name] = _with_axis(name, kwargs[name], held.structure)
        elif _is_required(parameter) or (name in bound and name not in ("edge_weight", "edge_attr")):
            if _has(held.batch, name):
                found[name] = held.get(name)
            elif _is_required(parameter):
                raise TypeError(
                    f"forward takes {name}, but the batch has no attribute of this name; give it: "
                    f"model(batch, {name}=...)"
                )
    unknown = [name for name in kwargs if name not in names]
    if unknown:
        raise TypeError(f"forward takes no argument {unknown[0]!r}; it takes {', '.join(names)}")
    return Bound(found, held.structure, held.seeds)


def _of_whole_batch(name: str, held: _Batch, kwargs: dict[str, Any], rows: str | None) -> Bound:
    """Returns the arguments of a ``forward`` that takes the batch itself."""
    others = {key: _with_axis(key, one, held.structure) for key, one in kwargs.items()}
    return Bound({name: BatchArgument(held), **others}, held.structure, held.seeds if rows == "seeds" else None)


@dataclass(frozen=True)
class BatchArgument:
    """A batch that is an argument itself: a copy of it holds the recorded tensors and numbers."""

    held: _Batch

    def attributes(self) -> dict[str, Any]:
        """Returns its attributes as arguments."""
        return {name: self.held.get(name) for name in self.held.batch.keys()}  # noqa: SIM118 (no mapping)


def _with_axis(name: str, tree: Any, structure: Structure) -> Any:
    """Returns an argument that was given beside a batch."""
    if isinstance(tree, Tensor):
        return given(tree, _axis_by_size(name, tree, structure))
    if isinstance(tree, (list, tuple)):
        return type(tree)(_with_axis(name, one, structure) for one in tree)
    if isinstance(tree, Mapping):
        return {key: _with_axis(name, one, structure) for key, one in tree.items()}
    return tree


def _axis_by_size(name: str, value: Tensor, structure: Structure) -> Axis:
    """Returns what the rows of a tensor are, by their number and the name of the argument."""
    hops = structure.hops
    nodes, edges = Nodes(None, hops), Edges(None, hops)
    rows = value.size(0) if value.dim() else -1
    sizes = {axis: form.value(structure.counter) for axis in (nodes, edges) if (form := form_of(axis))}
    if rows == sizes[edges] and (rows != sizes[nodes] or name.startswith("edge")):
        return edges
    return nodes if rows == sizes[nodes] and not name.startswith("edge") else WHOLE


def _as_given(arguments: dict[str, Any]) -> Bound | None:
    """Returns the arguments of a call with tensors, whose first edges are those of the graph."""
    edges_name = next((name for name, one in arguments.items() if are_plain_edges(one)), None)
    x = arguments.get("x")
    if not isinstance(x, Tensor):
        x = next((one for one in arguments.values() if isinstance(one, Tensor) and one.is_floating_point()), None)
    if edges_name is None or x is None or x.dim() == 0:
        return None
    edge_index, nodes = arguments[edges_name], x.size(0)
    prefixes = known_prefixes(edge_index)
    structure: Structure = WholeGraph(edge_index, nodes)
    if prefixes is not None and prefixes.num_nodes == nodes:
        structure = SampledBatch(prefixes, lambda: edge_index, DrawnKey())
    else:
        prefixes = None
    found: dict[str, Any] = {}
    for name, one in arguments.items():
        if name == edges_name:
            found[name] = given(one, EdgeIndex(None, structure.hops))
        elif isinstance(one, Tensor):
            found[name] = given(one, _axis_by_size(name, one, structure))
        else:
            found[name] = _numbers(name, one, prefixes)
    return Bound(found, structure, None)


def _numbers(name: str, value: Any, prefixes: PrefixEdges | None) -> Any:
    if prefixes is None:
        return value
    if name == "batch_size" and value == prefixes.nodes_per_hop[0]:
        return Count(int(value), Form.prefix("nodes", None, 0))
    if isinstance(value, list) and value == prefixes.nodes_per_hop and len(value) > 1:
        return [_hop("nodes", hop, count) for hop, count in enumerate(value)]
    if isinstance(value, list) and value == prefixes.edges_per_hop:
        return [_hop("edges", hop, count) for hop, count in enumerate(value, 1)]
    return value
