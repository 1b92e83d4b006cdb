"""Models whose ``forward`` was captured, and which compute what is asked of them (design, section
9)."""

from __future__ import annotations

import functools
import inspect
import sys
import warnings
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.compiler import is_dynamo_compiling
from torch_geometric.nn.conv import HeteroConv, MessagePassing
from torch_geometric.nn.dense.linear import is_uninitialized_parameter

from pyg_batchgnn import nn
from pyg_batchgnn.port import foreign, rules
from pyg_batchgnn.port.batches import ArgumentTensor
from pyg_batchgnn.port.binding import BatchArgument, Bound, bind
from pyg_batchgnn.port.capture import LIBRARIES, Captured, CapturedFunction, Done, Miss, operations
from pyg_batchgnn.port.check import Trial, difference
from pyg_batchgnn.port.execution import Frame
from pyg_batchgnn.port.execution import run as run_program
from pyg_batchgnn.port.graph_run import axes_of_outputs, axes_of_result, run_graph
from pyg_batchgnn.port.inputs import is_symbolic, is_traced
from pyg_batchgnn.port.modules import AcceleratedConv, AcceleratedHeteroConv
from pyg_batchgnn.port.program import Program
from pyg_batchgnn.port.recording import (
    Axis,
    Count,
    ModuleCall,
    Nodes,
    Recording,
    Ref,
    Refusal,
    Way,
    flat,
    mapped,
)
from pyg_batchgnn.port.report import AccelerationReport, forward_report, log_report, refused
from pyg_batchgnn.port.seed_rows import with_seed_rows, with_this_autocast
from pyg_batchgnn.port.structure import prefix
from pyg_batchgnn.port.translate import translate
from pyg_batchgnn.types import SampledMinibatch

_MOST_GRAPHS = 16  # of a model
_TOO_MANY = "it was captured {} times for other arguments and attributes"


@dataclass
class Graph:
    """A captured ``forward``, and the programs that compute what is asked of it."""

    captured: Captured  # the graph of Dynamo
    recording: Recording
    leaves: list[int | None]  # of each placeholder, its number among the tensors of the arguments, or None
    programs: dict[bool, Program] = field(default_factory=dict)  # by whether the seeds' rows alone are wanted
    draws: bool = False  # numbers are drawn anew whenever it runs, beside the one of its own dropout
    wrong: str = ""  # the reason why it is not used, or empty
    states: dict[int, Any] = field(default_factory=dict)  # by call, the options of its module
    calls: int = 0

    def program(self, model: torch.nn.Module, *, seeds: bool) -> Program:
        if seeds not in self.programs:
            self.programs[seeds] = Program(self.recording, model, seeds=seeds)
        return self.programs[seeds]

    def returned_axes(self) -> list[Axis | None]:
        """Returns what the rows of each output are; None of those that are not returned."""
        outputs = zip(self.recording.output, self.recording.returned, strict=True)
        axes = self.recording.axes
        return [axes[one.number] if returned and isinstance(one, Ref) else None for one, returned in outputs]

    def why_unfit(self, model: torch.nn.Module, trims: Sequence[type[torch.nn.Module]]) -> str | None:
        """Returns why rows cannot be computed as they were at the time of the capture, or None."""
        for number, call in enumerate(self.recording.calls):
            if not isinstance(call.target, ModuleCall):
                continue
            conv = model.get_submodule(call.target.path)
            if call.message_passing is None:
                # which rows it looks at, and which it writes to
                looks = rules.module_rule(conv), rules.takes_row_statistics(conv)
                state = *looks, getattr(conv, "inplace", False), conv.training
                if self.states.setdefault(number, state) != state:
                    return f"options of {call.target.path} changed"
            trimmed = call.message_passing is Way.TRIMMED and call.target.method == "forward"
            if trimmed and not isinstance(conv, HeteroConv):
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
    uses_all_rows: bool = False  # True once a loss used other rows than the seeds'
    is_sequential: bool = False  # the model is a `Sequential` of PyG without a ``forward`` of the user's
    entries: dict[Any, Entry] = field(default_factory=dict)  # by the pattern of the arguments
    differs: dict[Any, bool] = field(default_factory=dict)  # by pattern and sizes of 0: in what is done
    graphs: list[Graph] = field(default_factory=list)  # all that were captured
    result: list[Axis] | None = None  # what the rows of each tensor in the result are, if a graph told
    warned: set[str] = field(default_factory=set)  # the subjects of warnings that were given
    told: set[str] = field(default_factory=set)  # the reasons that were reported
    classes: dict[type, dict[str, Any]] = field(default_factory=dict)  # their methods in the last call

    def __deepcopy__(self, memo: Any) -> Tracing:
        return Tracing(self.trims, self.rows, self.report, self.check, is_sequential=self.is_sequential)

    def __reduce__(self) -> Any:
        made = functools.partial(Tracing, check=self.check, is_sequential=self.is_sequential)
        return made, (self.trims, self.rows)

    def entry(self, pattern: Any, exact: bool = False) -> Entry:
        if pattern not in self.entries:
            self.entries[pattern] = Entry(exact)
        return self.entries[pattern]

    def warn(self, subject: str, text: str) -> None:
        """Warns, once for each subject, of what costs speed or changes numbers."""
        if subject not in self.warned:
            self.warned.add(subject)
            level, frame = 1, sys._getframe()
            while frame.f_back and any(one in frame.f_code.co_filename for one in LIBRARIES):
                level, frame = level + 1, frame.f_back
            warnings.warn(text, stacklevel=level)

    def refuse(self, model: torch.nn.Module, reason: str, returns_all: bool = False) -> None:
        """Says that all rows are computed from now on, call by call. ``returns_all``: what
        ``model(batch)`` returns is not cut to the rows of the seeds."""
        report = refused(model, reason)
        if reason not in self.told:
            self.told.add(reason)
            self.report(AccelerationReport(forward=report))
        rows = "; model(batch) returns all of them, so take [:batch.batch_size]" if returns_all else ""
        self.warn("plain", f"{report}{rows}")

    def judge(self, conv: Any, x: Any, edge_index: Any, values: Mapping[str, Any]) -> Way | str:
        """Returns how the first rows of a convolution are computed, or why all are."""
        is_ours = isinstance(conv, AcceleratedConv) and set(values) <= {conv.edge_values}
        if is_ours and conv.takes_call(x, edge_index, next(iter(values.values()), None)):
            # A native layer normalises by the whole batch. What GINConv calls is not its own.
            reason = foreign.whole_reason(conv, x, self.trims) if hasattr(conv, "nn") else None
            return Way.NATIVE if reason is None else reason
        if isinstance(conv, HeteroConv):
            return Way.NATIVE if isinstance(conv, AcceleratedHeteroConv) else Way.TRIMMED
        reason = foreign.whole_reason(conv, x, self.trims)
        return Way.TRIMMED if reason is None else reason


class TracedModel(torch.nn.Module):
    """A user's model that `accelerate` traces, before the user's class. It is called as the user's
    model is, with the same results, or as ``model(batch)``."""

    stands_for: ClassVar[type[torch.nn.Module]]
    #: The parameters that a batch gives values to; all where None.
    bound_names: ClassVar[tuple[str, ...] | None] = None

    @functools.cached_property
    def _batchgnn(self) -> Tracing:
        return Tracing()  # of a model that was made by ``type(model)(...)``

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        if is_dynamo_compiling():
            return self.users_forward(self, *args, **kwargs)
        own = self.users_forward
        if is_traced() or is_symbolic(*args, *kwargs.values()):
            return own(self, *args, **kwargs)
        tracing = self._batchgnn
        by_type = isinstance(self, torch.fx.GraphModule)
        bound = bind(own, args, kwargs, rows=tracing.rows, names=self.bound_names, by_type=by_type)
        if bound is None:
            self._tell_of_call(own, (*args, *kwargs.values()))
            return own(self, *args, **kwargs)
        if bound.left_out:
            names = ", ".join(f"{name}=batch.{name}" for name in bound.left_out)
            tracing.warn(
                "left out",
                f"{type(self).__name__} is called without {' and '.join(bound.left_out)} of the batch, "
                f"because forward has a default; to use it, call model(batch, {names})",
            )
        result = run(self, tracing, bound)
        if not isinstance(result, Plain):
            if bound.seeds is not None and not _is_cut(result):
                tracing.warn(
                    "uncut",
                    f"{type(self).__name__} returns a {type(result).__name__}, whose rows model(batch) does "
                    f"not cut to those of the seeds; return tensors, or tuples and dicts of them",
                )
            return result
        plain = result
        try:
            if bound.by_name:
                result = own(self, **{name: _materialised(one) for name, one in bound.arguments.items()})
            else:
                result = own(self, *args, **kwargs)
        except BaseException:
            plain.forget()  # it may be the call that is wrong
            raise
        if plain.reason is not None:
            tracing.refuse(self, plain.reason, bound.seeds is not None and not plain.cuts)
        elif plain.cuts and bound.seeds is not None and tracing.result is None:
            learn_result(self, tracing, bound)
        return _cut(result, bound, tracing.result) if plain.cuts else result

    @property
    def users_forward(self) -> Callable[..., Any]:
        """The user's ``forward``, as a function of the model and its arguments."""
        if not self._batchgnn.is_sequential:
            return self.stands_for.forward
        signature: Any = self.signature
        return _forward_of_sequential(tuple(signature.param_dict))

    def _tell_of_call(self, forward: Callable[..., Any], given: Sequence[Any]) -> None:
        """Warns, once, of calls that are always plain."""
        kinds = [one.kind for one in inspect.signature(forward).parameters.values()]
        tensors = (one for one in given if type(one).__name__ == "SparseTensor" or isinstance(one, Tensor))
        sparse = next((one for one in tensors if getattr(one, "layout", None) is not torch.strided), None)
        name = type(self).__name__
        if inspect.Parameter.VAR_POSITIONAL in kinds:
            text = "it takes *args, whose names are not known; write its parameters out"
        elif any(isinstance(one, SampledMinibatch) for one in given):
            text = "a forward that takes the batch itself needs PyG's batches; leave out export='native'"
        elif sparse is not None:
            text = f"its edges are a {type(sparse).__name__}; give edge_index, without ToSparseTensor"
        elif any(isinstance(one, Mapping) and any(isinstance(key, tuple) for key in one) for one in given):
            text = "its dicts do not hold the rows of every type that its edges join; give all of them"
        else:
            return  # nothing says that it is about a graph
        self._batchgnn.warn("call", f"{name}.forward is called plainly, for all rows, because {text}")

    def __init_subclass__(cls, **options: Any) -> None:
        if "stands_for" not in vars(cls):
            super().__init_subclass__(**options)
        else:  # the user's class is known already to what its bases register; tools see its signature

            @functools.wraps(cls.stands_for.forward)
            def forward(self: TracedModel, *args: Any, **kwargs: Any) -> Any:
                return TracedModel.forward(self, *args, **kwargs)

            cls.forward = forward  # type: ignore[method-assign]


def _is_cut(result: Any) -> bool:
    """Returns whether a result is of a form whose tensors are cut."""
    if isinstance(result, (tuple, list)):
        return all(map(_is_cut, result))
    if type(result) in (dict, OrderedDict):
        return all(map(_is_cut, result.values()))
    return isinstance(result, (Tensor, *_SCALARS))


@functools.lru_cache(maxsize=64)
def _forward_of_sequential(names: tuple[str, ...]) -> Callable[..., Any]:
    """Returns a ``forward`` for a `Sequential` of PyG, as a function of it and its arguments. PyG
    writes one for each instance, and puts it on the class, where that of another may stand."""

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        values, found = {**dict(zip(names, args, strict=False)), **kwargs}, None
        for child in self._children:
            found = getattr(self, child.name)(*(values[name] for name in child.param_names))
            several = len(child.return_names) > 1
            values.update(zip(child.return_names, found if several else (found,), strict=False))
        return found

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [inspect.Parameter(name, kind) for name in ("self", *names)]
    forward.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return forward


def _reduced(self: TracedModel, protocol: Any) -> Any:
    """Returns what a copy or a file holds of a model: its class is made again from the user's."""
    state = self.__getstate__() if hasattr(self, "__getstate__") else None
    del protocol
    return _rebuild, (self.stands_for,), self.__dict__ if state is None else state


def _rebuild(kind: type[torch.nn.Module]) -> torch.nn.Module:
    traced = traced_class(kind)
    return traced.__new__(traced)


_classes: dict[type[torch.nn.Module], type[torch.nn.Module]] = {}


def traced_class(kind: type[torch.nn.Module]) -> type[torch.nn.Module]:
    """Returns the class that a user's model becomes. It bears the name of the user's class."""
    if kind not in _classes:
        body = {
            **{"stands_for": kind, "__reduce_ex__": _reduced},
            **{"__doc__": kind.__doc__, "__module__": kind.__module__, "__qualname__": kind.__qualname__},
        }
        made = type(kind.__name__, (TracedModel, kind), body)
        _classes[kind] = made
    return _classes[kind]


@dataclass(frozen=True)
class Plain:
    reason: str | None = None  # if it is a new one
    cuts: bool = True  # the result is cut to the rows of the seeds, as graphs of the model tell
    forget: Callable[[], Any] = lambda: None  # takes the verdict back


def run(model: torch.nn.Module, tracing: Tracing, bound: Bound) -> Any:
    """Computes a call by a captured graph, which is captured where there is none. Returns the
    result, or a `Plain` where ``forward`` must be called plainly."""
    if any(map(must_be_called, (one for one in model.modules() if one is not model))):
        return Plain()
    if any(map(is_uninitialized_parameter, model.parameters())):
        return Plain()  # the first plain call says how wide lazy modules are
    _check_classes(model, tracing)
    try:
        call = Call(model, tracing, bound)
        arguments = call.arguments()
        entry = _entry(tracing, call, _pattern(model, bound), arguments)
    except Refusal as refusal:  # of objects in a batch
        return Plain(None if "plain" in tracing.warned else refusal.reason, cuts=False)
    grads = torch.is_grad_enabled()
    if grads in entry.refused:
        return Plain(cuts=entry.refused[grads] == _TOO_MANY.format(_MOST_GRAPHS))
    try:
        try:
            return entry.function.run(model.users_forward, model, arguments, call)
        except Miss:
            if len(tracing.graphs) >= _MOST_GRAPHS:
                entry.refused[grads] = _TOO_MANY.format(_MOST_GRAPHS)
                return Plain(None if "plain" in tracing.warned else entry.refused[grads])
        return call.capture(entry.function, arguments, call, entry.exact)
    except Miss:
        entry.refused[grads] = "TorchDynamo is turned off"
    except Refusal as refusal:
        entry.refused[grads] = refusal.reason
    return Plain(entry.refused[grads], False, functools.partial(entry.refused.pop, grads, None))


def _entry(tracing: Tracing, call: Call, pattern: Any, arguments: Any) -> Entry:
    """Returns the graphs of a call. Graphs that treat a size of 0 as any other serve those sizes
    for which ``forward`` does the same as for others; else these sizes have graphs of their own."""
    zeros = tuple(
        (place, tuple(map(bool, one.shape)))
        for place, one in enumerate(rules.tensors(arguments))
        if 0 in one.shape
    )
    if not zeros:
        return tracing.entry(pattern)
    if (pattern, zeros) not in tracing.differs:
        seen: list[list[Any]] = [[], []]
        for exact in (False, True):
            see = lambda captured, _, found=seen[exact]: found.extend(operations(captured))  # noqa: E731
            call.look(CapturedFunction(), see, exact)
        tracing.differs[pattern, zeros] = seen[0] != seen[1]
    differs = tracing.differs[pattern, zeros]
    return tracing.entry((pattern, zeros if differs else ()), exact=differs)


def learn_result(model: torch.nn.Module, tracing: Tracing, bound: Bound) -> None:
    """Learns what the rows of a result are where ``forward`` was called plainly: for lazy modules,
    or for hooks, which must see that call."""

    def look(captured: Captured, values: Sequence[Any]) -> None:
        del values
        captured.made = call.translated(captured)

    try:
        call = Call(model, tracing, bound)
        entry = _entry(tracing, call, _pattern(model, bound), call.arguments())
        reason = call.look(entry.function, look, entry.exact)
    except Refusal as refusal:
        reason = refusal.reason
    if reason is not None:
        tracing.result = []
        tracing.refuse(model, reason, True)


def must_be_called(module: torch.nn.Module) -> bool:
    """Returns whether somebody waits for a module to be called, or changed what it calls. PyG calls
    no hooks on messages while torch compiles."""
    hooked = isinstance(module, MessagePassing) and foreign.has_message_hooks(module)
    changed = isinstance(module, nn.NativeConv) and nn.as_made(module) is None
    return hooked or changed or nn.is_watched(module)


def _check_classes(model: torch.nn.Module, tracing: Tracing) -> None:
    """Forgets all graphs if a class of the user's got other methods, which Dynamo does not see."""
    kinds = {one for module in model.modules() for one in type(module).__mro__ if _is_users(one)}
    wrappers = (property, staticmethod, classmethod)
    now = {
        kind: {name: one for name, one in vars(kind).items() if callable(one) or isinstance(one, wrappers)}
        for kind in kinds
    }
    if now != tracing.classes:
        if tracing.classes:
            tracing.entries.clear()
            tracing.differs.clear()
        tracing.classes = now


@functools.lru_cache(maxsize=1024)
def _is_users(kind: type) -> bool:
    home = kind.__module__.partition(".")[0]
    return home not in ("torch", "torch_geometric", "pyg_batchgnn", "builtins", "abc", "typing")


class Call:
    """One call of a model, which runs the graph that fits it."""

    def __init__(self, model: torch.nn.Module, tracing: Tracing, bound: Bound) -> None:
        self._model, self._tracing, self._bound = model, tracing, bound
        self.trims = tracing.trims
        self._trees = {
            name: one.batch.attributes() if isinstance(one, BatchArgument) else one
            for name, one in bound.arguments.items()
        }
        self.leaves: list[ArgumentTensor] = []
        add = self.leaves.append
        mapped(self._trees, lambda leaf: add(leaf) if isinstance(leaf, ArgumentTensor) else None)

    def arguments(self) -> dict[str, Any]:
        """Returns the arguments for Dynamo, with stand-ins for rows that are read in place."""
        seen: set[int] = set()
        structure = self._bound.structure

        def stand(leaf: Any) -> Any:
            if isinstance(leaf, Count):
                return int(leaf)
            if not isinstance(leaf, ArgumentTensor):
                return leaf
            made = leaf.stand_in(structure)
            made = made.view_as(made) if id(made) in seen else made
            seen.add(id(made))
            return made

        return self._filled(stand)

    def described(self) -> dict[str, Any]:
        return self._filled(lambda leaf: leaf)

    def _filled(self, change: Callable[[Any], Any]) -> dict[str, Any]:
        def fill(name: str, argument: Any) -> Any:
            filled = mapped(self._trees[name], change)
            return argument.batch.copied(filled) if isinstance(argument, BatchArgument) else filled

        return {name: fill(name, one) for name, one in self._bound.arguments.items()}

    def capture(self, function: CapturedFunction, arguments: Any, run: Any, exact: bool = False) -> Any:
        model: Any = self._model
        given = model.users_forward, model, arguments, self.described(), run, self.trims, exact
        return function.capture(*given)

    def look(self, function: CapturedFunction, look: Callable[..., Any], exact: bool = False) -> str | None:
        """Captures the call and shows ``look`` the graph, which is not run. Returns why it cannot
        be captured, or None."""

        def run(captured: Captured, values: Sequence[Any]) -> Any:
            look(captured, values)
            raise Done

        try:
            self.capture(function, self.arguments(), run, exact)
        except Miss:
            return "TorchDynamo is turned off"
        except Refusal as refusal:
            return refusal.reason
        except Done:
            pass
        return None

    def __call__(self, captured: Captured, values: tuple[Any, ...]) -> Sequence[Any]:
        model, tracing, bound = self._model, self._tracing, self._bound
        if captured.made is None:
            captured.made = self.translated(captured)
        graph: Graph = captured.made
        inputs = self.inputs(graph, values)
        why = graph.wrong or graph.why_unfit(model, tracing.trims) or self.check(graph, inputs)
        if why:
            return self._as_it_is(graph, inputs, why)
        if bound.seeds is None and self._splits(graph, inputs):
            rows = self._with_seed_rows(graph, inputs)
            if rows is not None:
                return [rows]
        try:
            found = self._outputs(graph, inputs, seeds=bound.seeds is not None)
        except _ERRORS as error:
            graph.wrong = f"its rows could not be computed by themselves: {type(error).__name__}: {error}"
            return self._as_it_is(graph, inputs, graph.wrong)
        axes = graph.returned_axes()
        self._tell_of_uncut(found, axes)
        return [_first_rows(one, axis, bound) for one, axis in zip(found, axes, strict=True)]

    def _tell_of_uncut(self, found: Sequence[Any], axes: Sequence[Axis | None]) -> None:
        """Warns of results that have as many rows as there are nodes, and are not cut."""
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
        by_leaf = {id(one): place for place, one in enumerate(self.leaves)}
        leaves = [
            by_leaf.get(id(one)) if dim is None else None
            for one, dim in zip(captured.places, captured.dims, strict=True)
        ]
        try:
            recording, wrong = translate(captured, model, tracing.judge), ""
        except Refusal as refusal:
            recording, wrong = Recording(), refusal.reason
        captured.forget()
        tracing.result = axes_of_result(captured) if wrong else recording.result
        graph = Graph(captured, recording, leaves, wrong=wrong)
        tracing.graphs.append(graph)
        if wrong:
            return graph
        self._tell_of_statistics()
        report = forward_report(recording, model)
        tracing.report(AccelerationReport(forward=report))
        slow = [one for one in report.calls if one.how == "all rows"]
        if slow:
            one = slow[0]
            more = f" and {len(slow) - 1} more" if len(slow) > 1 else ""
            tracing.warn("rows", f"{report.name}.forward computes all rows at {one.place}{more}: {one.why}")
        return graph

    def _tell_of_statistics(self) -> None:
        norms = [name for name, one in self._model.named_modules() if rules.takes_row_statistics(one)]
        if norms and self._bound.seeds is not None:
            self._tracing.warn(
                "batch norms",
                f"{type(self._model).__name__}.{norms[0]} takes statistics of the rows that model(batch) "
                f"computes, fewer than in a plain call; use LayerNorm where that matters",
            )

    def inputs(self, graph: Graph, values: Sequence[Any]) -> list[Any]:
        return [
            value if place is None else self.leaves[place].value
            for value, place in zip(values, graph.leaves, strict=True)
        ]

    def check(self, graph: Graph, inputs: Sequence[Any]) -> str:
        """Compares the program of a new graph with the graph itself, once or at every 2^k-th call,
        and returns how they differ, or an empty text."""
        seeds, structure = self._bound.seeds is not None, self._bound.structure
        graph.calls += 1
        again = self._tracing.check == "often" and graph.calls & (graph.calls - 1) == 0
        if again or seeds not in graph.programs:
            program = graph.program(self._model, seeds=seeds)
            trial = Trial(graph.captured, program, self._model, self.leaves, graph.leaves, inputs)
            try:
                graph.wrong = difference(trial, structure) or ""
            except Refusal as refusal:
                graph.wrong = refusal.reason
        return graph.wrong

    def _as_it_is(self, graph: Graph, inputs: Sequence[Any], why: str) -> list[Any]:
        """Returns the outputs of a graph that is run call by call, on all rows."""
        self._tracing.refuse(self._model, why)
        values = [
            value if place is None else self.leaves[place].tensor()
            for value, place in zip(inputs, graph.leaves, strict=True)
        ]
        found = run_graph(graph.captured, values, self._model)
        axes = axes_of_outputs(graph.captured)
        self._tell_of_uncut(found, axes)
        return [_first_rows(one, axis, self._bound) for one, axis in zip(found, axes, strict=True)]

    def _outputs(self, graph: Graph, inputs: Sequence[Any], *, seeds: bool) -> list[Any]:
        program = graph.program(self._model, seeds=seeds)
        return run_program(Frame(program, self._model, self._bound.structure, {}), inputs)

    def _splits(self, graph: Graph, inputs: Sequence[Any]) -> bool:
        """Returns whether gradients are computed for the rows of the seeds first: not if rows
        depend on each other, once a loss used other rows, or if hooks wait for a whole gradient."""
        return (
            torch.is_grad_enabled()
            and torch._C._autograd._top_saved_tensors_default_hooks(True) is None  # of a checkpoint, say
            and not (self._tracing.uses_all_rows or graph.draws)
            and graph.recording.returned == [True]
            and isinstance(graph.returned_axes()[0], Nodes)
            and self._bound.structure.hops > 0
            and not any(one._backward_hooks or one.retains_grad for one in self._taking_gradients(inputs))
            and graph.program(self._model, seeds=True).is_by_row(self._model)
        )

    def _taking_gradients(self, inputs: Sequence[Any]) -> list[Tensor]:
        tensors = (*inputs, *self._model.parameters(), *self._model.buffers())
        found = {id(one): one for one in tensors if isinstance(one, Tensor) and one.requires_grad}
        return list(found.values())

    def _with_seed_rows(self, graph: Graph, inputs: Sequence[Any]) -> Any:
        """Returns all rows, with gradients of the seeds' rows; None if every run drops others."""
        before, state = torch.get_rng_state(), _state(self._model)

        def every() -> Any:
            return self._outputs(graph, inputs, seeds=False)[0]

        def again() -> Any:
            if _state(self._model) != state:
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
        if rows._is_view() or any(isinstance(one, Tensor) and share_memory(one, rows) for one in inputs):
            rows = rows.clone()  # which is overwritten
        note = functools.partial(setattr, self._tracing, "uses_all_rows", True)
        return with_seed_rows(rows, seeds, leaves, with_this_autocast(again), note)


#: Errors of a program. Others, such as the one that ends a recomputation, are not its own.
_ERRORS = (RuntimeError, ValueError, TypeError, LookupError, AttributeError, AssertionError)


def _state(model: torch.nn.Module) -> Any:
    """Returns what a program reads of a model when it runs, in a form that compares."""
    modules = [
        (id(one), [(name, value) for name, value in vars(one).items() if type(value) in _SCALARS])
        for one in model.modules()
    ]
    tensors = (*model.parameters(), *model.buffers())
    return modules, [(id(one), one._version) for one in tensors if not one.is_inference()]


_SCALARS = (int, float, bool, str, type(None))


def share_memory(one: Tensor, other: Tensor) -> bool:
    if one is other:
        return True
    memory = [each.untyped_storage() for each in (one, other) if each.layout is torch.strided]
    return len(memory) == 2 and memory[0].nbytes() > 0 and memory[0].data_ptr() == memory[1].data_ptr()


def _first_rows(one: Any, axis: Any, bound: Bound) -> Any:
    """Returns the rows of the seeds of rows of nodes, if they alone are wanted."""
    if bound.seeds is None or not isinstance(axis, Nodes) or axis.name not in bound.seeds:
        return one
    count = bound.seeds[axis.name]
    return one if one.size(0) == count else one[:count]


def _cut(result: Any, bound: Bound, axes: Sequence[Axis] | None) -> Any:
    """Returns the result of a plain call with the rows of the seeds, as a graph would. ``axes``:
    what the rows of each tensor are; nothing is cut where None."""
    if bound.seeds is None or axes is None or len(flat(result)) != len(axes):
        return result
    each = iter(axes)

    def cut(leaf: Any) -> Any:
        axis = next(each) if isinstance(leaf, Tensor) else None
        if not isinstance(axis, Nodes) or not leaf.dim():
            return leaf
        every = prefix(bound.structure, "nodes", axis.name, min(axis.hops, bound.structure.hops))
        return _first_rows(leaf, axis, bound) if leaf.size(0) == every else leaf

    return mapped(result, cut)


def _materialised(tree: Any) -> Any:
    def make(leaf: Any) -> Any:
        if isinstance(leaf, ArgumentTensor):
            return leaf.tensor()
        return int(leaf) if isinstance(leaf, Count) else leaf

    return mapped(tree, make)


def _pattern(model: torch.nn.Module, bound: Bound) -> Any:
    """Returns what a graph depends on that Dynamo does not see: what is known of each tensor, the
    names of attributes and the modes of modules, and what takes gradients."""

    def place(tree: Any) -> Any:
        if isinstance(tree, ArgumentTensor):
            return tree.axis, getattr(tree.value, "dtype", torch.int64), tree.columns
        if isinstance(tree, Count):
            return tree.form
        if isinstance(tree, (list, tuple)):
            return tuple(map(place, tree))
        if isinstance(tree, Mapping):
            return tuple((name, place(one)) for name, one in tree.items())
        return place(tree.batch.attributes()) if isinstance(tree, BatchArgument) else None

    arguments = tuple((name, place(one)) for name, one in bound.arguments.items())
    modules = tuple((hash(tuple(vars(one))), one.training) for one in model.modules())
    learns = tuple(one.requires_grad for one in model.parameters())
    return arguments, bound.structure.hops, modules, learns, nn.current_products()
