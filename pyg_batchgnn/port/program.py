"""The steps that compute what is asked of a captured ``forward`` (design, section 9).

Demand goes backward from the output. What is computed row by row asks its inputs for the rows it
is asked for. A convolution asks for one hop more. Everything else asks for all rows.
"""

from __future__ import annotations

import operator
from collections import Counter as Counted
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from pyg_batchgnn import nn
from pyg_batchgnn.nn.models import is_row_wise_norm
from pyg_batchgnn.port import rules
from pyg_batchgnn.port.recording import (
    FIXED,
    Call,
    Edges,
    ModuleCall,
    Nodes,
    Prefix,
    Recording,
    Ref,
    SeedIds,
    Way,
    has_counts,
    refs,
)
from pyg_batchgnn.port.structure import TypeName


@dataclass(eq=False)
class ProgramStep:
    """A step of a program: a captured call, with the ReLU and dropout that it ends with."""

    call: Call
    hops: int  # how far the rows are computed
    result: int  # the value that the step makes, after all of it
    relu: bool = False  # a ReLU follows
    #: the call of the dropout that follows, and how many there were in the layer before
    dropout: tuple[Call, int] | None = None
    overwrites: bool = False  # the input may be overwritten: nobody else reads it, and no gradient needs it
    #: the steps whose results a sum adds up in one pass
    parts: list[ProgramStep] = field(default_factory=list)
    frees: list[int] = field(default_factory=list)  # the values that nobody reads after this step
    #: the rows of nodes that it reads, if the copies of a node share its result; else None
    shares: list[int] | None = None
    origin: int | None = None  # the vector of numbers that alone tells its rows, one by one

    @property
    def calls(self) -> list[Call]:
        return [part.call for part in self.parts or [self]]

    @property
    def reads(self) -> list[int]:
        found = [one for call in self.calls for one in refs((call.args, call.kwargs))]
        if self.dropout is not None and self.dropout[0] is not self.call:
            found += refs((self.dropout[0].args[1:], self.dropout[0].kwargs))  # its probability
        return found

    def results(self, program: Program) -> list[int]:
        if len(self.call.results) == 1:
            return [self.result]
        return [one for one in self.call.results if one in program.need]


class Program:
    """The steps that compute a recording, with the hops up to which each value is computed.

    ``seeds``: ``forward``'s results are wanted for the seeds alone, else as it returns them.
    ``layerwise``: each step computes nodes of hop 0 from the edges into them, for the inference of
    all nodes. ``shared``: the values that are computed once for all copies of a node.
    """

    def __init__(
        self,
        recording: Recording,
        model: torch.nn.Module,
        *,
        seeds: bool,
        layerwise: bool = False,
        shared: frozenset[int] = frozenset(),
    ) -> None:
        self.recording, self.seeds, self.shared = recording, seeds, shared
        self.axes = recording.axes
        self.origins = {} if layerwise else _origins(recording, model, shared)
        #: by value, what tells its rows apart: their nodes, or a vector of numbers
        self.group: dict[int, Any] = dict.fromkeys(shared, "node") | self.origins
        self.need: dict[int, int] = {}
        #: what each output is, and how far its rows are computed
        self.outputs: list[tuple[Any, int]] = []
        for one, returned in zip(recording.output, recording.returned, strict=True):
            first = seeds and returned and isinstance(one, Ref) and isinstance(self.axes[one.number], Nodes)
            hops = self.full(one.number) if isinstance(one, Ref) and not first else 0
            self.outputs.append((one, hops))
            self._ask(one, hops)
        for call in reversed(recording.calls):
            self._demand(call, model)
        if layerwise:
            of_edges = (number for number in self.need if isinstance(self.axes[number], Edges))
            self.need = dict.fromkeys(self.need, 0) | {number: self.full(number) for number in of_edges}
        self.steps = _fused(self, model)
        reads = (one for step in self.steps if step.shares is None for one in step.reads)
        #: the shared values that others are computed from
        self.kept = {*reads, *refs(recording.output)} & shared

    def full(self, number: int) -> int:
        axis = self.axes[number]
        return axis.hops if isinstance(axis, Prefix) else 0

    def _ask(self, tree: Any, hops: int | None = None) -> None:
        """Asks for the rows of values up to ``hops``; None for all rows."""
        for one in refs(tree):
            full = self.full(one)
            self.need[one] = full if hops is None else min(max(self.need.get(one, 0), hops), full)

    def _demand(self, call: Call, model: torch.nn.Module) -> None:
        wanted = [self.need[one] for one in call.results if one in self.need]
        if call.writes:
            wanted.append(max(map(self.full, call.results)))
        if not wanted:
            return
        hops = max(wanted)
        if not self.seeds and _takes_statistics(call, model):
            hops = max(map(self.full, call.results))  # a plain call sees the rows that its script gives
        for one in call.results:
            self.need[one] = min(hops, self.full(one))
        if call.message_passing is not None:
            reads = call.reads
            above = min(hops + 1, self.full(reads.edges.number))
            self._ask((reads.sources, reads.values, reads.rows), above)
            self._ask(reads.targets, hops)
            self._ask((reads.edges, reads.values.get("edge_weight")))  # of all edges, for a norm
        elif call.by_row or call.of_ends:
            self._ask((call.args, call.kwargs), hops)
        else:
            self._ask((call.args, call.kwargs), 0 if self._takes_seeds(call) else None)

    def _takes_seeds(self, call: Call) -> bool:
        if call.target not in _TAKES or len(call.args) < 2 or not isinstance(call.args[0], Ref):
            return False
        if call.target not in rules.GETITEM and call.args[1] != 0:
            return False  # columns
        axes = [self.axes[one] for one in refs(call.args[1:])]
        of_nodes = isinstance(self.axes[call.args[0].number], Nodes)
        return of_nodes and bool(axes) and all(isinstance(one, SeedIds) for one in axes)

    @cached_property
    def beside(self) -> list[int] | None:
        """Returns the inputs from which shared values are computed beside rows of nodes; None if
        they depend on anything else of the batch."""
        found = {one for step in self.steps if step.shares is not None for one in step.reads} - self.shared
        for call in reversed(self.recording.calls):
            if not found.isdisjoint(call.results):
                if has_counts((call.args, call.kwargs)):
                    return None
                found.update(refs((call.args, call.kwargs)))
        fixed = self.recording.are_fixed(found)
        return [one for one in self.recording.inputs if one in found] if fixed else None

    def is_by_row(self, model: torch.nn.Module) -> bool:
        """Returns whether no step of the seeds' rows takes statistics over rows."""
        for call in (one for step in self.steps for one in step.calls):
            by_row = call.by_row or call.message_passing or self.recording.are_fixed(call.results)
            if call.writes or not by_row or _takes_statistics(call, model):
                return False
        return True


_TAKES = {*rules.GETITEM, *rules.INDEX_SELECTS}  # rows by their numbers
_RELUS = {torch.relu, Tensor.relu, F.relu}
_ADDITIONS = {torch.add, Tensor.add, operator.add}
_OVERWRITTEN = {*_ADDITIONS, torch.sub, Tensor.sub, operator.sub, F.layer_norm, F.linear}
_DROPOUTS = {F.dropout, torch.dropout}


def _fused(program: Program, model: torch.nn.Module) -> list[ProgramStep]:
    """Returns the needed calls as steps. ReLU and dropout join the step that only they read."""
    recording, need = program.recording, program.need
    readers: Counted[int] = Counted()
    for call in recording.calls:
        readers.update(refs((call.args, call.kwargs)))
    readers.update(refs(recording.output))
    steps: list[ProgramStep] = []
    made: dict[int, ProgramStep] = {}
    places: Counted[int] = Counted()
    for call in recording.calls:
        number = call.results[0]
        step = ProgramStep(call, need[number], number)
        relu, drop, read = is_relu(call, model), is_dropout(call, model), refs((call.args, call.kwargs))
        before = made.get(read[0]) if call.by_row and read and (drop or len(read) == 1) else None
        alone = before is not None and readers[before.result] == 1 and before.hops == step.hops
        alone = alone and (before is None or program.group.get(before.result) == program.group.get(number))
        for operand in _operands(step, made, readers, program, model):
            steps.remove(operand)
            step.parts += operand.parts or [operand]
        place = places[call.layer]
        places[call.layer] += drop
        if before is not None and alone and relu and not before.relu and before.dropout is None:
            before.relu, step = True, before
        elif before is not None and alone and drop and before.dropout is None:
            before.dropout, step = (call, place), before
        else:
            if relu or drop:
                step.relu, step.dropout = relu, (call, place) if drop else None
                step.overwrites = alone and before is not None and may_overwrite(before.call, model)
            steps.append(step)
        step.result = number
        if len(call.results) == 1:  # what follows is of that result alone
            made[number] = step
    for step in steps:
        rows = [one for one in step.reads if isinstance(program.axes[one], Nodes)]
        step.shares = rows if step.result in program.shared else None
        step.origin = program.origins.get(step.result)
    last = {one: step for step in steps for one in (*step.reads, step.result)}
    for number in last.keys() - set(refs(recording.output)):
        last[number].frees.append(number)
    return steps


def _operands(
    step: ProgramStep,
    made: Mapping[int, ProgramStep],
    readers: Mapping[int, int],
    program: Program,
    model: torch.nn.Module,
) -> list[ProgramStep]:
    """Returns the convolutions and linear layers that a sum adds, and that nothing else reads."""
    call = step.call
    if not call.by_row or call.target not in _ADDITIONS or call.kwargs or len(call.args) != 2:
        return []
    found: list[ProgramStep] = []
    for leaf in call.args:
        part = made.get(leaf.number) if isinstance(leaf, Ref) else None
        if part is None or readers[part.result] != 1 or part.hops != step.hops or part.relu or part.dropout:
            return []
        if program.group.get(part.result) != program.group.get(step.result):
            return []
        module = module_of(part.call, model)
        linear = module is not None and rules.kind_of(module) in rules.LINEAR
        native = part.call.message_passing is Way.NATIVE
        is_summand = isinstance(module, nn.NativeConv) if native else linear
        if not (part.parts or is_summand) or part.call.columns != call.columns:
            return []
        found.append(part)
    return found


def module_of(call: Call, model: torch.nn.Module) -> torch.nn.Module | None:
    if not isinstance(call.target, ModuleCall):
        return None
    module: Any = model
    for name in filter(None, call.target.path.split(".")):  # as get_submodule, in a fifth of its time
        module = module._modules[name]
    return module


def _takes_statistics(call: Call, model: torch.nn.Module) -> bool:
    module = module_of(call, model)
    return module is not None and any(map(rules.takes_row_statistics, module.modules()))


def is_relu(call: Call, model: torch.nn.Module) -> bool:
    module = module_of(call, model)
    return call.target in _RELUS if module is None else rules.kind_of(module) is torch.nn.ReLU


def is_dropout(call: Call, model: torch.nn.Module) -> bool:
    module = module_of(call, model)
    return call.target in _DROPOUTS if module is None else rules.kind_of(module) is torch.nn.Dropout


def may_overwrite(call: Call, model: torch.nn.Module) -> bool:
    module = module_of(call, model)
    if module is None:
        return call.target in _OVERWRITTEN
    kind = rules.kind_of(module)
    if isinstance(module, (nn.GINConv, nn.GINEConv)):  # what its part returns may be kept for backward
        last: Any = module.nn
        while isinstance(last, torch.nn.Sequential) and len(last):
            last = last[-1]
        return rules.kind_of(last) in rules.LINEAR or getattr(last, "plain_last", False) is True
    if kind in rules.LINEAR or isinstance(module, nn.NativeConv):
        return True
    inside = module.module if kind is rules.PygBatchNorm else module
    return isinstance(inside, nn.BatchNorm) or (is_row_wise_norm(module) and kind is not torch.nn.Identity)


def rate_of(call: Call, model: torch.nn.Module, values: Mapping[int, Any]) -> float:
    """Returns the probability of a dropout in this call. ``values``: of computed numbers."""
    module = module_of(call, model)
    if module is not None:
        return float(module.p) if module.training else 0.0  # type: ignore[arg-type]
    training = "training" if call.target is F.dropout else "train"
    given = {**dict(zip(("input", "p", training), call.args, strict=False)), **call.kwargs}
    rate = given.get("p", 0.5)
    rate = values[rate.number] if isinstance(rate, Ref) else rate
    return float(rate) if given.get(training, True) else 0.0


def shared_values(
    recording: Recording, model: torch.nn.Module, drops: frozenset[int], differ: frozenset[int]
) -> frozenset[int]:
    """Returns the values that can be computed once for all copies of a node. ``drops``: the places
    of calls that drop elements now. ``differ``: inputs in which copies differ."""
    found = {one for one in recording.inputs if one not in differ and _types([one], recording)}
    calls: list[Call] = []
    for place, call in enumerate(recording.calls):
        rows = [one for one in refs((call.args, call.kwargs)) if _types([one], recording)]
        if rows and found.issuperset(rows) and place not in drops and _is_of_node(call, recording, model):
            found.update(call.results)
            calls.append(call)
    pays = set[TypeName]()  # the types whose rows meet parameters
    for call in calls:
        read = [recording.axes[one] for one in refs((call.args, call.kwargs))]
        if isinstance(call.target, ModuleCall) or FIXED in read:
            pays |= _types(call.results, recording)
    used = {one for call in calls for one in (*call.results, *refs((call.args, call.kwargs)))}
    return frozenset(one for one in found & used if _types([one], recording) <= pays)


def _origins(recording: Recording, model: torch.nn.Module, shared: frozenset[int]) -> dict[int, int]:
    """Returns, by value, the computed vector from which alone its rows follow, one by one, where
    they meet parameters. It may have few numbers, as the days since each row do."""
    found: dict[int, int] = {}
    pays = set[int]()
    for call in recording.calls:
        read = refs((call.args, call.kwargs))
        of = {found.get(one, -1) for one in read if _types([one], recording)}
        drops = is_dropout(call, model) or drops_now(call, model)
        if not shared.isdisjoint(call.results):
            continue
        if len(of) == 1 and -1 not in of and not drops and _is_of_node(call, recording, model):
            found.update(dict.fromkeys(call.results, max(of)))
            meets = isinstance(call.target, ModuleCall) or FIXED in (recording.axes[one] for one in read)
            pays.update(of if meets and call.columns else ())
        elif len(call.results) == 1 and _types(call.results, recording) and not call.columns:
            found[call.results[0]] = call.results[0]
    return {number: one for number, one in found.items() if one in pays and one != number}


def _types(values: Sequence[int], recording: Recording) -> set[TypeName]:
    axes = (recording.axes[one] for one in values)
    return {one.name for one in axes if isinstance(one, Nodes)}


def _is_of_node(call: Call, recording: Recording, model: torch.nn.Module) -> bool:
    """Returns whether a call computes each row of a type from the same row alone."""
    names = _types(refs((call.args, call.kwargs)), recording)
    same = len(names) == 1 and all(_types([one], recording) == names for one in call.results)
    if not call.by_row or call.writes or not same or _takes_statistics(call, model):
        return False
    if call.target in rules.GETITEM or call.target in rules.INDEX_SELECTS:
        if _types(refs(call.args[1:]), recording):  # a lookup by node
            return not _types(refs(call.args[0]), recording)
        return not has_counts(call.args[1:]) or isinstance(call.args[1], slice)
    if call.target in rules.RESHAPES:
        sizes = call.args[1] if isinstance(call.args[1], (tuple, list)) else call.args[1:]
        return not has_counts(sizes[1:])
    return not has_counts((call.args, call.kwargs))


def drops_now(call: Call, model: torch.nn.Module) -> bool:
    """Returns whether a call drops elements at random in this call, or may do so."""
    module: Any = module_of(call, model)
    if is_dropout(call, model):
        return bool(refs((call.args[1:], call.kwargs))) or rate_of(call, model, {}) != 0.0
    if module is not None and rules.kind_of(module) is rules.MLP:
        return module.training and any(module.dropout)
    return call.target in rules.DROPOUTS
