"""The capture of a ``forward`` by TorchDynamo, PyTorch's own tracer (design, section 9).

Dynamo reads the bytecode of a ``forward``, guards every Python value that it used, replays side
effects, and hands the backend of this file an FX graph. What it cannot see it refuses, with a
reason and a line.

A captured function is called with stand-ins for rows that are read in place: tensors of the right
shape whose memory nobody touches. The graph is handed the rows themselves.
"""

from __future__ import annotations

import collections
import functools
import itertools
import os
import sys
import threading
import types
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.compiler import is_dynamo_compiling

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


class _WrittenError(Exception):
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

    def __post_init__(self) -> None:
        self.modules = {id(one): one for one in self.model.modules()}

    def watched(self) -> AbstractContextManager[None]:
        """Notes errors, and the expressions of sizes that the call computes or compares."""
        from torch._dynamo.symbolic_convert import InstructionTranslatorBase
        from torch._dynamo.variables.tensor import SymNodeVariable
        from torch.fx.experimental.symbolic_shapes import ShapeEnv

        made, decided = SymNodeVariable.__init__, ShapeEnv.evaluate_sym_node
        handled = InstructionTranslatorBase.exception_handler

        def make(variable: Any, proxy: Any, number: Any, **options: Any) -> None:
            made(variable, proxy, number, **options)
            self.sizes.extend(_sizes_in(number) if now.capture is self else ())

        def decide(environment: Any, node: Any, *args: Any, **options: Any) -> Any:
            found = decided(environment, node, *args, **options)
            self.sizes.extend([(found, node.hint)] if now.capture is self else ())
            return found

        def handle(frame: Any, error: Any) -> None:
            if now.capture is self:
                self.caught |= not any(one in frame.f_code.co_filename for one in LIBRARIES)
            handled(frame, error)

        places = {(SymNodeVariable, "__init__"): make, (ShapeEnv, "evaluate_sym_node"): decide}
        return leaves.in_place({**places, (InstructionTranslatorBase, "exception_handler"): handle})

    def check_writes(self) -> None:
        """Raises _WrittenError if ``forward`` writes to leaf modules or parts of them."""
        from torch._dynamo.symbolic_convert import InstructionTranslator

        effects: Any = InstructionTranslator.current_tx().output.side_effects._get_modified_vars()
        if self.caught:
            raise Refusal("it catches an error, and PyTorch's tracer does not see when there is none")
        for one in effects:
            if type(one).__name__ == "UserDefinedClassVariable":
                raise Refusal(f"it writes to {one.value}, which the tracer reads as it was before")
            if type(one).__name__ == "RandomVariable" and one.source:
                raise Refusal("it draws from a random.Random, whose state PyTorch's tracer does not see")
        changed = {id(self.place(one.source)) for one in effects if getattr(one, "source", None)}
        found = set()
        for number, module in self.modules.items():
            if id(module._parameters) in changed:
                raise Refusal(f"it writes to the parameters of a {rules.kind_of(module).__name__}")
            parts = [(one, one._parameters, one._buffers, vars(one)) for one in module.modules()]
            if leaves.kind_of_leaf(module) and any(id(each) in changed for part in parts for each in part):
                found.add(number)
        if found - self.written:
            raise _WrittenError(found)

    def place(self, source: Any) -> Any:
        """Returns the argument or part of the model that TorchDynamo's source stands for, or
        None."""
        try:
            name = source.name() if callable(source.name) else source.name
            return eval(name, {}, {"L": {"model": self.model, "arguments": self.arguments}})
        except Exception:  # it names globals, or other objects
            return None


#: What Dynamo does not guard, though it follows it.
LIBRARIES = ("-packages/", "<frozen ", f"{Path(__file__).parents[1]}/", f"{Path(os.__file__).parent}/")
_UNGUARDED = ("vars", "__dict__", "lru_cache", "cache_info", "environ", "getenv")


#: The users' classes with methods that were captured. No guard notices that they got others.
CALLED = set[type]()
#: What may tell sizes of 0 from others without a decision by them.
_BY_LAYOUT = {"is_contiguous", "stride", "guard_or_false", "guard_or_true", "statically_known_true"}


def _check_code(capture: Capture) -> Collection[str]:
    """Returns the names that the user's code reads. Raises Refusal for those without guards."""
    names: dict[str, str] = {}
    users = set[types.CodeType]()
    for code in torch._guards.TracingContext.get_traced_code() or ():
        file = code.co_filename
        if file.endswith("/torch/nn/utils/stateless.py"):
            raise Refusal("it calls a layer with other parameters than its own (functional_call)")
        if not any(one in file for one in LIBRARIES):
            place = f"{file.rsplit('/', 1)[-1]}:{code.co_firstlineno}"
            names.update(dict.fromkeys(code.co_names, place))
            users.add(code)
    files = {one.co_filename for one in users}
    homes = [one for one in list(sys.modules.values()) if getattr(one, "__file__", None) in files]
    kinds = {one for home in homes for one in vars(home).values() if isinstance(one, type)}
    for kind in kinds:
        methods = [one for base in kind.__mro__ for one in vars(base).values()]
        CALLED.update({kind} if any(getattr(one, "__code__", None) in users for one in methods) else ())
    for name, place in names.items():
        if any(isinstance(vars(one).get(name), functools._lru_cache_wrapper) for one in homes):
            raise Refusal(f"{name} has a cache, which PyTorch's tracer does not know ({place})")
        if name in _UNGUARDED:
            raise Refusal(f"it reads {name}, whose changes PyTorch's tracer does not see ({place})")
    for module in capture.modules.values():
        for name in names.keys() & vars(module).keys():
            value: Any = vars(module)[name]
            bounded = isinstance(value, collections.deque) and value.maxlen is not None
            if bounded or (isinstance(value, collections.OrderedDict) and not name.endswith("_hooks")):
                what = "greatest length of the deque" if bounded else "order of the OrderedDict"
                raise Refusal(f"PyTorch's tracer does not know the {what} {name} ({names[name]})")
    return names


def _backend(module: torch.fx.GraphModule, _: Any) -> Captured:
    capture = now.capture
    if capture is None:
        raise Miss
    names = _check_code(capture)
    capture.check_writes()
    if any("numpy" in getattr(type(one.target), "__name__", "") for one in module.graph.nodes):
        raise Refusal("it computes with NumPy")
    inner = [part for part in module.modules() if isinstance(part, torch.fx.GraphModule)][1:]
    if any(node.target is LEAF for part in inner for node in part.graph.nodes):
        raise Refusal("it calls a layer within a function with a graph of its own, such as checkpoint")
    inputs = []
    for node in module.graph.nodes:
        if node.op != "placeholder":
            continue
        argument = node.meta.get("grapharg")
        source = None if argument is None else argument.source
        base = getattr(source, "base", None) if hasattr(source, "prop") else source
        place = None if base is None else capture.place(base)
        dim = getattr(source, "idx", None) if base is not source else None
        inputs.append(Input(place, dim, bool(getattr(argument, "pass_arg_as_tensor", False))))
    values = [one.meta.get("example_value") for one in module.graph.nodes]
    modes = (getattr(one, "fake_mode", None) for one in values)
    environment = next((mode.shape_env for mode in modes if mode is not None), None)
    sure = _BY_LAYOUT.isdisjoint(names) and _are_right([*capture.sizes, *_sizes_in(values)], environment)
    return Captured(module, inputs, _decided(environment), sure)


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


def _decided(environment: Any) -> set[str]:
    guards = [] if environment is None else [one.expr for one in environment.guards]
    return {str(symbol) for one in guards if not _is_always(one) for symbol in one.free_symbols}


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


#: What differs from batch to batch: sizes and numbers of the arguments.
_OF_BATCHES = r"L\['arguments'\]"
#: The settings of Dynamo for the time of a capture, in this thread alone. Numbers are constants of
#: a graph until they change, and inputs of the next one.
_SETTINGS = {
    "skip_nnmodule_hook_guards": False,
    "allow_unspec_int_on_nn_module": True,
    "assume_static_by_default": True,
    "automatic_dynamic_shapes": True,
    "trace_numpy": False,
    "optimize_ddp": False,
    "specialize_float": False,
    "specialize_int": False,
    "fake_tensor_cache_enabled": False,  # keys with symbols cost more than what is found
    "recompile_limit": 1000,
    "accumulated_recompile_limit": 100_000,
    "suppress_errors": False,
    "error_on_recompile": False,
    "allow_rnn": True,
    "compiled_autograd": False,
    "disable": False,
}
_capturing = threading.RLock()


def _returned(tree: Any) -> Any:
    if isinstance(tree, Tensor):
        return RETURNED(tree)
    if type(tree) in (dict, collections.OrderedDict):
        return type(tree)([(name, _returned(one)) for name, one in tree.items()])
    if type(tree) in (tuple, list):
        return type(tree)([_returned(one) for one in tree])
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*[_returned(one) for one in tree])
    return tree


def _call(forward: Any, model: Any, arguments: Any) -> Any:
    if not is_dynamo_compiling():
        raise Miss
    return _returned(forward(model, **arguments))


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
            stack.enter_context(sources.patch(dynamic_sources=_OF_BATCHES))
            stack.enter_context(capture.watched())
            patch: Any = shapes.patch  # type: ignore[attr-defined]
            stack.enter_context(patch(use_duck_shape=False, backed_size_oblivious=capture.oblivious))
            now.capture, now.run = capture, run
            CAPTURING.append(threading.get_ident())
            try:
                return self._compile(forward, arguments, capture)
            except torch._dynamo.exc.TorchDynamoException as error:
                raise Refusal(_reason(error)) from error
            finally:
                CAPTURING.pop()
                now.capture, now.run = outer

    def _compile(self, forward: Any, arguments: Mapping[str, Any], capture: Capture) -> Any:
        try:
            return self._compiled(forward, capture.model, arguments)
        except torch._dynamo.exc.TorchDynamoException as error:
            inside = getattr(error, "inner_exception", None) or error.__cause__
            if not isinstance(inside, _WrittenError):
                raise
            capture.written.update(*inside.args)
            return self._compiled(forward, capture.model, arguments)


def _reason(error: BaseException) -> str:
    inside: BaseException | None = error
    while inside is not None and not isinstance(inside, Refusal):
        inside = getattr(inside, "inner_exception", None) or inside.__cause__
    if isinstance(inside, Refusal):
        return inside.reason
    text = str(error).strip()
    first, *rest = text.splitlines() or [type(error).__name__]
    explained = next((one.strip() for one in rest if one.strip().startswith("Explanation:")), None)
    what = first.strip().rstrip(".")
    if explained:
        what = f"{what}: {explained.removeprefix('Explanation:').strip()}".rstrip(".")
    place = place_of(text) or place_of("\n".join(str(getattr(error, "real_stack", "")).splitlines()))
    return f"PyTorch's tracer stopped ({what}){f' ({place})' if place else ''}"


def place_of(trace: str | None) -> str:
    nearest = ""
    for line in reversed((trace or "").splitlines()):
        head, found, rest = line.strip().partition('File "')
        if head or not found:
            continue
        name, _, rest = rest.partition('", line ')
        place = f"{name.rsplit('/', 1)[-1]}:{rest.split(',')[0].split()[0]}"
        if "/pyg_batchgnn/port/" in name or "/torch/" in name or "importlib" in name:
            continue
        if "torch_geometric" not in name:
            return place
        nearest = nearest or place
    return nearest
