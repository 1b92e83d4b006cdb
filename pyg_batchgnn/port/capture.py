"""The capture of a ``forward`` by TorchDynamo, PyTorch's own tracer (design, section 9).

Dynamo reads the bytecode of a ``forward``, guards every Python value that it used, replays side
effects, and hands the backend of this file an FX graph. What it cannot see it refuses, with a
reason and a line.

A captured function is called with stand-ins for rows that are read in place: tensors of the right
shape whose memory nobody touches. The graph is handed the rows themselves.
"""

from __future__ import annotations

import abc
import builtins
import collections
import functools
import inspect
import itertools
import os
import random
import re
import sys
import threading
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.compiler import is_dynamo_compiling
from torch.utils import _pytree as pytree

from pyg_batchgnn.port import leaves, rules
from pyg_batchgnn.port.batches import ArgumentTensor
from pyg_batchgnn.port.leaves import LEAF, RETURNED, Leaf, now
from pyg_batchgnn.port.modules import CAPTURING
from pyg_batchgnn.port.recording import WHOLE, Axis, BatchEdges, Edges, Prefix, Refusal, leaves_of


class Miss(BaseException):
    """No captured graph fits a call. A user's ``except Exception`` does not catch it."""


#: Is called with a graph and the values of its placeholders, and returns those of its outputs.
Run = Callable[["Captured", tuple[Any, ...]], Sequence[Any]]


@dataclass
class Input:
    """What a placeholder of a graph stands for."""

    place: Any  # an argument or a number of it, as the function was told, or any other object
    dim: int | None  # of a size, the number of the dimension
    is_number: bool  # it is a number in a tensor
    leaf: int | None = None  # its number among the tensors of the arguments


@dataclass
class Captured:
    """An FX graph that TorchDynamo captured. It is called with the values of its placeholders."""

    module: torch.fx.GraphModule  # the graph
    inputs: list[Input]  # of each placeholder
    decided: set[str] = field(default_factory=set)  # the symbols of sizes whose comparisons it depends on
    is_sure: bool = False  # nothing took a size of 0 or 1 for another
    made: Any = None  # what its owner made of it

    def find(self, leaves: Sequence[ArgumentTensor]) -> None:
        """Finds the tensors of the arguments among the inputs, and forgets their values."""
        by_leaf = {id(one): place for place, one in enumerate(leaves)}
        for one in self.inputs:
            one.leaf = by_leaf.get(id(one.place)) if one.dim is None else None
            if isinstance(one.place, ArgumentTensor):
                one.place = replace(one.place, value=None)

    def axes_by_size(self) -> dict[torch.fx.Node, Axis]:
        """Returns what the rows of each result tensor stand for, if their number's symbol tells."""
        known = symbols(self)
        nodes = (one for one in self.module.graph.nodes if one.target is RETURNED)
        return {one: axis_of(one.meta.get("example_value"), known) for one in nodes}

    def __call__(self, *values: Any) -> Sequence[Any]:
        if now.run is None:
            raise Miss
        given = zip(values, self.inputs, strict=True)
        values = tuple(one.item() if its.is_number and isinstance(one, Tensor) else one for one, its in given)
        return now.run(self, values)


def run_graph(
    captured: Captured, values: Sequence[Any], model: Any, forward: Callable[[Any], Any] = lambda one: one
) -> list[Any]:
    """Returns the outputs of a graph for the values of its placeholders. ``forward``: returns what
    is called for a leaf module; by default the module."""
    grads = torch.is_grad_enabled()
    try:
        return list(_AsItIs(captured.module, model, forward).run(*values, enable_io_processing=False))
    finally:
        torch.set_grad_enabled(grads)


class _AsItIs(torch.fx.Interpreter):
    def __init__(self, graph: torch.fx.GraphModule, model: torch.nn.Module, forward: Any) -> None:
        super().__init__(graph)
        self.extra_traceback = False  # errors are the user's
        self._modules, self._forward = {id(one): one for one in model.modules()}, forward

    def call_method(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        is_number = target == "item" and not isinstance(args[0], Tensor)
        return args[0] if is_number else super().call_method(target, args, kwargs)

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if target is RETURNED:
            return args[0]
        if target is torch.ops.aten._assert_scalar.default:
            return None
        if target is not LEAF:
            return target(*args, **kwargs)
        leaf = Leaf.of(*args)
        if leaf.plain is not None:
            return [leaf.plain]
        return [self._forward(self._modules[leaf.module])(*leaf.args, **leaf.kwargs)]


def symbols(captured: Captured) -> dict[str, Axis]:
    found: dict[str, Axis | None] = {}
    placeholders = (one for one in captured.module.graph.nodes if one.op == "placeholder")
    for node, one in zip(placeholders, captured.inputs, strict=True):
        place = one.place
        axis = place.axis if isinstance(place, ArgumentTensor) and one.dim is None else None
        if not isinstance(axis, Prefix):
            continue
        size = node.meta["example_value"].shape[axis.dim]
        counted = Edges(axis.name, axis.hops) if isinstance(axis, BatchEdges) else axis
        if not isinstance(size, int):
            known = found.setdefault(str(size), counted)
            found[str(size)] = counted if known == counted else None
    return {symbol: axis for symbol, axis in found.items() if axis is not None}


def axis_of(value: Any, known: Mapping[str, Axis]) -> Axis:
    if not isinstance(value, Tensor) or value.dim() == 0 or isinstance(value.shape[0], int):
        return WHOLE
    return known.get(str(value.shape[0]), WHOLE)


class _Written(BaseException):
    """A ``forward`` that was to be captured writes to leaf modules. It has the set of their ids."""


@dataclass
class Capture:
    """What is captured: a call of a model. ``oblivious``: sizes of 0 and 1 are treated as others,
    else they are constants of the graph."""

    model: torch.nn.Module
    #: the arguments, with an `ArgumentTensor` for each tensor and a `Count` for each number of rows
    arguments: Mapping[str, Any]
    trims: Sequence[type[torch.nn.Module]] = ()
    oblivious: bool = False
    #: the ids of those that ``forward`` writes to. They are no leaves, which would run before what
    #: was written is replayed.
    written: set[int] = field(default_factory=set)
    #: the numbers of sizes that were computed, as expressions, and what they are in this call
    sizes: list[tuple[Any, Any]] = field(default_factory=list)
    caught: bool = False  # the user's code caught an error
    #: the classes, modules and functions that TorchDynamo read, and classes of other objects
    seen: dict[int, Any] = field(default_factory=dict)
    codes: set[types.CodeType] = field(default_factory=set)  # that TorchDynamo traced
    names: set[str] = field(default_factory=set)  # that the user's code reads

    def __post_init__(self) -> None:
        self.modules = {id(one): one for one in self.model.modules()}

    def watched(self) -> AbstractContextManager[None]:
        """Notes errors, Python objects that are read, and the expressions of sizes that the call
        computes or compares."""
        from torch._dynamo.guards import GuardBuilder
        from torch._dynamo.symbolic_convert import InstructionTranslatorBase
        from torch._dynamo.variables.builder import SourcelessBuilder, VariableBuilder
        from torch._dynamo.variables.misc import PythonModuleVariable
        from torch._dynamo.variables.tensor import SymNodeVariable
        from torch.fx.experimental.symbolic_shapes import ShapeEnv

        def noted(home: Any, name: str, note: Callable[..., Any]) -> Callable[..., Any]:
            own = getattr(home, name)

            def call(*args: Any, **options: Any) -> Any:
                found = own(*args, **options)
                if now.capture is self:
                    note(found, *args)
                return found

            return call

        def handle(_: Any, frame: Any, __: Any) -> None:
            self.caught |= not any(one in frame.f_code.co_filename for one in LIBRARIES)

        def compare(_: Any, builder: Any, guard: Any, *__: Any) -> None:
            value, exact = builder.get(guard), repr(builder.get(guard))
            if isinstance(value, (tuple, set, frozenset, float, complex)):  # (1,) == (True,), 0.0 == -0.0
                test = lambda one: repr(one) == exact  # noqa: E731
                builder.get_guard_manager(guard).add_lambda_guard(test, [exact], guard.user_stack)

        notes: list[tuple[Any, str, Callable[..., Any]]] = [
            (GuardBuilder, "EQUALS_MATCH", compare),
            (SymNodeVariable, "__init__", lambda _, __, ___, number: self.sizes.extend(_sizes_in(number))),
            (ShapeEnv, "evaluate_sym_node", lambda found, _, one, *__: self.sizes.append((found, one.hint))),
            (InstructionTranslatorBase, "exception_handler", handle),
            (VariableBuilder, "__call__", lambda _, builder, one: self._see(one, str(builder.name))),
            (PythonModuleVariable, "__init__", lambda _, __, one: self._see(one)),
        ]
        create = noted(SourcelessBuilder, "create", lambda _, __, one: self._see(one))
        functions = {(home, name): noted(home, name, note) for home, name, note in notes}
        return leaves.in_place({**functions, (SourcelessBuilder, "create"): staticmethod(create)})

    def _see(self, value: Any, name: str = "") -> None:
        """Notes a Python object. Raises Refusal if TorchDynamo reads it as it is now, without a
        guard. ``name``: how TorchDynamo reaches it."""
        one = value if isinstance(value, _NAMED) else type(value)
        self.seen[id(one)] = one
        what = _unguarded(value, name)
        if what is not None:
            where = place_of("".join(torch._guards.TracingContext.extract_stack().format()))
            raise Refusal(f"it reads {what}, whose changes PyTorch's tracer does not see ({where})")

    def check_writes(self) -> None:
        """Raises _Written if ``forward`` writes to leaf modules or parts of them."""
        from torch._dynamo.symbolic_convert import InstructionTranslator

        effects: Any = InstructionTranslator.current_tx().output.side_effects._get_modified_vars()
        if self.caught:
            raise Refusal("it catches an error, and PyTorch's tracer does not see when there is none")
        for one in effects:
            if type(one).__name__ == "UserDefinedClassVariable":
                raise Refusal(f"it writes to {one.value}, which the tracer reads as it was before")
        changed = {id(self.place(one.source)) for one in effects if getattr(one, "source", None)}
        found = set()
        for number, module in self.modules.items():
            if id(module._parameters) in changed:
                raise Refusal(f"it writes to the parameters of a {rules.kind_of(module).__name__}")
            parts = [(one, one._parameters, one._buffers, vars(one)) for one in module.modules()]
            if leaves.kind_of_leaf(module) and any(id(each) in changed for part in parts for each in part):
                found.add(number)
        if found - self.written:
            raise _Written(found)

    def place(self, source: Any) -> Any:
        """Returns the argument or part of the model that TorchDynamo's source stands for, or
        None."""
        try:
            name = source.name() if callable(source.name) else source.name
            return eval(name, {}, {"L": {"model": self.model, "arguments": self.arguments}})
        except Exception:  # it names globals, or other objects
            return None


LIBRARIES = ("-packages/", "<frozen ", f"{Path(__file__).parents[1]}/", f"{Path(os.__file__).parent}/")
_NAMED = (type, types.ModuleType, types.FunctionType)
#: What may tell sizes of 0 from others without a decision by them.
_BY_LAYOUT = {"is_contiguous", "stride", "guard_or_false", "guard_or_true", "statically_known_true"}


def _is_by_user(function: Any) -> bool:
    code = getattr(function, "__code__", None)
    return code is not None and not any(one in code.co_filename for one in LIBRARIES)


def _unguarded(value: Any, name: str) -> str | None:
    """Returns what TorchDynamo takes from an object as it is now; None if it guards it."""
    if isinstance(value, type):
        runs = [getattr(type(value), one, None) for one in ("__instancecheck__", "__getitem__", "__iter__")]
        runs.append(getattr(value, "__class_getitem__", None))
        if any(map(_is_by_user, runs)) or getattr(value, "_is_runtime_protocol", False):
            return f"what {value.__name__} tells of itself by a function"
    elif isinstance(value, types.ModuleType):
        known = globals().get(f"__import_{value.__name__.replace('.', '_dot_')}", value)  # Dynamo's name
        return None if known is value else f"another module {value.__name__} than before"
    elif isinstance(value, functools._lru_cache_wrapper):
        return f"the cache of {value.__name__}" if _is_by_user(value.__wrapped__) else None
    elif isinstance(value, collections.OrderedDict):
        return None if "_hooks" in name else "the order of an OrderedDict"
    elif getattr(value, "maxlen", None) is not None and isinstance(value, collections.deque):
        return "the greatest length of a deque"
    elif isinstance(value, (collections.ChainMap, random.Random)):
        return f"a {type(value).__name__}"
    return "the environment" if value is os.environ else None


class Seen:
    """What TorchDynamo reads without a guard: methods and numbers of names of classes, all that
    stands in metaclasses, the code of functions, names that a module or a function does not have,
    modules by their names, methods of tensors, builtins, and whether classes were registered."""

    def __init__(self) -> None:
        self._reads: dict[Any, Callable[[], Any]] = {}
        self._before = self._now()

    def _now(self) -> tuple[list[Any], list[int]]:
        found = [read() for read in self._reads.values()]
        return found, [one if type(one) is int else id(one) for one in found]

    def has_changed(self) -> bool:
        return self._now()[1] != self._before[1]

    def add(self, capture: Capture) -> None:
        self._reads[abc] = abc.get_cache_token
        self._add(builtins, capture.names & vars(builtins).keys())
        self._add(Tensor, capture.names & vars(Tensor).keys())
        for one in capture.seen.values():
            if isinstance(one, type):
                for kind in inspect.getmro(one) + inspect.getmro(type(one)):
                    self._add_class(kind, capture)
            elif isinstance(one, types.ModuleType):
                self._reads[sys, one.__name__] = functools.partial(sys.modules.get, one.__name__)
                self._add(one, capture.names - vars(one).keys())
            elif _is_by_user(one):
                self._add(one, capture.names - vars(one).keys(), _OF_FUNCTIONS)
        self._before = self._now()

    def _add(self, one: Any, names: Iterable[str], attributes: Iterable[str] = ()) -> None:
        for name in names:
            self._reads[id(one), name] = functools.partial(vars(one).get, name)
        for name in attributes:
            self._reads[id(one), name] = functools.partial(getattr, one, name)

    def _add_class(self, kind: type, capture: Capture) -> None:
        users = is_users(kind)
        for name, one in vars(kind).items():
            function = getattr(one, "fget", None) or getattr(one, "__func__", one)
            reads = issubclass(kind, type) or callable(one) or name[:2] == "__" or one is not function
            traced = name == "forward" or getattr(function, "__code__", None) in capture.codes
            if (users and reads) or traced:
                self._add(kind, [name])
                self._add(function, (), _OF_FUNCTIONS if _is_by_user(function) else ())
        if users:
            self._add(kind, (), ("__name__", "__qualname__", "__bases__"))
            self._reads[id(kind), len] = functools.partial(len, vars(kind))


_OF_FUNCTIONS = ("__code__", "__defaults__", "__kwdefaults__", "__annotations__")


@functools.lru_cache(maxsize=1024)
def is_users(kind: type) -> bool:
    home = kind.__module__.partition(".")[0]
    return home not in {"torch", "torch_geometric", "pyg_batchgnn", *sys.stdlib_module_names}


def _check_code(capture: Capture) -> None:
    """Notes the code that was traced. Raises Refusal if it reads what has no guards."""
    capture.codes.update(torch._guards.TracingContext.get_traced_code() or ())
    for code in capture.codes:
        file = code.co_filename
        if file.endswith("/torch/nn/utils/stateless.py"):
            raise Refusal("it calls a layer with other parameters than its own (functional_call)")
        if any(one in file for one in LIBRARIES):
            continue
        capture.names.update(code.co_names, (one for one in code.co_consts if isinstance(one, str)))
        for name in {"vars", "__dict__", "getrecursionlimit"}.intersection(code.co_names):
            place = f"{file.rsplit('/', 1)[-1]}:{code.co_firstlineno}"
            raise Refusal(f"it reads {name}, whose changes PyTorch's tracer does not see ({place})")


def _backend(module: torch.fx.GraphModule, _: Any) -> Captured:
    capture = now.capture
    if capture is None:
        raise Miss
    _check_code(capture)
    capture.check_writes()
    if any("numpy" in getattr(type(one.target), "__name__", "") for one in module.graph.nodes):
        raise Refusal("it computes with NumPy")
    inner = [part for part in module.modules() if isinstance(part, torch.fx.GraphModule)][1:]
    if any(node.target is LEAF for part in inner for node in part.graph.nodes):
        raise Refusal("it calls a layer within a function with a graph of its own, such as checkpoint")
    # Graphs of functions within the graph take numbers in tensors, as TorchDynamo gives them.
    numbers = not any(node.target == "item" for part in inner for node in part.graph.nodes)
    inputs = []
    for node in module.graph.nodes:
        if node.op != "placeholder":
            continue
        argument = node.meta.get("grapharg")
        source = None if argument is None else argument.source
        base = getattr(source, "base", None) if hasattr(source, "prop") else source
        place = None if base is None else capture.place(base)
        dim = getattr(source, "idx", None) if base is not source else None
        inputs.append(Input(place, dim, numbers and bool(getattr(argument, "pass_arg_as_tensor", False))))
    values = [one.meta.get("example_value") for one in module.graph.nodes]
    modes = (getattr(one, "fake_mode", None) for one in values)
    environment = next((mode.shape_env for mode in modes if mode is not None), None)
    sure = _BY_LAYOUT.isdisjoint(capture.names) and _are_right(
        [*capture.sizes, *_sizes_in(values)], environment
    )
    guards = [] if environment is None else [one.expr for one in environment.guards]
    decided = {str(symbol) for one in guards if not _is_always(one) for symbol in one.free_symbols}
    return Captured(module, inputs, decided, sure)


def _sizes_in(value: Any) -> list[tuple[Any, Any]]:
    """Returns (expression, value in this call) of all symbolic sizes in a value."""
    sizes = [size for one in leaves_of(value) for size in getattr(one, "shape", (one,))]
    kinds = torch.SymInt, torch.SymBool, torch.SymFloat
    return [(one.node.expr, one.node.hint) for one in sizes if isinstance(one, kinds)]


def _are_right(sizes: Iterable[tuple[Any, Any]], environment: Any) -> bool:
    """Returns whether the expressions give the sizes of this call, of which some may be 0.
    TorchDynamo takes sizes to be positive."""
    import sympy  # type: ignore[import-untyped]

    values = getattr(environment, "backed_var_to_val", None) or getattr(environment, "var_to_val", {})
    known = {(sympy.sympify(one), now) for one, now in sizes if now is not None}
    return all(one.xreplace(values) == now for one, now in known)


def _is_always(guard: Any) -> bool:
    """Returns whether a guard compares one size and is true from 2 on; False for equations."""
    import sympy

    if len(guard.free_symbols) != 1 or isinstance(guard, sympy.Eq):
        return False
    (symbol,) = guard.free_symbols
    if isinstance(guard, sympy.Ne):
        difference = guard.lhs - guard.rhs
        slope = difference.diff(symbol)
        root = None if not slope.is_number or slope == 0 else -difference.subs(symbol, 0) / slope
        return root is not None and not (root.is_integer and root >= 2)
    return all(guard.subs(symbol, size) == True for size in (2, 3, 1 << 40))  # noqa: E712


#: The settings of Dynamo for the time of a capture, in this thread alone. Numbers are constants of
#: a graph until they change, and inputs of the next one.
_SETTINGS: dict[str, Any] = {
    **dict.fromkeys(("allow_unspec_int_on_nn_module", "assume_static_by_default"), True),
    **dict.fromkeys(("automatic_dynamic_shapes", "allow_rnn"), True),
    **dict.fromkeys(("skip_nnmodule_hook_guards", "trace_numpy", "optimize_ddp", "disable"), False),
    **dict.fromkeys(("specialize_float", "specialize_int", "suppress_errors"), False),
    **dict.fromkeys(("error_on_recompile", "compiled_autograd"), False),
    "fake_tensor_cache_enabled": False,  # keys with symbols cost more than what is found
    "recompile_limit": 1000,
    "accumulated_recompile_limit": 100_000,
}
_capturing = threading.RLock()


def _call(forward: Any, model: Any, arguments: Any) -> Any:
    if not is_dynamo_compiling():
        raise Miss
    return pytree.tree_map_only(Tensor, RETURNED, forward(model, **arguments))


class CapturedFunction:
    """A function of a model and its arguments, with the graphs that TorchDynamo captured of it. It
    has its own code object, so that graphs of other models and of the user's ``torch.compile`` do
    not count, and its own name, by which TorchDynamo remembers numbers that changed."""

    _made = itertools.count()

    def __init__(self) -> None:
        code = _call.__code__.replace(co_name=f"forward_{next(self._made)}")
        self._function = types.FunctionType(code, globals(), "forward")
        self._compiled = torch.compile(self._function, backend=_backend, fullgraph=True)
        self._known = torch._dynamo.run(self._function)

    def run(self, forward: Any, model: torch.nn.Module, arguments: Mapping[str, Any], run: Run) -> Any:
        outer, now.run = now.run, run
        try:
            return self._known(forward, model, arguments)
        finally:
            now.run = outer

    def capture(self, forward: Any, arguments: Mapping[str, Any], capture: Capture, run: Run) -> Any:
        """Captures a call, and runs the graph as `run` does. Raises `Refusal` if TorchDynamo cannot
        trace the function, and `Miss` if it is turned off."""
        import torch.fx.experimental._config as shapes

        known = {name: one for name, one in _SETTINGS.items() if hasattr(torch._dynamo.config, name)}
        outer = now.capture, now.run
        with ExitStack() as stack:
            stack.enter_context(_capturing)
            stack.enter_context(leaves.as_leaves(capture.model.modules(), capture.trims))
            stack.enter_context(torch._dynamo.config.patch(known))
            sources: Any = torch.compiler.config
            # what differs from batch to batch: sizes and numbers of the arguments
            stack.enter_context(sources.patch(dynamic_sources=r"L\['arguments'\]"))
            stack.enter_context(capture.watched())
            patch: Any = shapes.patch  # type: ignore[attr-defined]
            stack.enter_context(patch(use_duck_shape=False, backed_size_oblivious=capture.oblivious))
            now.capture, now.run = capture, run
            CAPTURING.append(threading.get_ident())
            try:
                try:
                    return self._compiled(forward, capture.model, arguments)
                except _Written as written:
                    capture.written.update(*written.args)
                    return self._compiled(forward, capture.model, arguments)
            except torch._dynamo.exc.TorchDynamoException as error:
                raise Refusal(_reason(error)) from error
            finally:
                CAPTURING.pop()
                now.capture, now.run = outer


def _reason(error: BaseException) -> str:
    text = str(error).strip()
    what = (text or type(error).__name__).partition("\n")[0].strip().rstrip(".")
    explained = re.search(r"^ *Explanation: *(.+?)[. ]*$", text, re.MULTILINE)
    what += f": {explained[1]}" if explained else ""
    place = place_of(f"{getattr(error, 'real_stack', '')}\n{text}")
    return f"PyTorch's tracer stopped ({what}){f' ({place})' if place else ''}"


def place_of(trace: str | None) -> str:
    """Returns the innermost file and line of a traceback that is the user's, else PyG's."""
    found = [(name, f"{Path(name).name}:{line}") for name, line in _IN_TRACES.findall(trace or "")][::-1]
    ours = ("/pyg_batchgnn/port/", "/torch/", "importlib")
    places = [(name, place) for name, place in found if not any(one in name for one in ours)]
    of_users = [place for name, place in places if "torch_geometric" not in name]
    return next(iter([*of_users, *(place for _, place in places)]), "")


_IN_TRACES = re.compile(r'^ *File "(.+?)", line (\d+)', re.MULTILINE)
