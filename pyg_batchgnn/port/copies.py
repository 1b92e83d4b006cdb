"""Nodes that a batch holds several times, and the rows that their copies share.

Disjoint samples copy a node for each seed that reaches it. What a model computes row by row from
attributes of the node alone is the same for all copies. It is computed for each distinct node once,
and spread where copies begin to differ.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pyg_batchgnn import nn, ops
from pyg_batchgnn.port import rules
from pyg_batchgnn.port.program import is_dropout, module_of, rate_of
from pyg_batchgnn.port.recording import Call, Fixed, ModuleCall, Nodes, Recording, has_counts, refs
from pyg_batchgnn.port.structure import Structure, TypeName, prefix

#: Fewer copies for each distinct node do not pay for finding and spreading them.
LEAST_COPIES = 1.2
_CHUNK = 2048  # rows that are compared at a time, so that they stay in a cache
_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}  # by the bytes of an element
_GATHERED = (torch.float32, torch.float64, torch.bfloat16)


@dataclass(frozen=True, eq=False)
class DistinctNodes:
    """The distinct nodes of one type, in the order in which a batch meets them."""

    first: Tensor  # [D] int64, the place of the first copy of each, ascending
    row: Tensor  # [N] int64, which of them each node of the batch is
    per_hop: list[int]  # how many are first met at each hop

    @classmethod
    def of(cls, node: Tensor, per_hop: list[int], least: float) -> DistinctNodes | None:
        """Returns those of [N] ids; None if fewer than ``least`` nodes are copies of one."""
        low, high = ops.extent(node) if node.numel() else (-1, -1)
        if low < 0:
            return None
        distinct, (place,) = ops.unique_nodes([node.contiguous()], high + 1)
        if node.numel() < least * distinct.numel():
            return None
        first = torch.full_like(distinct, node.numel())
        first.scatter_reduce_(0, place, torch.arange(node.numel()), "amin")
        first, order = first.sort()
        rank = torch.empty_like(order)
        rank[order] = torch.arange(order.numel())
        ends = torch.searchsorted(first, torch.tensor([0, *per_hop]).cumsum(0))
        return cls(first, rank[place], ends.diff().tolist())

    def rows_of(self, value: Any) -> Any:
        """Returns the rows of distinct nodes in an attribute of the first nodes of a batch; None if
        those of two copies differ in a bit, or if it takes a gradient."""
        if isinstance(value, nn.RowView):
            row = self.rows_of(value.row)
            return None if row is None else nn.RowView(value.table, row)
        if type(value) is not Tensor or value.requires_grad or value.dtype.itemsize not in _BITS:
            return None
        known = int(self.row[: value.size(0)].max()) + 1 if value.size(0) else 0
        rows = ops.gather_rows(value, self.first[:known])
        bits, of_rows = (one.view(_BITS[value.dtype.itemsize]) for one in (value.contiguous(), rows))
        for begin in range(0, value.size(0), _CHUNK):
            part = bits[begin : begin + _CHUNK]
            if not torch.equal(part, ops.gather_rows(of_rows, self.row[begin : begin + len(part)])):
                return None
        return rows

    def spread(self, rows: Any, count: int) -> Any:
        """Returns the rows of the first nodes of a batch: a view, or with a gradient a copy."""
        row = ops.prefix(self.row, count)
        if isinstance(rows, nn.RowView):
            return nn.RowView(rows.table, rows.row[row])
        if rows.dtype not in _GATHERED or not rows.dim():
            return rows.index_select(0, row)
        flat = rows.reshape(rows.size(0), -1)
        if torch.is_grad_enabled() and rows.requires_grad:  # each is the sum over one in-edge
            return ops.aggregate(flat, torch.arange(count + 1), row).view(count, *rows.shape[1:])
        view = nn.RowView(flat, row)
        return view if rows.dim() == 2 else view.gather().view(count, *rows.shape[1:])


@dataclass(frozen=True)
class DistinctBatch:
    """A batch of which some types have a row for each distinct node."""

    batch: Structure
    nodes: Mapping[TypeName, DistinctNodes]  # those types

    @property
    def hops(self) -> int:
        return self.batch.hops

    def counter(self, counter: Any) -> int:
        kind, name, hop = counter
        of_distinct = kind == "nodes" and name in self.nodes
        return self.nodes[name].per_hop[hop] if of_distinct else self.batch.counter(counter)

    def has(self, relation: Any) -> bool:
        return self.batch.has(relation)

    def graph(self, relation: Any, *layer: Any) -> nn.LayerGraph:
        raise AssertionError(f"messages over {relation} of layer {layer} are passed between copies")

    def dropout(self, name: TypeName, layer: int, place: int, rows: int) -> tuple[int, Tensor | None]:
        first = self.nodes[name].first[:rows]
        key, node = self.batch.dropout(name, layer, place, int(first[-1]) + 1 if rows else 0)
        return key, None if node is None else node[first]


class Copies:
    """The copies of nodes in a batch. ``ids``: by type, the ids of its nodes where they are known.
    ``least``: how many copies a distinct node has at least on average, that they are shared."""

    def __init__(self, batch: Structure, ids: Mapping[TypeName, Any], least: float = LEAST_COPIES) -> None:
        self._batch, self._ids, self._least = batch, ids, least
        self._nodes: dict[TypeName, DistinctNodes | None] = {}
        self._rows: dict[tuple[int, TypeName], Any] = {}

    def nodes(self, name: TypeName) -> DistinctNodes | None:
        if name not in self._nodes:
            ids: Any = self._ids.get(name)
            per_hop = [self._batch.counter(("nodes", name, hop)) for hop in range(self._batch.hops + 1)]
            fits = isinstance(ids, Tensor) and ids.dtype is torch.int64 and ids.shape == (sum(per_hop),)
            self._nodes[name] = DistinctNodes.of(ids, per_hop, self._least) if fits else None
        return self._nodes[name]

    def rows(self, recording: Recording, shared: frozenset[int], inputs: Any) -> dict[int, Any]:
        """Returns, by number, the rows of distinct nodes in those inputs of types with copies; None
        of those whose copies are not equal."""
        found: dict[int, Any] = {}
        for number, value in zip(recording.inputs, inputs, strict=True):
            axis = recording.axes[number]
            if (
                number not in shared
                or not isinstance(axis, Nodes)
                or (nodes := self.nodes(axis.name)) is None
            ):
                continue
            place = id(value), axis.name
            if place not in self._rows:
                whole = value.size(0) == prefix(self._batch, "nodes", axis.name, axis.hops)
                self._rows[place] = nodes.rows_of(value) if whole else None
            found[number] = self._rows[place]
        return found

    @property
    def batch(self) -> DistinctBatch:
        found = {name: one for name, one in self._nodes.items() if one is not None}
        return DistinctBatch(self._batch, found)


def shared_values(
    recording: Recording, model: torch.nn.Module, drops: Mapping[int, bool], differ: frozenset[int]
) -> frozenset[int]:
    """Returns the values that copies of a node share. ``drops``: by the place of a call that may
    drop elements at random, whether it does now. ``differ``: inputs that they do not share."""
    found = {one for one in recording.inputs if one not in differ and _types([one], recording)}
    calls: list[Call] = []
    for place, call in enumerate(recording.calls):
        rows = [one for one in refs((call.args, call.kwargs)) if _types([one], recording)]
        if rows and found.issuperset(rows) and not drops.get(place) and _is_of_node(call, recording, model):
            found.update(call.results)
            calls.append(call)
    pays = set[TypeName]().union(*(_types(one.results, recording) for one in calls if _pays(one, recording)))
    used = {one for call in calls for one in (*call.results, *refs((call.args, call.kwargs)))}
    return frozenset(one for one in found & used if _types([one], recording) <= pays)


def _types(values: Sequence[int], recording: Recording) -> set[TypeName]:
    """Returns the types of those values that have a row for each node."""
    axes = (recording.axes[one] for one in values)
    return {one.name for one in axes if isinstance(one, Nodes)}


def _pays(call: Call, recording: Recording) -> bool:
    fixed = (isinstance(recording.axes[one], Fixed) for one in refs((call.args, call.kwargs)))
    return isinstance(call.target, ModuleCall) or any(fixed)


def _is_of_node(call: Call, recording: Recording, model: torch.nn.Module) -> bool:
    """Returns whether a call computes each row from the same row of one type, whatever other rows
    there are, and how many."""
    names, module = _types(refs((call.args, call.kwargs)), recording), module_of(call, model)
    looks = module is not None and any(map(rules.takes_row_statistics, module.modules()))
    results = all(_types([one], recording) == names for one in call.results)
    if not call.by_row or call.writes or looks or len(names) != 1 or not results:
        return False
    if call.target in rules.GETITEM or call.target in rules.INDEX_SELECTS:
        if _types(refs(call.args[1:]), recording):  # a lookup by node
            return not _types(refs(call.args[0]), recording)
        return not has_counts(call.args[1:]) or isinstance(call.args[1], slice)
    if rules.is_reshape(call.target):
        sizes = call.args[1] if isinstance(call.args[1], (tuple, list)) else call.args[1:]
        return not has_counts(sizes[1:])
    return not has_counts((call.args, call.kwargs))


def dropping(recording: Recording, model: torch.nn.Module) -> dict[int, bool]:
    """Returns, by the place of a call that may drop elements at random, whether it does now."""
    found = {}
    for place, call in enumerate(recording.calls):
        module: Any = module_of(call, model)
        if is_dropout(call, model):
            by_number = refs((call.args[1:], call.kwargs))
            found[place] = bool(by_number) or rate_of(call, model, {}) != 0.0
        elif module is not None and rules.kind_of(module) is rules.MLP:
            found[place] = module.training and any(module.dropout)
        elif call.target in rules.DROPOUTS:
            found[place] = True
    return found
