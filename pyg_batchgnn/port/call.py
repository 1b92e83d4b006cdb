"""One call of a model: the graph that fits it, and the programs that compute what it asks for."""

from __future__ import annotations

import functools
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from pyg_batchgnn import nn, ops
from pyg_batchgnn.port import foreign, rules
from pyg_batchgnn.port.batches import ArgumentTensor, Batch, Bound
from pyg_batchgnn.port.capture import LIBRARIES, Capture, Captured, CapturedFunction, Miss, Seen, run_graph
from pyg_batchgnn.port.check import Trial, difference
from pyg_batchgnn.port.execution import Frame
from pyg_batchgnn.port.execution import run as run_program
from pyg_batchgnn.port.modules import AcceleratedConv
from pyg_batchgnn.port.program import Program, drops_now, module_of, shared_values
from pyg_batchgnn.port.recording import (
    Axis,
    Count,
    ModuleCall,
    Nodes,
    Recording,
    Refusal,
    Way,
    leaves_of,
    mapped,
)
from pyg_batchgnn.port.report import AccelerationReport, ForwardReport, forward_report, log_report
from pyg_batchgnn.port.structure import LEAST_COPIES, Copies, Known, Memo, prefix
from pyg_batchgnn.port.translate import translate


@dataclass
class Graph:
    """A captured ``forward``, with programs that compute all rows, or the rows of the seeds."""

    captured: Captured  # the graph of Dynamo
    recording: Recording
    #: by whether the seeds' rows alone are wanted, and the values that copies of a node share
    programs: dict[tuple[bool, frozenset[int]], Program] = field(default_factory=dict)
    checked: set[Program] = field(default_factory=set)  # those that were compared
    #: by what drops elements and what differs, the values that copies of a node may share
    shareable: dict[Any, frozenset[int]] = field(default_factory=dict)
    draws: bool = False  # numbers are drawn anew whenever it runs, beside the one of its own dropout
    wrong: str = ""  # the reason why it is not used, or empty
    states: dict[int, Any] = field(default_factory=dict)  # by call, the options of its module
    calls: int = 0

    def shared(
        self, model: torch.nn.Module, copies: Copies, inputs: Sequence[Any], share_dropout: bool
    ) -> frozenset[int]:
        """Returns the values that are computed once for all copies of a node, if there are any."""
        drops = differ = frozenset[int]()  # most batches have no copies, whatever drops
        while True:
            state = drops, differ
            if state not in self.shareable:
                self.shareable[state] = shared_values(self.recording, model, drops, differ)
            rows = copies.rows(self.recording, self.shareable[state], inputs)
            if not rows:
                return frozenset()
            differ |= {number for number, one in rows.items() if one is None}
            if not (drops or share_dropout):
                calls = enumerate(self.recording.calls)
                drops = frozenset(place for place, call in calls if drops_now(call, model))
            if state == (drops, differ):
                return self.shareable[state]

    def why_unfit(self, model: torch.nn.Module, trims: Sequence[type[torch.nn.Module]]) -> str | None:
        for number, call in enumerate(self.recording.calls):
            if not isinstance(call.target, ModuleCall):
                continue
            conv: Any = module_of(call, model)
            if call.message_passing is None:
                # which rows it looks at, and which it writes to
                looks = rules.computes_rows(conv), rules.takes_row_statistics(conv)
                state = *looks, getattr(conv, "inplace", False)
                if self.states.setdefault(number, state) != state:
                    return f"options of {call.target.path} changed"
            if call.message_passing is Way.TRIMMED and call.target.method == "forward":
                reason = foreign.whole_reason(conv, None, trims)
                if reason is not None:
                    return reason
        return None


@dataclass
class Entry:
    exact: bool = False  # sizes of 0 and 1 are constants of its graphs
    function: CapturedFunction = field(default_factory=CapturedFunction)
    refused: dict[bool, str] = field(default_factory=dict)  # why, by whether gradients are enabled


@dataclass
class Tracing:
    trims: tuple[type[torch.nn.Module], ...] = ()  # layers that the user declares safe to trim
    rows: str | None = None  # "seeds" if a ``forward`` that takes a batch is asked for the rows of the seeds
    report: Callable[[AccelerationReport], None] = log_report  # is told how ``forward`` is computed
    check: str = "once"  # "often" compares a program with its graph at every 2^k-th call
    is_sequential: bool = False  # the model is a `Sequential` of PyG without a ``forward`` of the user's
    share_dropout: bool = False  # copies of a node have one mask before they differ
    memo: Memo | None = None  # the rows of earlier batches, within `encode_once`
    uses_all_rows: bool = False  # True once a loss used other rows than the seeds'
    entries: dict[Any, Entry] = field(default_factory=dict)  # by the pattern of the arguments
    differs: dict[Any, bool] = field(default_factory=dict)  # by pattern and sizes of 0: in what is done
    graphs: list[Graph] = field(default_factory=list)  # all that were captured
    result: list[Axis] | None = None  # what the rows of each tensor in the result are, if a graph told
    warned: set[str] = field(default_factory=set)  # the subjects of warnings that were given
    told: set[str] = field(default_factory=set)  # the reasons that were reported
    #: of the last call, by node type: how many rows copies would have, and how many were computed
    encoded: dict[Any, tuple[int, int]] = field(default_factory=dict)
    seen: Seen = field(default_factory=Seen)  # what the graphs depend on without a guard

    def __deepcopy__(self, memo: Any) -> Tracing:
        return Tracing(self.trims, self.rows, self.report, self.check, self.is_sequential, self.share_dropout)

    def __reduce__(self) -> Any:
        options = self.check, self.is_sequential, self.share_dropout
        return Tracing, (self.trims, self.rows, log_report, *options)

    def warn(self, subject: str, text: str) -> None:
        if subject not in self.warned:
            self.warned.add(subject)
            level, frame = 1, sys._getframe()
            while frame.f_back and any(one in frame.f_code.co_filename for one in LIBRARIES):
                level, frame = level + 1, frame.f_back
            warnings.warn(text, stacklevel=level)

    def refuse(self, model: torch.nn.Module, reason: str, returns_all: bool = False) -> None:
        """Warns that ``forward`` is called as it is from now on, with the reason. ``returns_all``:
        ``model(batch)`` returns all rows, not the rows of the seeds."""
        report = ForwardReport(type(model).__name__, model.training, why=reason)
        if reason not in self.told:
            self.told.add(reason)
            self.report(AccelerationReport(forward=report))
        rows = "; model(batch) returns all of them, so take [:batch.batch_size]" if returns_all else ""
        self.warn("plain", f"{report}{rows}")

    def judge(self, conv: Any, x: Any, edge_index: Any, values: Mapping[str, Any]) -> Way | str:
        """Returns how a convolution can compute its first rows alone, or the reason why not."""
        is_ours = isinstance(conv, AcceleratedConv) and set(values) <= {conv.edge_values}
        if is_ours and conv.takes_call(x, edge_index, next(iter(values.values()), None)):
            # A native layer normalises by the whole batch. What GINConv calls is not its own.
            reason = foreign.whole_reason(conv, x, self.trims) if hasattr(conv, "nn") else None
            return Way.NATIVE if reason is None else reason
        reason = foreign.whole_reason(conv, x, self.trims)
        return Way.TRIMMED if reason is None else reason


class Call:
    """One call of an accelerated model. It runs the captured graph that fits."""

    def __init__(self, model: torch.nn.Module, tracing: Tracing, bound: Bound, modules: list[Any]) -> None:
        self._model, self._tracing, self._bound, self._modules = model, tracing, bound, modules
        self._trees = {
            name: one.attributes() if isinstance(one, Batch) else one for name, one in bound.arguments.items()
        }
        self._memo = None if torch.is_grad_enabled() else tracing.memo
        least = LEAST_COPIES if self._memo is None else 0.0
        self._copies = Copies(bound.structure, bound.ids, least)
        self._shared: frozenset[int] | None = None  # the values that copies share, once a graph tells
        self.leaves = [one for one in leaves_of(self._trees) if isinstance(one, ArgumentTensor)]
        self.shapes: list[tuple[int, ...]] = []  # of what Dynamo gets for them

    def arguments(self) -> dict[str, Any]:
        """Returns the arguments for tracing, with stand-ins for rows that are read in place."""
        seen: set[int] = set()
        structure = self._bound.structure
        self.shapes.clear()

        def stand(leaf: Any) -> Any:
            if isinstance(leaf, Count):
                return int(leaf)
            if not isinstance(leaf, ArgumentTensor):
                return leaf
            made = leaf.stand_in(structure)
            made = made.view_as(made) if id(made) in seen else made
            seen.add(id(made))
            self.shapes.append(tuple(made.shape))
            return made

        return self._filled(stand)

    def _filled(self, change: Callable[[Any], Any]) -> dict[str, Any]:
        def fill(name: str, argument: Any) -> Any:
            filled = mapped(self._trees[name], change)
            return argument.copied(filled) if isinstance(argument, Batch) else filled

        return {name: fill(name, one) for name, one in self._bound.arguments.items()}

    def pattern(self) -> Any:
        """Returns the facts that a captured graph depends on, but TorchDynamo does not guard: what
        the rows of each tensor stand for, attribute names and modes of modules, and what takes
        gradients. A call with another pattern captures another graph."""

        def place(tree: Any) -> Any:
            if isinstance(tree, ArgumentTensor):
                return tree.axis, getattr(tree.value, "dtype", torch.int64), tree.columns
            if isinstance(tree, Count):
                return tree.form
            if isinstance(tree, Mapping):
                return tuple((name, place(one)) for name, one in tree.items())
            return tuple(map(place, tree)) if isinstance(tree, (list, tuple)) else None

        modules = tuple((hash(tuple(vars(one))), one.training) for one in self._modules)
        learns = tuple(one.requires_grad for one in _tensors_of(self._modules))
        return place(self._trees), self._bound.structure.hops, modules, learns, nn.current_products()

    def capture(self, function: CapturedFunction, arguments: Any, run: Any, exact: bool = False) -> Any:
        model: Any = self._model
        # Sizes of 0 and 1 have graphs of their own, unless they are treated as any others. Then
        # torch takes no size for 0, whatever it is.
        oblivious = not exact and any(size < 2 for shape in self.shapes for size in shape)
        capture = Capture(model, self._filled(lambda leaf: leaf), self._tracing.trims, oblivious)
        try:
            return function.capture(model.users_forward, arguments, capture, run)
        finally:
            self._tracing.seen.add(capture)

    def look(self, function: CapturedFunction, look: Callable[..., Any], exact: bool = False) -> str | None:
        """Calls ``look`` with the captured graph, which does not run, so that nothing has an
        effect. Returns why there is none, or None."""
        seen: list[Captured] = []

        def run(captured: Captured, values: Sequence[Any]) -> Any:
            look(captured, values)
            seen.append(captured)
            raise Miss

        try:
            self.capture(function, self.arguments(), run, exact)
        except Refusal as refusal:
            return refusal.reason
        except Miss:
            return None if seen else "TorchDynamo is turned off"
        raise AssertionError("a graph that is looked at does not run")

    def __call__(self, captured: Captured, values: tuple[Any, ...]) -> Sequence[Any]:
        graph: Graph = captured.made or self.translated(captured)
        inputs = self.inputs(graph, values)
        why = graph.wrong or graph.why_unfit(self._model, self._tracing.trims) or self.check(graph, inputs)
        if not why:
            try:
                rows = None
                if self._bound.seeds is None and self._splits(graph, inputs):
                    rows = self._with_seed_rows(graph, inputs)
                seeds = self._bound.seeds is not None
                found = self._outputs(graph, inputs, seeds=seeds) if rows is None else [rows]
            except _ERRORS as error:
                why = f"its rows could not be computed by themselves: {type(error).__name__}: {error}"
                graph.wrong = why
        if why:
            self._tracing.refuse(self._model, why)
            found = run_graph(captured, self.inputs(graph, inputs, ArgumentTensor.tensor), self._model)
        known = captured.axes_by_size() if why else graph.recording.result
        axes = [known.get(one) for one in captured.module.graph.output_node().args[0]]  # type: ignore
        self._tell_of_uncut(found, axes)
        return [first_rows(one, axis, self._bound) for one, axis in zip(found, axes, strict=True)]

    def _tell_of_uncut(self, found: Sequence[Any], axes: Sequence[Axis | None]) -> None:
        bound = self._bound
        for one, axis in zip(found, axes, strict=True):
            if bound.seeds is None or axis is None or isinstance(axis, Nodes) or not isinstance(one, Tensor):
                continue
            counts = {prefix(bound.structure, "nodes", name, bound.structure.hops) for name in bound.seeds}
            if one.dim() and one.size(0) in counts:
                self._tracing.warn(
                    "uncut",
                    f"{type(self._model).__name__}.forward returns {one.size(0)} rows that are not known "
                    f"to be those of nodes; model(batch) returns all of them, so take [:batch.batch_size]",
                )

    def translated(self, captured: Captured) -> Graph:
        tracing, model = self._tracing, self._model
        recording, wrong = Recording(), ""
        try:
            recording = translate(captured, model, tracing.judge)
        except Refusal as refusal:
            wrong = refusal.reason
        captured.find(self.leaves)
        tracing.result = list((captured.axes_by_size() if wrong else recording.result).values())
        graph = captured.made = Graph(captured, recording, wrong=wrong)
        tracing.graphs.append(graph)
        if not wrong:
            self._tell_of_statistics(recording)
            self._tell_of_all_rows(recording)
        return graph

    def _tell_of_all_rows(self, recording: Recording) -> None:
        report = forward_report(recording, self._model)
        self._tracing.report(AccelerationReport(forward=report))
        slow = [one for one in report.calls if one.how == "all rows"]
        if slow:
            where = f"{slow[0].place} and {len(slow) - 1} more" if slow[1:] else slow[0].place
            self._tracing.warn("rows", f"{report.name}.forward computes all rows at {where}: {slow[0].why}")

    def _tell_of_statistics(self, recording: Recording) -> None:
        called = [one.target.path for one in recording.calls if isinstance(one.target, ModuleCall)]
        inside = ((path, self._model.get_submodule(path).named_modules(prefix=path)) for path in called)
        norms = [name for _, each in inside for name, one in each if rules.takes_row_statistics(one)]
        if norms and self._bound.seeds is not None:
            self._tracing.warn(
                "batch norms",
                f"{type(self._model).__name__}.{norms[0]} takes statistics of the rows that model(batch) "
                f"computes, fewer than in a plain call; use LayerNorm where that matters",
            )

    def inputs(self, graph: Graph, values: Sequence[Any], of: Any = lambda leaf: leaf.value) -> list[Any]:
        each = zip(values, graph.captured.inputs, strict=True)
        return [value if one.leaf is None else of(self.leaves[one.leaf]) for value, one in each]

    def check(self, graph: Graph, inputs: Sequence[Any]) -> str:
        """Compares a new program with the graph that it was made of, once or at every 2^k-th call.
        Returns how they differ; empty if they do not."""
        graph.calls += 1
        again = self._tracing.check == "often" and graph.calls & (graph.calls - 1) == 0
        program = self._program(graph, inputs, seeds=self._bound.seeds is not None)
        if again or program not in graph.checked:
            graph.checked.add(program)
            trial = Trial(graph.captured, program, self._model, self.leaves, inputs, self._bound.ids)
            try:
                graph.wrong = difference(trial, self._bound.structure) or ""
            except Refusal as refusal:
                graph.wrong = refusal.reason
        return graph.wrong

    def _program(self, graph: Graph, inputs: Sequence[Any], *, seeds: bool) -> Program:
        if self._shared is None:
            masks = self._tracing.share_dropout and self._memo is None  # other batches have others
            self._shared = graph.shared(self._model, self._copies, inputs, masks)
        place = seeds, self._shared
        if place not in graph.programs:
            graph.programs[place] = Program(graph.recording, self._model, seeds=seeds, shared=self._shared)
        return graph.programs[place]

    def _outputs(self, graph: Graph, inputs: Sequence[Any], *, seeds: bool) -> list[Any]:
        program = self._program(graph, inputs, seeds=seeds)
        frame = Frame(program, self._model, self._bound.structure, {})
        found = run_program(frame, inputs, self._copies, self._known(program, inputs))
        self._tracing.encoded = frame.encoded
        return found

    def _known(self, program: Program, inputs: Sequence[Any]) -> Known | None:
        """Returns the rows of earlier batches, if prediction encodes each node once."""
        if self._memo is None or not program.shared or (beside := program.beside) is None:
            return None
        given = dict(zip(program.recording.inputs, inputs, strict=True))
        numbers = [given[one] for one in beside if not isinstance(given[one], Tensor)]
        others = [given[one] for one in beside if isinstance(given[one], Tensor)]
        if any(one.is_inference() for one in (*others, *_tensors_of(self._modules))):
            return None  # they have no versions
        state, alive = _state(self._modules, others)
        return self._memo.of(program, (state, numbers, torch.is_inference_mode_enabled()), alive)

    def _splits(self, graph: Graph, inputs: Sequence[Any]) -> bool:
        """Returns whether the backward pass needs the rows of the seeds alone: not if rows depend
        on each other, if a loss used other rows before, or if hooks wait for whole gradients."""
        return (
            torch.is_grad_enabled()
            and torch._C._autograd._top_saved_tensors_default_hooks(True) is None  # of a checkpoint, say
            and not (self._tracing.uses_all_rows or graph.draws)
            and graph.recording.returned == [True]
            and isinstance(axis := next(iter(graph.recording.result.values())), Nodes)
            and axis.hops > 0  # else they are those of the seeds
            and not any(one._backward_hooks or one.retains_grad for one in self._taking_gradients(inputs))
            and self._program(graph, inputs, seeds=True).is_by_row(self._model)
        )

    def _taking_gradients(self, inputs: Sequence[Any]) -> list[Tensor]:
        tensors = (*inputs, *_tensors_of(self._modules))
        found = {id(one): one for one in tensors if isinstance(one, Tensor) and one.requires_grad}
        return list(found.values())

    def _with_seed_rows(self, graph: Graph, inputs: Sequence[Any]) -> Any:
        """Returns all rows. The backward pass keeps the seeds' rows only: if a gradient for another
        row arrives, all are computed again. None if dropout then differs."""
        before, state = torch.get_rng_state(), _state(self._modules)

        def every() -> Any:
            return self._outputs(graph, inputs, seeds=False)[0]

        def again() -> Any:
            if _state(list(self._model.modules()))[0] != state[0]:
                raise RuntimeError(
                    "the loss uses rows beyond the seeds, which backward() computes again, but a mode, "
                    "an option, a parameter or a buffer of the model changed after forward"
                )
            return every()

        (seeds,) = self._outputs(graph, inputs, seeds=True)
        drawn = torch.get_rng_state()
        with torch.no_grad():
            rows = every()
        if not torch.equal(drawn, torch.get_rng_state()):
            graph.draws = True
            torch.set_rng_state(before)
            return None
        leaves = self._taking_gradients(inputs)
        if not leaves:
            return rows
        strided = (one for one in inputs if isinstance(one, Tensor) and one.layout is torch.strided)
        memory = {one.untyped_storage().data_ptr() for one in strided}
        if rows._is_view() or rows.untyped_storage().data_ptr() in memory:
            rows = rows.clone()  # which is overwritten
        autocast = functools.partial(
            torch.autocast, "cpu", torch.get_autocast_dtype("cpu"), torch.is_autocast_enabled("cpu")
        )
        return _SeedRows.apply(rows, seeds, again, autocast, self._tracing, *leaves)


class _SeedRows(torch.autograd.Function):
    """Writes the seeds' rows [S, C], which have a gradient, over the first of ``values`` [N, C]."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, seeds: Tensor, *others: Any) -> Tensor:
        values[: seeds.size(0)] = seeds
        ctx.mark_dirty(values)
        ctx.count = seeds.size(0)
        ctx.again, ctx.autocast, ctx.tracing, *ctx.leaves = others
        return values

    @staticmethod
    @ops.first_order
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        (grad,) = grads
        seeds, rest = grad[: ctx.count], grad[ctx.count :]
        if not rest.any():
            return None, seeds, None, None, None, *([None] * len(ctx.leaves))
        ctx.tracing.uses_all_rows = True
        with torch.enable_grad(), ctx.autocast():
            out = ctx.again()
        others = torch.cat([torch.zeros_like(seeds), rest])
        found = torch.autograd.grad(out, ctx.leaves, others, allow_unused=True)
        return None, seeds, None, None, None, *found


#: Errors of a program. Others, such as the one that ends a recomputation, are not its own.
_ERRORS = (RuntimeError, ValueError, TypeError, LookupError, AttributeError, AssertionError)


def _state(modules: Sequence[torch.nn.Module], others: Sequence[Tensor] = ()) -> tuple[Any, Any]:
    """Returns what a model computes with, and the objects whose numbers are in it."""
    options = [[one for one in vars(module).items() if type(one[1]) in SCALARS] for module in modules]
    tensors = [one for one in (*_tensors_of(modules), *others) if not one.is_inference()]
    memory = [one.data_ptr() if one.layout is torch.strided else 0 for one in tensors]
    versions = [(id(one), one._version) for one in tensors]
    return (list(map(id, modules)), options, versions, memory), (modules, tensors)


def _tensors_of(modules: Sequence[torch.nn.Module]) -> list[Tensor]:
    """Returns parameters and buffers, those in several places several times."""
    every = (own for one in modules for own in (one._parameters, one._buffers) if own)
    return [one for own in every for one in own.values() if one is not None]


SCALARS: frozenset[Any] = frozenset((int, float, bool, str, type(None)))


def first_rows(one: Any, axis: Any, bound: Bound) -> Any:
    """Returns the rows of the seeds, if ``one`` has a row per node and these alone are wanted."""
    if bound.seeds is None or not isinstance(axis, Nodes) or axis.name not in bound.seeds:
        return one
    count = bound.seeds[axis.name]
    return one if one.size(0) == count else one[:count]
