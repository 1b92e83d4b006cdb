"""The execution of a recorded ``forward`` on the rows that its output needs (design, section 11).

Demand goes backward from the output. What is computed row by row asks its inputs for the rows it
is asked for. A convolution asks for one hop more. Everything else asks for all rows.
"""

from __future__ import annotations

from collections import Counter as Counted
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from torch_geometric.nn.conv.hetero_conv import group

from pyg_batchgnn import nn, ops
from pyg_batchgnn.nn.models import is_row_wise_norm
from pyg_batchgnn.port import foreign, rules
from pyg_batchgnn.port.record import Call, ModuleCall, Recording, Ref, Way, flat, mapped
from pyg_batchgnn.port.structure import LayerEdges, Structure, prefix
from pyg_batchgnn.port.values import Count, EdgeIndex, Edges, Nodes, Refusal, SeedIds


@dataclass
class Frame:
    """One run of a program.

    Attributes:
        values: by number, a tensor, a `RowView`, or a function that makes the tensor when it is
            needed.
        drops: False leaves out dropout, for comparisons.
    """

    model: torch.nn.Module
    structure: Structure
    values: dict[int, Any]
    drops: bool = True

    def rows(self, axis: Any, hops: int) -> int:
        if isinstance(axis, Nodes):
            return prefix(self.structure, "nodes", axis.name, hops)
        return prefix(self.structure, "edges", axis.relation, hops)


@dataclass(eq=False)
class Step:
    """One step of a program: a recorded call, with what follows it in the same pass.

    Attributes:
        relu: a ReLU follows.
        dropout: the call of the dropout that follows, and how many there were in the layer before.
        result: the value that the step makes, after all of it.
        hops: how far the rows are computed.
        parts: the steps whose results a sum adds up in one pass.
        overwrites: the input may be overwritten: nobody else reads it, and no gradient needs it.
        frees: the values that nobody reads after this step.
    """

    call: Call
    hops: int
    result: int
    relu: bool = False
    dropout: tuple[Call, int] | None = None
    overwrites: bool = False
    parts: list[Step] = field(default_factory=list)
    frees: list[int] = field(default_factory=list)

    @property
    def reads(self) -> list[int]:
        """The values that the step reads."""
        return [one for part in self.parts or [self] for one in refs((part.call.args, part.call.kwargs))]

    def results(self, program: Program) -> list[int]:
        """Returns the values that the step makes and somebody reads."""
        if len(self.call.results) == 1:
            return [self.result]
        return [one for one in self.call.results if one in program.need]


class Program:
    """A recording, with the rows that every value is computed for.

    Args:
        seeds: the output is wanted for the seeds' rows alone, else for all rows that ``forward``
            returns.
        layerwise: everything is computed for the nodes of hop 0 alone. Every convolution is given
            the rows of its sources.
    """

    def __init__(
        self, recording: Recording, model: torch.nn.Module, *, seeds: bool, layerwise: bool = False
    ) -> None:
        self.recording, self.seeds = recording, seeds
        self.axes = recording.axes
        self.need: dict[int, int] = {}
        self._demand_output()
        for call in reversed(recording.calls):
            self._demand(call, all_rows=not seeds and _takes_statistics(call, model))
        if layerwise:
            self.need = dict.fromkeys(self.need, 0)
        self.steps = _fused(self, model)

    # Demand ---------------------------------------------------------------------------------------

    def _demand_output(self) -> None:
        def ask(leaf: Any) -> Any:
            if isinstance(leaf, Ref):
                axis = self.axes[leaf.number]
                self._ask(leaf, 0 if self.seeds and isinstance(axis, Nodes) else self.full(leaf.number))
            return leaf

        mapped(self.recording.output, ask)

    def full(self, number: int) -> int:
        """Returns the hops of all rows of a value."""
        axis = self.axes[number]
        return axis.hops if isinstance(axis, (Nodes, Edges, EdgeIndex)) else 0

    def _ask(self, leaf: Any, hops: int) -> Any:
        if isinstance(leaf, Ref):
            known = self.need.get(leaf.number, 0)
            self.need[leaf.number] = min(max(known, hops), self.full(leaf.number))
        return leaf

    def _demand(self, call: Call, all_rows: bool) -> None:
        wanted = [self.need[one] for one in call.results if one in self.need]
        if not wanted:
            return
        hops = max(map(self.full, call.results)) if all_rows else max(wanted)
        for one in call.results:
            self.need[one] = min(hops, self.full(one))
        if call.message_passing is not None:
            self._demand_above(call, hops)
        elif call.by_row:
            mapped((call.args, call.kwargs), lambda leaf: self._ask(leaf, hops))
        elif self._takes_seeds(call):
            mapped((call.args, call.kwargs), lambda leaf: self._ask(leaf, 0))
        else:
            mapped((call.args, call.kwargs), self._ask_all)

    def _demand_above(self, call: Call, hops: int) -> None:
        """Asks for the rows that a convolution reads: those of its targets, and of one hop more."""
        reads = _Reads.of(call)
        above = min(hops + 1, self._edge_hops(call))
        mapped((reads.sources, reads.values), lambda leaf: self._ask(leaf, above))
        mapped(reads.targets, lambda leaf: self._ask(leaf, hops))
        mapped(reads.edges, self._ask_all)
        mapped(reads.values.get("edge_weight"), self._ask_all)  # a norm takes the weights of all edges

    def _edge_hops(self, call: Call) -> int:
        (first, *_) = refs(_Reads.of(call).edges)
        axis = self.axes[first]
        assert isinstance(axis, EdgeIndex)
        return axis.hops

    def _takes_seeds(self, call: Call) -> bool:
        """Returns whether a call takes rows of nodes by ids of seeds."""
        if call.target not in _TAKES or not call.args or not isinstance(call.args[0], Ref):
            return False
        if call.target is not Tensor.__getitem__ and call.args[1] != 0:
            return False  # columns
        axes = [self.axes[one] for one in refs(call.args[1:])]
        return (
            isinstance(self.axes[call.args[0].number], Nodes)
            and all(isinstance(one, SeedIds) for one in axes)
            and bool(axes)
        )

    def _ask_all(self, leaf: Any) -> Any:
        return self._ask(leaf, self.full(leaf.number)) if isinstance(leaf, Ref) else leaf

    # Running --------------------------------------------------------------------------------------

    def holds(self, structure: Structure) -> bool:
        """Returns whether comparisons of sizes come out as they did when ``forward`` was recorded."""
        return all(
            one.compare(one.form.value(structure.counter), 0) == one.found for one in self.recording.guards
        )

    def is_by_row(self, model: torch.nn.Module) -> bool:
        """Returns whether the rows of the seeds depend on no statistics of rows that are computed now."""
        for step in self.steps:
            for part in step.parts or [step]:
                if not part.call.by_row and part.call.message_passing is None:
                    return False
                if _takes_statistics(part.call, model):
                    return False
        return True

    def run(self, frame: Frame, inputs: Sequence[Any]) -> Any:
        """Returns what ``forward`` returns. ``inputs``: the values of the inputs, in their order."""
        frame.values.update(zip(self.recording.inputs, inputs, strict=True))
        self.give_parameters(frame)
        for step in self.steps:
            self.step(frame, step)
            for one in step.frees:
                frame.values.pop(one, None)
        return mapped(self.recording.output, lambda leaf: self._output(frame, leaf))

    def give_parameters(self, frame: Frame) -> None:
        for number, (path, name) in self.recording.parameters.items():
            if number in self.need:
                frame.values[number] = getattr(frame.model.get_submodule(path), name)

    def step(self, frame: Frame, step: Step) -> None:
        """Runs one step."""
        _run(self, frame, step)

    def _output(self, frame: Frame, leaf: Any) -> Any:
        if isinstance(leaf, Count):
            return int(leaf) if leaf.form is None else leaf.form.value(frame.structure.counter)
        if not isinstance(leaf, Ref):
            return leaf
        axis = self.axes[leaf.number]
        hops = 0 if self.seeds and isinstance(axis, Nodes) else self.full(leaf.number)
        return self.take(frame, leaf, hops)

    def take(self, frame: Frame, ref: Ref, hops: int, *, in_place: bool = False) -> Any:
        """Returns the rows of a value up to some hops. ``in_place``: a `RowView` will do."""
        value = frame.values[ref.number]
        axis = self.axes[ref.number]
        if callable(value) and not isinstance(value, Tensor):
            value = frame.values[ref.number] = value()
        if isinstance(axis, (Nodes, Edges)):
            rows = frame.rows(axis, min(hops, axis.hops))
            if value.size(0) != rows:
                value = value.head(rows) if isinstance(value, nn.RowView) else _first(value, rows)
            if isinstance(value, nn.RowView) and not in_place:
                value = value.gather()
        return value

    def arguments(self, frame: Frame, call: Call, hops: int | None) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Returns the arguments of a call for its rows up to some hops; for all where None."""

        def change(leaf: Any) -> Any:
            if isinstance(leaf, Ref):
                return self.take(frame, leaf, self.full(leaf.number) if hops is None else hops)
            if isinstance(leaf, Count):
                return leaf.form.value(frame.structure.counter) if leaf.form is not None else int(leaf)
            return leaf

        args = call.args
        if hops is not None and not isinstance(call.target, ModuleCall) and rules.is_reshape(call.target):
            axis = self.axes[call.results[0]]
            args = rules.new_shape(args, frame.rows(axis, hops))
        return mapped(args, change), mapped(call.kwargs, change)


def _first(value: Tensor, rows: int) -> Tensor:
    return ops.first_rows(value, rows) if value.dim() == 2 else value[:rows]


def _ref_of(leaf: Any) -> Ref:
    assert isinstance(leaf, Ref), "the recording found a value here"
    return leaf


@dataclass(frozen=True)
class _Reads:
    """The arguments of a convolution, or of a `HeteroConv`.

    Attributes:
        sources, targets: a value, or several by node type; the same one where every target is a
            source.
        edges: the edge index, or several by relation.
        values: values of edges, by the name of the argument.
    """

    sources: Any
    targets: Any
    edges: Any
    values: Mapping[str, Any]

    @classmethod
    def of(cls, call: Call) -> _Reads:
        given = dict(zip(call.names, call.args, strict=False)) | call.kwargs
        values = {
            name: one for name, one in given.items() if name not in ("x", "edge_index") and one is not None
        }
        x = given["x"]
        sources, targets = x if isinstance(x, (tuple, list)) else (x, x)
        return cls(sources, targets, given["edge_index"], values)


#: Functions that take rows by their numbers.
_TAKES = {Tensor.__getitem__, Tensor.index_select, torch.index_select}


# Steps ############################################################################################

_RELUS = {torch.relu, Tensor.relu, torch.nn.functional.relu}
_ADDITIONS = {torch.add, Tensor.add}
_SUMS = {*_ADDITIONS, torch.sub, Tensor.sub}
_DROPOUTS = {torch.nn.functional.dropout, torch.dropout}


def _fused(program: Program, model: torch.nn.Module) -> list[Step]:
    """Returns the steps of a program: calls that nobody needs are left out, and a ReLU and a dropout
    join the step before where nobody else reads what it makes."""
    recording, need = program.recording, program.need
    calls = [one for one in recording.calls if any(number in need for number in one.results)]
    readers: Counted[int] = Counted()
    for call in calls:
        readers.update(refs((call.args, call.kwargs)))
    readers.update(refs(recording.output))
    steps: list[Step] = []
    made: dict[int, Step] = {}
    places: Counted[int] = Counted()
    for call in calls:
        number = call.results[0]
        step = Step(call, need[number], number)
        before = made.get(_only_ref(call)) if call.by_row else None
        alone = before is not None and readers[before.result] == 1 and before.hops == step.hops
        for operand in _operands(step, made, readers, model):
            steps.remove(operand)
            step.parts += operand.parts or [operand]
        relu, drop = _is_relu(call, model), _is_dropout(call, model)
        place = places[call.layer]
        places[call.layer] += drop
        if before is not None and alone and relu and not before.relu and before.dropout is None:
            before.relu, step = True, before
        elif before is not None and alone and drop and before.dropout is None:
            before.dropout, step = (call, place), before
        else:
            if relu or drop:
                step.relu, step.dropout = relu, (call, place) if drop else None
                step.overwrites = alone and before is not None and _may_overwrite(before.call, model)
            steps.append(step)
        step.result = number
        if len(step.call.results) == 1 and not step.call.names_of_results:
            made[number] = step
    _free(steps, recording)
    return steps


def _operands(
    step: Step, made: Mapping[int, Step], readers: Mapping[int, int], model: torch.nn.Module
) -> list[Step]:
    """Returns the steps whose results a sum adds up, if they are convolutions and linear layers that
    nobody else reads: one pass computes them all."""
    call = step.call
    if not call.by_row or call.target not in _ADDITIONS or call.kwargs or len(call.args) != 2:
        return []
    found: list[Step] = []
    for leaf in call.args:
        part = made.get(leaf.number) if isinstance(leaf, Ref) else None
        if part is None or readers[part.result] != 1 or part.hops != step.hops or part.relu or part.dropout:
            return []
        if not (part.parts or _is_summand(part.call, model)):
            return []
        found.append(part)
    return found


def _is_summand(call: Call, model: torch.nn.Module) -> bool:
    module = _module(call, model)
    if call.message_passing is Way.NATIVE:
        return isinstance(module, nn.NativeConv)
    return module is not None and rules.kind_of(module) in rules.LINEAR


def _free(steps: Sequence[Step], recording: Recording) -> None:
    kept = set(refs(recording.output))
    last: dict[int, Step] = {}
    for step in steps:
        for part in step.parts or [step]:
            for one in part.reads:
                last[one] = step
        last[step.result] = step
    for number, step in last.items():
        if number not in kept:
            step.frees.append(number)


def refs(tree: Any) -> list[int]:
    found: list[int] = []
    mapped(tree, lambda leaf: found.append(leaf.number) if isinstance(leaf, Ref) else None)
    return found


def _only_ref(call: Call) -> int:
    found = refs((call.args, call.kwargs))
    return found[0] if len(found) == 1 else -1


def _module(call: Call, model: torch.nn.Module) -> torch.nn.Module | None:
    return model.get_submodule(call.target.path) if isinstance(call.target, ModuleCall) else None


def _takes_statistics(call: Call, model: torch.nn.Module) -> bool:
    module = _module(call, model)
    return module is not None and any(map(rules.takes_row_statistics, module.modules()))


def _is_relu(call: Call, model: torch.nn.Module) -> bool:
    module = _module(call, model)
    if module is not None:
        return rules.kind_of(module) is torch.nn.ReLU
    return call.target in _RELUS


def _is_dropout(call: Call, model: torch.nn.Module) -> bool:
    module = _module(call, model)
    if module is not None:
        return rules.kind_of(module) is torch.nn.Dropout
    return call.target in _DROPOUTS


def _may_overwrite(call: Call, model: torch.nn.Module) -> bool:
    """Returns whether no gradient needs the result of a call."""
    module = _module(call, model)
    if module is None:
        return call.target in _SUMS or call.target in (
            torch.nn.functional.layer_norm,
            torch.nn.functional.linear,
        )
    kind = rules.kind_of(module)
    if kind in rules.LINEAR or isinstance(module, nn.NativeConv):
        return True
    inside = module.module if kind is rules.PygBatchNorm else module
    return isinstance(inside, nn.BatchNorm) or (is_row_wise_norm(module) and kind is not torch.nn.Identity)


def rate_of(call: Call, model: torch.nn.Module) -> float:
    """Returns the probability of a dropout now."""
    module = _module(call, model)
    if module is not None:
        return float(module.p) if module.training else 0.0  # type: ignore[arg-type]
    names = (
        ("input", "p", "training") if call.target is torch.nn.functional.dropout else ("input", "p", "train")
    )
    given = {**dict(zip(names, call.args, strict=False)), **call.kwargs}
    return float(given.get("p", 0.5)) if given.get(names[2], True) else 0.0


def is_convolution(step: Step) -> bool:
    return any(part.call.message_passing is not None for part in step.parts or [step])


def reads_as_sources(step: Step) -> list[int]:
    """Returns the values whose rows a step reads for other nodes than its targets."""
    calls = [part.call for part in step.parts or [step] if part.call.message_passing is not None]
    return [one for call in calls for one in refs(_Reads.of(call).sources)]


# The run of a step ################################################################################


@dataclass(frozen=True)
class Ending:
    """The ReLU and the dropout of a step in this run, as operators take them."""

    relu: bool = False
    drop: float = 0.0
    key: int = 0
    node: Tensor | None = None

    @property
    def is_empty(self) -> bool:
        return not self.relu and self.drop == 0.0

    def arguments(self) -> dict[str, Any]:
        return {"relu": self.relu, "drop": self.drop, "key": self.key, "node": self.node}


def _run(program: Program, frame: Frame, step: Step) -> None:
    call, model = step.call, frame.model
    module = _module(call, model)
    relu_itself, drops_itself = _is_relu(call, model), _is_dropout(call, model)
    if step.parts:
        result, done = _add_up(program, frame, step)
    elif call.message_passing:
        assert module is not None
        result, done = _convolve(program, frame, step, module)
    elif relu_itself or drops_itself:
        (first,) = refs((call.args, call.kwargs))
        result, done = program.take(frame, Ref(first), step.hops), False
    elif module is not None and _is_native_linear(module, frame, call, program):
        result, done = _multiply(program, frame, step, module), True
    else:
        result, done = _plain_call(program, frame, step, module), False
    if not done:
        result = _end(
            program, frame, step, result, overwrites=not (relu_itself or drops_itself) or step.overwrites
        )
    if call.names_of_results:
        made = {number: result.get(name) for number, name in zip(call.results, call.names_of_results, strict=True)}
    elif len(call.results) > 1:
        parts = flat(result)
        if len(parts) != len(call.results):
            raise Refusal(f"a function returns another number of tensors for this batch ({call.where})")
        made = dict(zip(call.results, parts, strict=True))
    else:
        made = {step.result: result}
    frame.values.update({number: one for number, one in made.items() if number in program.need})


def _ending(program: Program, frame: Frame, step: Step, rows: int) -> Ending:
    drop, key, node = 0.0, 0, None
    axis = program.axes[step.result]
    name = axis.name if isinstance(axis, Nodes) else None
    if step.dropout is not None and frame.drops:
        call, place = step.dropout
        drop = rate_of(call, frame.model)
        if drop > 0.0:
            ops.check_drop(drop)
            key, node = frame.structure.dropout(name, call.layer, place, rows)
    return Ending(step.relu, drop, key, node)


def _end(program: Program, frame: Frame, step: Step, x: Tensor, *, overwrites: bool) -> Tensor:
    """Applies the ReLU and the dropout of a step, in place where that is safe."""
    if not isinstance(x, Tensor):
        return x
    ending = _ending(program, frame, step, x.size(0) if x.dim() else 1)
    if ending.is_empty:
        return x
    safe = overwrites and _may_overwrite(step.call, frame.model) or step.overwrites
    return ops.activate(x if safe else x.clone(), **ending.arguments())


def _plain_call(program: Program, frame: Frame, step: Step, module: torch.nn.Module | None) -> Any:
    call = step.call
    args, kwargs = program.arguments(frame, call, step.hops if call.by_row else None)
    if module is not None:
        if getattr(module, "inplace", False) and args:  # others may read the rows that it writes to
            args = (args[0].clone(), *args[1:])
        return module(*args, **kwargs)
    if not frame.drops and call.target in rules.DROPOUTS:
        return args[0].clone()
    return call.target(*args, **kwargs)  # type: ignore[operator]


def _is_native_linear(module: torch.nn.Module, frame: Frame, call: Call, program: Program) -> bool:
    del frame, program
    return rules.kind_of(module) in rules.LINEAR and not nn.is_watched(module) and len(call.args) == 1


def _multiply(program: Program, frame: Frame, step: Step, module: torch.nn.Module) -> Tensor:
    x = program.take(frame, _ref_of(step.call.args[0]), step.hops, in_place=True)
    weight, bias = module.weight, module.bias
    assert isinstance(weight, Tensor)
    takes = x.dtype == weight.dtype or (x.dtype is not torch.float64 and weight.dtype is not torch.float64)
    ending = _ending(program, frame, step, x.size(0))
    if len(x.shape) != 2 or not takes or not weight.is_cpu:
        out = module(x if isinstance(x, Tensor) else x.gather())
        return out if ending.is_empty else ops.activate(out, **ending.arguments())
    return ops.linear([x], [weight], bias, num_rows=x.size(0), **ending.arguments())  # type: ignore[list-item]


def _add_up(program: Program, frame: Frame, step: Step) -> tuple[Tensor, bool]:
    """Returns the sum of convolutions and linear layers, and whether ReLU and dropout were applied."""
    rows = frame.rows(program.axes[step.call.results[0]], step.hops)
    own: Any = None
    own_ref: Any = None
    terms: list[nn.Terms] = []
    targets: Any = nn.LayerRows(rows, rows)
    for part in step.parts:
        if part.call.message_passing is None:
            continue
        conv: Any = _module(part.call, frame.model)
        given, values = _conv_input(program, frame, part, conv)
        found, read = conv.terms(given, **values), _Reads.of(part.call).targets
        if own is None:
            own, own_ref, targets = given.own_rows(), read, given.graph
        elif read != own_ref and found.root is not None:
            product = nn.RowProduct(given.own_rows(), found.root)
            found = replace(found, products=(*found.products, product), root=None)
        terms.append(found)
    for part in step.parts:
        if part.call.message_passing is not None:
            continue
        linear: Any = _module(part.call, frame.model)
        ref = _ref_of(part.call.args[0])
        if ref == own_ref:
            terms.append(nn.Terms(root=linear.weight, bias=linear.bias))
        else:
            x = program.take(frame, ref, step.hops, in_place=True)
            terms.append(nn.Terms((nn.RowProduct(x, linear.weight),), bias=linear.bias))
    ending = _ending_of_conv(frame, step, frame.model.training)
    return nn.total(terms, own, targets, ending, training=True), ending is not None


def _conv_input(program: Program, frame: Frame, step: Step, conv: Any) -> tuple[nn.ConvInput, dict[str, Any]]:
    """Returns the rows, the edges and the values of edges that a native convolution reads."""
    call, reads = step.call, _Reads.of(step.call)
    axis = program.axes[_ref_of(reads.edges).number]
    assert isinstance(axis, EdgeIndex)
    above = min(step.hops + 1, axis.hops)
    x = program.take(frame, _ref_of(reads.sources), above, in_place=True)
    drops = frame.drops and conv.training and bool(getattr(conv, "dropout", 0.0))
    drops = drops or step.dropout is not None
    graph = frame.structure.graph(axis.relation, call.layer + 1, step.hops, axis.hops, drops)
    counted = graph.whole or graph
    values = {
        name: _edge_rows(program, frame, ref, counted if name == "edge_weight" else graph)
        for name, ref in reads.values.items()
    }
    rows: Any = x
    if reads.targets != reads.sources:
        rows = (x, program.take(frame, _ref_of(reads.targets), step.hops, in_place=True))
    return nn.conv_input(rows, graph, None), values


def _convolve(program: Program, frame: Frame, step: Step, conv: Any) -> tuple[Any, bool]:
    """Returns the rows of a convolution, and whether ReLU and dropout were applied."""
    call, reads = step.call, _Reads.of(step.call)
    if isinstance(reads.edges, Mapping):
        return _convolve_types(program, frame, step, conv), False
    if call.message_passing is Way.NATIVE:
        given, values = _conv_input(program, frame, step, conv)
        ending = _ending_of_conv(frame, step, conv.training)
        update = {} if ending is None else {"update": ending}
        x = given.x if given.targets_in_sources else (given.x, given.own_rows())
        return conv(x, given.graph, **values, **update), ending is not None
    return _trimmed(program, frame, conv, reads, step.hops), False


def _trimmed(program: Program, frame: Frame, conv: Any, reads: _Reads, hops: int) -> Tensor:
    """Returns the first rows of a convolution that is not native."""
    axis, targets = (program.axes[_ref_of(one).number] for one in (reads.edges, reads.targets))
    assert isinstance(axis, EdgeIndex)
    above = min(hops + 1, axis.hops)
    edge_index = program.take(frame, _ref_of(reads.edges), axis.hops)[:, : frame.rows(axis, above)]
    values = {name: program.take(frame, _ref_of(ref), above) for name, ref in reads.values.items()}
    x: Any = program.take(frame, _ref_of(reads.sources), above)
    if reads.targets != reads.sources:
        x = (x, program.take(frame, _ref_of(reads.targets), hops))
    return foreign.call_trimmed(conv, x, edge_index, frame.rows(targets, hops), values)


def _convolve_types(program: Program, frame: Frame, step: Step, conv: Any) -> dict[str, Tensor]:
    """Returns the rows of each type after a `HeteroConv`."""
    call, reads = step.call, _Reads.of(step.call)
    edge_hops = program.full(refs(reads.edges)[0])
    above = min(step.hops + 1, edge_hops)
    known, has = dict(conv.convs.items()), frame.structure.has
    relations = [relation for relation in reads.edges if relation in known and has(relation)]
    ends = {name for source, _, target in relations for name in (source, target)}
    if call.message_passing is Way.NATIVE:
        x = {
            name: program.take(frame, ref, above, in_place=True)
            for name, ref in reads.sources.items()
            if name in ends
        }
        drops = frame.drops and any(
            one.training and getattr(one, "dropout", 0.0) for one in conv.convs.values()
        )
        edges = LayerEdges(frame.structure, relations, call.layer + 1, step.hops, edge_hops, drops)
        found: dict[str, Tensor] = conv(x, edges)
        return found
    return _by_relation(program, frame, step, conv, relations)


def _by_relation(
    program: Program, frame: Frame, step: Step, conv: Any, relations: Sequence[Any]
) -> dict[str, Tensor]:
    """Returns the rows of each type, computed relation by relation as PyG does."""
    reads = _Reads.of(step.call)
    results: dict[str, list[Tensor]] = {}
    for relation, one in conv.convs.items():
        if relation not in relations:
            continue
        source, _, target = relation
        own = _Reads(reads.sources[source], reads.sources[target], reads.edges[relation], {})
        if isinstance(one, nn.NativeConv):  # which may need degrees of all nodes
            rows = _native(program, frame, step, one, own)
        else:
            rows = _trimmed(program, frame, one, own, step.hops)
        results.setdefault(target, []).append(rows)
    return {name: group(found, conv.aggr) for name, found in results.items()}


def _native(program: Program, frame: Frame, step: Step, conv: Any, reads: _Reads) -> Tensor:
    """Returns the rows of a native convolution of one relation."""
    hops = program.full(_ref_of(reads.edges).number)
    axis = program.axes[_ref_of(reads.edges).number]
    assert isinstance(axis, EdgeIndex)
    drops = frame.drops and conv.training and bool(getattr(conv, "dropout", 0.0))
    graph = frame.structure.graph(axis.relation, step.call.layer + 1, step.hops, hops, drops)
    rows: Any = program.take(frame, _ref_of(reads.sources), min(step.hops + 1, hops), in_place=True)
    if reads.targets != reads.sources:
        rows = (rows, program.take(frame, _ref_of(reads.targets), step.hops, in_place=True))
    given = nn.conv_input(rows, graph, None)
    found: Tensor = conv(given.x if given.targets_in_sources else (given.x, given.own_rows()), given.graph)
    return found


def _edge_rows(program: Program, frame: Frame, ref: Any, graph: nn.LayerGraph) -> Any:
    if not isinstance(ref, Ref):
        return ref
    return program.take(frame, ref, program.full(ref.number))[: graph.num_edges]


def _ending_of_conv(frame: Frame, step: Step, training: bool) -> nn.Update | None:
    """Returns the ReLU and the dropout that a convolution applies in its own pass, or None.

    The key of that pass is the one of the first dropout in a layer, and it drops in training alone.
    """
    drop = 0.0
    if step.dropout is not None and frame.drops:
        call, place = step.dropout
        drop = rate_of(call, frame.model)
        if drop > 0.0 and (place != 0 or not training):
            return None
    return nn.Update(relu=step.relu, drop=drop) if step.relu or drop > 0.0 else None
