"""Models whose ``forward`` was recorded, and which compute what is asked of them (design, section
9)."""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData
from torch_geometric.nn.conv import HeteroConv
from torch_geometric.nn.dense.linear import is_uninitialized_parameter

from pyg_batchgnn import nn
from pyg_batchgnn.port import foreign, own_layers
from pyg_batchgnn.port.batches import ArgumentTensor
from pyg_batchgnn.port.binding import BatchArgument, Bound, bind
from pyg_batchgnn.port.execution import Frame
from pyg_batchgnn.port.execution import run as run_program
from pyg_batchgnn.port.inputs import is_symbolic, is_traced
from pyg_batchgnn.port.module_state import ModuleState, Settings, calm, contents, restored
from pyg_batchgnn.port.modules import AcceleratedConv, AcceleratedHeteroConv
from pyg_batchgnn.port.program import Program
from pyg_batchgnn.port.record import Recorder, record, share_memory
from pyg_batchgnn.port.recording import ModuleCall, Recording, Ref, Way, differs, flat, mapped
from pyg_batchgnn.port.report import AccelerationReport, forward_report, log_report, refused
from pyg_batchgnn.port.seed_rows import with_seed_rows, with_this_autocast
from pyg_batchgnn.port.structure import prefix
from pyg_batchgnn.port.values import Count, Nodes, Refusal

#: Graphs that a model may have. More patterns of arguments than that are not recorded.
_MOST_GRAPHS = 16
#: Batches whose results are compared with the plain ones. Their sizes differ.
_COMPARED = 2
#: Modules in which recording may fail before the model is left as it is.
_MOST_LEAVES = 16
_recording = threading.local()


def is_recording() -> bool:
    """Returns whether this thread records a ``forward`` now."""
    return bool(getattr(_recording, "active", False))


@dataclass
class Graph:
    """A recorded ``forward`` for one pattern of arguments.

    Attributes:
        states: of the modules that it depends on, by path.
        settings: outside of the modules.
        paths: of the modules whose ``forward`` was recorded, and of those that it calls.
        programs: by whether the seeds' rows alone are wanted.
        draws: numbers are drawn anew whenever it runs, beside the one of its own dropout.
        sizes: the sizes of the batches whose results were compared.
    """

    recording: Recording
    states: dict[str, ModuleState]
    settings: Settings
    paths: list[str]
    programs: dict[bool, Program] = field(default_factory=dict)
    draws: bool = False
    sizes: list[tuple[Any, ...]] = field(default_factory=list)

    def fits(self, model: torch.nn.Module) -> bool:
        """Returns whether everything is as it was when ``forward`` was recorded."""
        try:
            parts = [(model.get_submodule(path), state) for path, state in self.states.items()]
        except AttributeError:  # one is gone
            return False
        return all(state.change(part) is None for part, state in parts) and self.settings.change() is None

    def may_run(self, model: torch.nn.Module) -> bool:
        """Returns whether nobody waits for a module to be called as PyG calls it."""
        return not any(must_be_called(model.get_submodule(path)) for path in self.paths if path)


@dataclass
class Tracing:
    """The graphs of a model's ``forward``, and how it was accelerated.

    Attributes:
        trims: classes of convolutions that the user declares safe to trim.
        rows: "seeds" if a ``forward`` that takes a batch is asked for the rows of the seeds.
        report: is told how ``forward`` is computed.
        uses_all_rows: True once a loss used other rows than the seeds'.
        is_full: no further graphs are recorded.
        is_sequential: the model is a `Sequential` of PyG without a ``forward`` of the user's.
        is_told: the report says why a call could not be recorded at all.
        graphs: by the pattern of the arguments, several for other attributes; or the reason why
            there is none.
    """

    trims: tuple[type[torch.nn.Module], ...] = ()
    rows: str | None = None
    report: Callable[[AccelerationReport], None] = log_report
    uses_all_rows: bool = False
    is_full: bool = False
    is_sequential: bool = False
    is_told: bool = False
    graphs: dict[Any, list[Graph | str]] = field(default_factory=dict)

    def __deepcopy__(self, memo: Any) -> Tracing:
        return Tracing(self.trims, self.rows, self.report, is_sequential=self.is_sequential)

    def __reduce__(self) -> Any:
        return functools.partial(Tracing, is_sequential=self.is_sequential), (self.trims, self.rows)

    def note_all_rows(self) -> None:
        self.uses_all_rows = True

    def tell_once(self, model: torch.nn.Module, reason: str) -> None:
        """Reports why calls cannot be recorded at all."""
        if not self.is_told:
            self.is_told = True
            self.report(AccelerationReport(forward=refused(model, reason)))

    def judge(self, conv: Any, x: Any, edge_index: Any, values: Mapping[str, Any]) -> Way | str:
        """Returns how the first rows of a convolution are computed, or why all are."""
        is_ours = isinstance(conv, AcceleratedConv) and set(values) <= {conv.edge_values}
        if is_ours and conv.takes_call(x, edge_index, next(iter(values.values()), None)):
            # A native layer normalises by the whole batch. What GINConv calls is not its own.
            reason = foreign.whole_reason(conv, x, self.trims) if hasattr(conv, "nn") else None
            return Way.NATIVE if reason is None else reason
        if isinstance(conv, HeteroConv):
            return Way.NATIVE if isinstance(conv, AcceleratedHeteroConv) else Way.TRIMMED
        trims = self.trims
        if foreign.is_users(conv) and not isinstance(conv, trims):
            reason = own_layers.whole_reason(conv, x, edge_index, values)
            if reason is not None:
                return f"{type(conv).__name__} {reason}; {foreign.how_to_name(conv)}"
            trims = (*trims, foreign.kind_of(conv))
        reason = foreign.whole_reason(conv, x, trims)
        return Way.TRIMMED if reason is None else reason


class TracedModel(torch.nn.Module):
    """A user's model that `accelerate` traces. It stands before the user's class.

    It is called as the user's model is, with the same results, or as ``model(batch)``.
    """

    stands_for: ClassVar[type[torch.nn.Module]]
    #: The parameters that a batch gives values to; all where None.
    bound_names: ClassVar[tuple[str, ...] | None] = None

    @functools.cached_property
    def _batchgnn(self) -> Tracing:
        return Tracing()  # of a model that was made by ``type(model)(...)``

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        own = self.users_forward
        plain = functools.partial(own, self)
        if is_recording() or is_traced() or is_symbolic(*args, *kwargs.values()):
            return plain(*args, **kwargs)
        by_type = isinstance(self, torch.fx.GraphModule)
        bound = bind(own, args, kwargs, rows=self._batchgnn.rows, names=self.bound_names, by_type=by_type)
        if bound is None:
            self._tell_of_names(own)
            return plain(*args, **kwargs)
        found, result = run(self, self._batchgnn, bound)
        if found:
            return result
        if bound.by_name:
            values = {name: _materialised(one) for name, one in bound.arguments.items()}
            return _cut(plain(**values), bound, None)
        return _cut(plain(*args, **kwargs), bound, None)

    @property
    def users_forward(self) -> Callable[..., Any]:
        """The user's ``forward``, as a function of the model and its arguments."""
        if not self._batchgnn.is_sequential:
            return self.stands_for.forward
        signature: Any = self.signature
        return _forward_of_sequential(tuple(signature.param_dict))

    def _tell_of_names(self, forward: Callable[..., Any]) -> None:
        """Reports, once, that the arguments of ``forward`` have no names."""
        kinds = [one.kind for one in inspect.signature(forward).parameters.values()]
        if inspect.Parameter.VAR_POSITIONAL in kinds:
            reason = "it takes *args, whose names are not known; write its parameters out"
            self._batchgnn.tell_once(self, reason)

    def __init_subclass__(cls, **options: Any) -> None:
        if "stands_for" not in vars(cls):
            super().__init_subclass__(**options)
        else:  # the user's class is known already to what its bases register; tools see its signature

            @functools.wraps(cls.stands_for.forward)
            def forward(self: TracedModel, *args: Any, **kwargs: Any) -> Any:
                return TracedModel.forward(self, *args, **kwargs)

            cls.forward = forward  # type: ignore[method-assign]


@functools.lru_cache(maxsize=64)
def _forward_of_sequential(names: tuple[str, ...]) -> Callable[..., Any]:
    """Returns a ``forward`` for a `Sequential` of PyG, as a function of it and its arguments.

    PyG writes one for each instance, and puts it on the class as well: that of another one may
    stand there.
    """

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
    del protocol
    return _rebuild, (self.stands_for,), self.__dict__


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


# Running ##########################################################################################


def run(model: torch.nn.Module, tracing: Tracing, bound: Bound) -> tuple[bool, Any]:
    """Computes a call by a recorded graph, which is recorded where there is none.

    Returns:
        True and the result; or False where ``forward`` must be called plainly.
    """
    graph, plain = _graph(model, tracing, bound)
    if graph is None:
        return False, None
    program = _program(graph, model, bound.seeds is not None)
    if not (graph.may_run(model) and program.holds(bound.structure)) or not _is_right(
        graph, model, tracing, bound, plain
    ):
        return False, None
    try:
        if bound.seeds is None and _splits(graph, model, tracing, bound):
            rows = _with_seed_rows(graph, model, tracing, bound)
            if rows is not None:
                return True, rows
        found = _rows(graph, model, bound, bound.seeds is not None)
    except Refusal:
        return False, None
    return True, _cut(found, bound, graph.recording)


def _splits(graph: Graph, model: torch.nn.Module, tracing: Tracing, bound: Bound) -> bool:
    """Returns whether gradients are computed for the rows of the seeds first.

    They are not if rows depend on each other, once a loss used other rows, or if hooks wait for a
    gradient, which would come in two parts.
    """
    output = graph.recording.output
    return (
        torch.is_grad_enabled()
        and not (tracing.uses_all_rows or graph.draws)
        and not any(map(_waits_for_gradient, _taking_gradients(model, bound)))
        and isinstance(output, Ref)
        and isinstance(graph.recording.axes[output.number], Nodes)
        and bound.structure.hops > 0
        and _program(graph, model, seeds=True).is_by_row(model)
    )


def _taking_gradients(model: torch.nn.Module, bound: Bound) -> list[Tensor]:
    given = [one.value for one in _leaves(bound) if isinstance(one.value, Tensor)]
    return [one for one in (*given, *model.parameters()) if one.requires_grad]


def _waits_for_gradient(one: Tensor) -> bool:
    return bool(one._backward_hooks) or one.retains_grad


def _with_seed_rows(graph: Graph, model: torch.nn.Module, tracing: Tracing, bound: Bound) -> Any:
    """Returns all rows, with gradients of the seeds' rows; None if every run drops others."""
    before = torch.get_rng_state()

    def every() -> Any:
        return _rows(graph, model, bound, seeds=False)

    seeds = _rows(graph, model, bound, seeds=True)
    drawn = torch.get_rng_state()
    with torch.no_grad():
        rows = every()
    if not torch.equal(drawn, torch.get_rng_state()):
        graph.draws = True
        torch.set_rng_state(before)
        return None
    if rows._is_view() or any(isinstance(one, Tensor) and share_memory(one, rows) for one in _inputs(bound)):
        rows = rows.clone()  # which is overwritten
    leaves = _taking_gradients(model, bound)
    if not leaves:
        return rows
    return with_seed_rows(rows, seeds, leaves, with_this_autocast(every), tracing.note_all_rows)


def _rows(graph: Graph, model: torch.nn.Module, bound: Bound, seeds: bool) -> Any:
    return run_program(_program(graph, model, seeds), Frame(model, bound.structure, {}), _inputs(bound))


def _program(graph: Graph, model: torch.nn.Module, seeds: bool) -> Program:
    if seeds not in graph.programs:
        graph.programs[seeds] = Program(graph.recording, model, seeds=seeds)
    return graph.programs[seeds]


def _graph(model: torch.nn.Module, tracing: Tracing, bound: Bound) -> tuple[Graph | None, Any]:
    """Returns the graph of a call, None if there is none, and what ``forward`` returned if it was
    recorded just now."""
    try:
        pattern = _pattern(model, bound)
    except Refusal as refusal:
        tracing.tell_once(model, refusal.reason)
        return None, None
    known = tracing.graphs.setdefault(pattern, [])
    for one in known:
        if isinstance(one, str):
            return None, None
        if one.fits(model):
            return one, None
    if sum(map(len, tracing.graphs.values())) >= _MOST_GRAPHS:
        reason = f"it was recorded {_MOST_GRAPHS} times for other arguments and attributes"
        if not tracing.is_full:
            tracing.report(AccelerationReport(forward=refused(model, reason)))
        tracing.is_full = True
        if known:
            known.append(reason)
        else:
            del tracing.graphs[pattern]
        return None, None
    if any(is_uninitialized_parameter(one) for one in model.parameters()):
        return None, None  # the first plain call says how wide lazy modules are
    if any(must_be_called(one) for one in model.modules() if one is not model):
        return None, None  # hooks see what plain calls would show them, once
    try:
        recording, plain = recorded(model, tracing, bound)
        graph = graph_of(recording, model)
    except Refusal as refusal:
        known.append(refusal.reason)
        tracing.report(AccelerationReport(forward=refused(model, refusal.reason)))
        return None, None
    known.append(graph)
    tracing.report(AccelerationReport(forward=forward_report(recording, model)))
    return graph, plain


def must_be_called(module: torch.nn.Module) -> bool:
    """Returns whether somebody waits for a module to be called, or changed what it calls."""
    return nn.is_watched(module) or (isinstance(module, nn.NativeConv) and nn.as_made(module) is None)


def graph_of(recording: Recording, model: torch.nn.Module) -> Graph:
    targets = (one.target for one in recording.calls)
    called = dict.fromkeys(one.path for one in targets if isinstance(one, ModuleCall))
    read = {path: names for path, names in recording.reads.items() if names}
    for path in ("", *recording.inlined):
        read[path] = {*recording.reads[path], "forward"}
    states = {path: ModuleState(model.get_submodule(path), names) for path, names in read.items()}
    for path in called:
        module = model.get_submodule(path)
        # What a native convolution reads of itself is compared at every call anyway (`nn.as_made`).
        known = {"", *module.read_parts} if isinstance(module, nn.NativeConv) else set()
        for name, part in module.named_modules():
            inside = f"{path}.{name}" if name else path
            if name not in known and name != "aggr_module" and inside not in recording.writers:
                states[inside] = ModuleState(part)
    settings = Settings()
    for path, names in read.items():
        settings.add(model.get_submodule(path), names)
    return Graph(recording, states, settings, [*recording.inlined, *called])


def recorded(model: torch.nn.Module, tracing: Tracing, bound: Bound) -> tuple[Recording, Any]:
    """Records ``forward``. A module in which that fails is called as one step.

    Returns:
        The recording, and what ``forward`` returned, without dropout.
    """
    leaves: dict[str, str] = {}
    while True:
        recorder = Recorder(model, tracing.judge, bound.structure.counter, tuple(leaves))
        try:
            recording, plain = _record_once(model, recorder, bound)
        except Refusal as refusal:
            known = not refusal.path or refusal.path in leaves
            if known or refusal.is_final or len(leaves) >= _MOST_LEAVES:
                raise
            leaves[refusal.path] = refusal.reason
            continue
        for call in recording.calls:
            if isinstance(call.target, ModuleCall) and call.target.path in leaves:
                call.note = leaves[call.target.path]
        return recording, plain


def _record_once(model: Any, recorder: Recorder, bound: Bound) -> tuple[Recording, Any]:
    arguments = {name: _registered(one, recorder) for name, one in bound.arguments.items()}
    batches = [one for one in arguments.values() if isinstance(one, (Data, HeteroData))]
    before = [one.to_dict() for one in batches]
    _recording.active = True
    try:
        found = record(recorder, functools.partial(model.users_forward, model), (), arguments)
        if any(not _same_tree(one.to_dict(), was) for one, was in zip(batches, before, strict=True)):
            raise Refusal("it writes to the batch")
        return found
    finally:
        _recording.active = False


def _same_tree(one: Any, other: Any) -> bool:
    """Returns whether nested dicts hold the same objects."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same_tree(one[key], other[key]) for key in one)
    return one is other or (not isinstance(one, Tensor) and type(one) is type(other) and bool(one == other))


def _registered(tree: Any, recorder: Recorder) -> Any:
    """Returns an argument as a recorded call gets it."""

    def register(leaf: Any) -> Any:
        if not isinstance(leaf, ArgumentTensor):
            return leaf
        return recorder.add_input(leaf.tensor(), leaf.axis)

    if isinstance(tree, BatchArgument):
        return tree.batch.copied(mapped(tree.batch.attributes(), register))
    return mapped(tree, register)


def _tree(argument: Any) -> Any:
    return argument.batch.attributes() if isinstance(argument, BatchArgument) else argument


def _materialised(tree: Any) -> Any:
    def make(leaf: Any) -> Any:
        if isinstance(leaf, ArgumentTensor):
            return leaf.tensor()
        return int(leaf) if isinstance(leaf, Count) else leaf

    return mapped(tree, make)


def _leaves(bound: Bound) -> list[ArgumentTensor]:
    found: list[ArgumentTensor] = []

    def see(leaf: Any) -> Any:
        if isinstance(leaf, ArgumentTensor):
            found.append(leaf)
        return leaf

    for one in bound.arguments.values():
        mapped(_tree(one), see)
    return found


def _inputs(bound: Bound) -> list[Any]:
    return [one.value for one in _leaves(bound)]


def _pattern(model: torch.nn.Module, bound: Bound) -> Any:
    """Returns what a graph depends on beside the attributes of modules."""

    def place(leaf: Any) -> Any:
        if isinstance(leaf, ArgumentTensor):
            return (leaf.axis, leaf.kind)
        if isinstance(leaf, Count):
            return ("count", leaf.form)
        return contents(leaf)

    arguments = tuple((name, _hashable(mapped(_tree(one), place))) for name, one in bound.arguments.items())
    autocast = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")
    training = tuple(one.training for one in model.modules())
    return arguments, bound.structure.hops, training, torch.is_grad_enabled(), autocast, nn.current_products()


def _hashable(tree: Any) -> Any:
    if isinstance(tree, (list, tuple)):
        return type(tree).__name__, tuple(map(_hashable, tree))
    if isinstance(tree, Mapping):
        return tuple((name, _hashable(one)) for name, one in tree.items())
    if isinstance(tree, slice):
        return "slice", tree.start, tree.stop, tree.step
    return tree


def _cut(result: Any, bound: Bound, recording: Recording | None) -> Any:
    """Returns the seeds' rows of a result, where there are rows of other nodes as well.

    Args:
        recording: tells which rows each tensor of the result has; where None, their number does.
    """
    if bound.seeds is None:
        return result
    seeds, structure = bound.seeds, bound.structure
    axes: list[Any] = []
    if recording is not None:
        mapped(recording.output, lambda leaf: axes.append(_axis_of(leaf, recording)))
    places = iter(axes)
    seeded = [name for name, count in seeds.items() if count]
    only = seeded[0] if len(seeded) == 1 else None

    def cut(leaf: Any, key: Any) -> Any:
        axis = next(places, None)
        name = axis.name if isinstance(axis, Nodes) else key
        if not isinstance(leaf, Tensor) or leaf.dim() == 0 or name not in seeds:
            return leaf
        counts = {prefix(structure, "nodes", name, hops) for hops in range(structure.hops + 1)}
        return leaf[: seeds[name]] if leaf.size(0) in counts and leaf.size(0) != seeds[name] else leaf

    if isinstance(result, dict) and set(result) <= set(seeds):  # by type
        return {name: mapped(one, functools.partial(cut, key=name)) for name, one in result.items()}
    return mapped(result, functools.partial(cut, key=only))


def _axis_of(leaf: Any, recording: Recording) -> Any:
    return recording.axes[leaf.number] if isinstance(leaf, Ref) else None


# Comparing ########################################################################################


def _is_right(graph: Graph, model: Any, tracing: Tracing, bound: Bound, plain: Any) -> bool:
    """Compares the results for the first batches with those of plain calls.

    Returns False if a result differed: the graph is given up then.

    Args:
        plain: what ``forward`` returned for the batch, if it was recorded just now.
    """
    structure = bound.structure
    sizes = (bound.seeds is None, *structure.sizes())
    if len(graph.sizes) >= _COMPARED or sizes in graph.sizes:
        return True
    graph.sizes.append(sizes)
    try:
        place = None
        if plain is None:
            recording, plain = recorded(model, tracing, bound)
            place = differs(graph.recording, recording)
        reason = difference(graph, model, bound, plain)
        if place is not None:
            reason = f"it keeps a number of one batch, or a branch that one took ({place})"
    except Refusal as refusal:
        reason = refusal.reason
    except Exception as error:  # a graph of other sizes: the plain forward tells the user's own errors
        reason = f"its graph failed for this batch: {type(error).__name__}: {error}"
    if reason is None:
        return True
    tracing.report(AccelerationReport(forward=refused(model, reason)))
    for known in tracing.graphs.values():
        known[:] = [reason if one is graph else one for one in known]
    return False


def difference(graph: Graph, model: Any, bound: Bound, plain: Any) -> str | None:
    """Returns how the result of a graph differs from that of a plain call, or None."""
    program = _program(graph, model, bound.seeds is not None)
    with restored(model), ExitStack() as stack, torch.no_grad():
        for call in graph.recording.calls:
            if isinstance(call.target, ModuleCall):
                stack.enter_context(calm(model.get_submodule(call.target.path)))
        found = run_program(program, Frame(model, bound.structure, {}, drops=False), _inputs(bound))
    expected, own = (flat(_cut(one, bound, graph.recording)) for one in (plain, found))
    for one, other in zip(expected, own, strict=True):
        if one.shape != other.shape or not _is_close(one.detach(), other):
            return "its result differed from that of the plain forward"
    return None


def _is_close(expected: Tensor, found: Tensor) -> bool:
    if not expected.is_floating_point():
        return torch.equal(expected, found)
    wide = expected.double()
    scale = float(wide.abs().nan_to_num().amax()) if wide.numel() else 0.0
    rough = expected.dtype in (torch.bfloat16, torch.float16) or torch.is_autocast_enabled("cpu")
    tolerance = 0.1 if rough else 1e-7 if expected.dtype == torch.float64 else 1e-3
    return torch.allclose(
        found.double(), wide, rtol=tolerance, atol=tolerance * scale + 1e-12, equal_nan=True
    )
