"""The capture of a ``forward`` by TorchDynamo, PyTorch's own tracer (design, section 9).

Dynamo reads the bytecode of a ``forward``, guards every Python value that it used, replays side
effects, and hands the backend of this file an FX graph. Convolutions, norms and other known modules
are leaves: one operator each, which names the module. What Dynamo cannot see it refuses, with a
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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
import torch_geometric.nn
from torch import Tensor
from torch.compiler import is_dynamo_compiling
from torch_geometric.nn.conv import HeteroConv, MessagePassing

from pyg_batchgnn.nn.models import is_row_wise_norm
from pyg_batchgnn.port import foreign, rules
from pyg_batchgnn.port.batches import ArgumentTensor
from pyg_batchgnn.port.inputs import CAPTURING
from pyg_batchgnn.port.recording import Refusal, mapped


class Miss(BaseException):
    """No captured graph fits a call. It passes the user's ``except Exception``."""


class Done(BaseException):
    """A graph was captured and looked at. It is not run, so that nothing has an effect yet."""


_library = torch.library.Library("pyg_batchgnn_port", "DEF")
for _schema in (
    "leaf(Tensor[] tensors, int module, str names, Tensor? learns) -> Tensor",
    "leaf_by_type(Tensor[] tensors, int module, str names, Tensor? learns) -> Tensor[]",
    "propagate(Tensor plain, Tensor[] tensors, int module, str names, Tensor? learns) -> Tensor",
    "returned(Tensor tensor) -> Tensor",
):
    _library.define(_schema)
_operators = torch.ops.pyg_batchgnn_port
LEAF, LEAF_BY_TYPE = _operators.leaf.default, _operators.leaf_by_type.default
PROPAGATE, RETURNED = _operators.propagate.default, _operators.returned.default
#: Between the names of the tensors of a leaf, and inside of the names of types and relations.
BETWEEN, INSIDE = "\x1f", "\x1e"
#: The ``forward``, or ``propagate``, of the classes of leaves, and the names of their arguments.
_originals: dict[tuple[type, str], Any] = {}
_names: dict[type, tuple[str, ...]] = {}


#: Is called with a graph and the values of its placeholders, and returns those of its outputs.
Run = Callable[["Captured", tuple[Any, ...]], Sequence[Any]]


class _Local(threading.local):
    capture: Capture | None = None
    run: Run | None = None


_local = _Local()


_JUMPS = torch_geometric.nn.JumpingKnowledge
#: Modules of torch and PyG, beside linear layers and norms of each row, that are one step.
_OF_ONE = (
    *(torch.nn.BatchNorm1d, torch_geometric.nn.BatchNorm, torch_geometric.nn.InstanceNorm),
    *(torch_geometric.nn.MLP, _JUMPS, torch.nn.ReLU, torch.nn.Dropout),
)


def kind_of_leaf(module: torch.nn.Module, trims: Sequence[type[torch.nn.Module]]) -> str | None:
    """Returns how the calls of a module are captured: as those of a "conv", of "types", of a module
    of "one" tensor, or, in a layer of the user's own, as those of its "propagate"; None for a
    module whose ``forward`` is captured call by call."""
    if isinstance(module, MessagePassing):
        users = foreign.is_users(module) and not isinstance(module, tuple(trims))
        return "propagate" if users else "conv"
    if isinstance(module, HeteroConv):
        return "types"
    kind = rules.kind_of(module)
    known = kind in (*rules.LINEAR, *_OF_ONE)
    return "one" if known or (is_row_wise_norm(module) and kind is not torch.nn.Identity) else None


def _original(module: Any, name: str) -> Any:
    for kind in type(module).__mro__:
        if (kind, name) in _originals:
            return _originals[kind, name]
    raise AssertionError(name)


#: Is given to leaves whose parameters take gradients, so that their results say that they do.
_LEARNS = torch.zeros((), requires_grad=True)


@torch._dynamo.assume_constant_result  # type: ignore[untyped-decorator]
def _learns(number: int) -> bool:
    """Returns whether parameters of a module take gradients, which patterns of calls tell apart."""
    assert _local.capture is not None
    return any(one.requires_grad for one in _local.capture.modules[number].parameters())


@torch._dynamo.assume_constant_result  # type: ignore[untyped-decorator]
def _is_part(number: int) -> bool:
    """Returns whether a module is a part of the model, and not held in a list, say."""
    capture = _local.capture
    return capture is not None and number in capture.modules and number not in capture.written


def _conv_forward(self: Any, *args: Any, **kwargs: Any) -> Any:
    original = _original(self, "forward")
    if not is_dynamo_compiling() or type(self) not in _names or not _is_part(id(self)):
        return original(self, *args, **kwargs)
    given = dict(zip(_names[type(self)], args, strict=False))
    given.update(kwargs)
    tensors: list[Tensor] = []
    names: list[str] = []
    simple = True
    for name, one in given.items():
        if isinstance(one, Tensor):
            tensors.append(one)
            names.append(name)
        elif isinstance(one, (tuple, list)) and len(one) == 2 and name == "x":
            simple = simple and isinstance(one[0], Tensor) and isinstance(one[1], Tensor)
            tensors.extend(one)
            names.extend(("x.0", "x.1"))
        elif one is not None:
            simple = False
    if simple and "edge_index" in names and ("x" in names or "x.0" in names):
        return LEAF(tensors, id(self), BETWEEN.join(names), _LEARNS if _learns(id(self)) else None)
    return original(self, *args, **kwargs)


def _forward_of_one(self: Any, *args: Any, **kwargs: Any) -> Any:
    simple = not kwargs and len(args) > 0 and isinstance(args[0], (Tensor, list))
    for one in args[1:]:
        simple = simple and one is None
    simple = simple and (type(self), "forward") in _originals
    if not is_dynamo_compiling() or not simple or not _is_part(id(self)):
        return _original(self, "forward")(self, *args, **kwargs)
    if isinstance(args[0], list):
        return LEAF(args[0], id(self), BETWEEN, _LEARNS if _learns(id(self)) else None)
    return LEAF([args[0]], id(self), "x", _LEARNS if _learns(id(self)) else None)


def _forward_of_types(self: Any, *args: Any, **kwargs: Any) -> Any:
    original = _original(self, "forward")
    simple = len(args) == 2 and not kwargs and isinstance(args[0], dict) and isinstance(args[1], dict)
    if not is_dynamo_compiling() or not simple or not _is_part(id(self)):
        return original(self, *args, **kwargs)
    x, edges = args
    tensors: list[Tensor] = []
    names: list[str] = []
    for name, one in x.items():
        if not isinstance(name, str) or not isinstance(one, Tensor):
            return original(self, *args, **kwargs)
        tensors.append(one)
        names.append(name)
    for relation, one in edges.items():
        if not isinstance(relation, tuple) or not isinstance(one, Tensor):
            return original(self, *args, **kwargs)
        tensors.append(one)
        names.append(INSIDE.join(relation))
    targets: dict[str, None] = {}
    for relation, _ in self.convs.items():
        source, _, target = relation
        if relation in edges:
            if source not in x or target not in x:
                return original(self, *args, **kwargs)
            targets[target] = None
    if not targets:
        return original(self, *args, **kwargs)
    names.append(INSIDE + INSIDE.join(targets))
    learns = _LEARNS if _learns(id(self)) else None
    made = LEAF_BY_TYPE(tensors, id(self), BETWEEN.join(names), learns)
    return dict(zip(targets, made, strict=True))


def _propagate(self: Any, edge_index: Any, size: Any = None, **kwargs: Any) -> Any:
    plain = _original(self, "propagate")(self, edge_index, size=size, **kwargs)
    plainly = not isinstance(plain, Tensor) or not isinstance(edge_index, Tensor)
    if not is_dynamo_compiling() or plainly or not _is_part(id(self)):
        return plain
    tensors, names, simple = [edge_index], ["edge_index"], True
    for name, one in kwargs.items():
        if isinstance(one, Tensor):
            tensors.append(one)
            names.append(name)
        elif one is not None:
            simple = False
    learns = _LEARNS if _learns(id(self)) else None
    return PROPAGATE(plain, tensors, id(self), BETWEEN.join(names), learns) if simple else plain


_FORWARDS = {
    "conv": ("forward", _conv_forward),
    "one": ("forward", _forward_of_one),
    "types": ("forward", _forward_of_types),
    "propagate": ("propagate", _propagate),
}
_OURS = [function for _, function in _FORWARDS.values()]


@contextmanager
def _leaves(model: torch.nn.Module, trims: Sequence[type[torch.nn.Module]]) -> Iterator[None]:
    """Puts the functions above in the place of the ``forward`` of leaves, which Dynamo reads. A
    call in another thread goes to the original."""
    functions: dict[tuple[type, str], Any] = {}
    for module in model.modules():
        kind, how = type(module), kind_of_leaf(module, trims)
        if how is None or (kind, name := _FORWARDS[how][0]) in functions:
            continue
        functions[kind, name] = _FORWARDS[how][1]
        _originals[kind, name] = getattr(kind, name)
        if how == "conv":
            _names[kind] = rules.argument_names(module)
    with _in_place(functions):
        yield


@contextmanager
def _in_place(functions: Mapping[tuple[type, str], Any]) -> Iterator[None]:
    """Sets attributes of classes for the duration of a block; None takes away the class's own."""
    before = {(kind, name): vars(kind).get(name) for kind, name in functions}

    def put(values: Mapping[tuple[type, str], Any]) -> None:
        for (kind, name), one in values.items():
            if one is None:
                delattr(kind, name)
            else:
                setattr(kind, name, one)

    try:
        put(functions)
        yield
    finally:
        put(before)


def _fake(tensors: Sequence[Tensor], module: int, names: str, _: Any) -> Tensor:
    assert _local.capture is not None
    found: Any = _local.capture.modules[module]
    if not isinstance(found, MessagePassing):
        return _fake_of_one(found, tensors)
    given = dict(zip(names.split(BETWEEN), tensors, strict=True))
    rows = given["x.1"] if "x.1" in given else given["x"]
    result = _small(found, given)
    return rows.new_empty((rows.size(0), *result.shape[1:]), dtype=result.dtype)


def _fake_of_one(module: Any, tensors: Sequence[Tensor]) -> Tensor:
    kind, x = rules.kind_of(module), tensors[0]
    if kind is _JUMPS and module.mode == "cat":
        return x.new_empty((*x.shape[:-1], sum(one.size(-1) for one in tensors)))
    if kind in rules.LINEAR:
        return x.new_empty((*x.shape[:-1], module.weight.size(0)), dtype=_product_dtype(x, module.weight))
    if kind is torch_geometric.nn.MLP:
        weight = module.lins[-1].weight
        return x.new_empty((*x.shape[:-1], weight.size(0)), dtype=_product_dtype(x, weight))
    return torch.empty_like(x)


def _product_dtype(x: Tensor, weight: Tensor) -> torch.dtype:
    if torch.is_autocast_enabled("cpu"):
        return torch.get_autocast_dtype("cpu")
    return torch.promote_types(x.dtype, weight.dtype)


def _small(module: torch.nn.Module, given: Mapping[str, Tensor]) -> Any:
    """Calls a convolution with two nodes and two edges, for the columns of its result."""
    from torch._subclasses.fake_tensor import unset_fake_temporarily

    edges = {name: one.dtype for name, one in given.items() if name == "edge_index" or INSIDE in name}
    shapes = {
        name: ([int(size) for size in one.shape[1:]], one.dtype)
        for name, one in given.items()
        if name not in edges
    }
    plain = {place: _originals[place] for place in _originals if vars(place[0]).get(place[1]) in _OURS}
    with unset_fake_temporarily(), torch.no_grad(), calm(module), _in_place(plain):
        made: dict[str, Any] = {
            name: torch.zeros((2, *shape), dtype=dtype) for name, (shape, dtype) in shapes.items()
        }
        some = {name: torch.tensor([[0, 1], [1, 0]], dtype=dtype) for name, dtype in edges.items()}
        if isinstance(module, HeteroConv):
            return module(made, {tuple(name.split(INSIDE)): one for name, one in some.items()})
        made |= some
        if "x.0" in made:
            made["x"] = (made.pop("x.0"), made.pop("x.1"))
        result = module(**made)
    if not isinstance(result, Tensor) or result.dim() < 1 or result.size(0) != 2:
        raise Refusal(f"{rules.kind_of(module).__name__} returns something else than a row for each node")
    return result


@contextmanager
def calm(module: torch.nn.Module, keeps: Callable[[Any], bool] = lambda _: False) -> Iterator[None]:
    """Sets a module to evaluation mode, without what it cached of other edges, for the duration of
    a block, which changes neither a generator nor the attributes of modules. ``keeps``: whether a
    module in it keeps its mode."""
    before = [(vars(one), dict(vars(one))) for one in module.modules()]
    state = torch.get_rng_state()
    try:
        for one in module.modules():
            if isinstance(one, MessagePassing):
                vars(one).update(dict.fromkeys(name for name in vars(one) if name.startswith("_cached")))
            vars(one).update({} if keeps(one) else {"training": False})
        yield
    finally:
        for now, were in before:
            for name in now.keys() - were.keys():
                del now[name]
            now.update((name, one) for name, one in were.items() if now.get(name, now) is not one)
        torch.set_rng_state(state)


def _fake_by_type(tensors: Sequence[Tensor], module: int, names: str, _: Any) -> list[Tensor]:
    assert _local.capture is not None
    *given, targets = names.split(BETWEEN)
    rows = dict(zip(given, tensors, strict=True))
    results = _small(_local.capture.modules[module], rows)
    return [
        rows[name].new_empty((rows[name].size(0), *results[name].shape[1:]), dtype=results[name].dtype)
        for name in targets.split(INSIDE)[1:]
    ]


torch.library.register_fake("pyg_batchgnn_port::leaf", _fake, lib=_library)
torch.library.register_fake("pyg_batchgnn_port::leaf_by_type", _fake_by_type, lib=_library)
torch.library.register_fake(
    "pyg_batchgnn_port::propagate", lambda plain, *_: torch.empty_like(plain), lib=_library
)


def _no_backward(*_: Any) -> Any:
    raise AssertionError("programs and graphs have the backward passes of what leaves stand for")


for _name in ("leaf", "leaf_by_type", "propagate", "returned"):
    torch.library.register_autograd(f"pyg_batchgnn_port::{_name}", _no_backward, lib=_library)
torch.library.register_fake("pyg_batchgnn_port::returned", torch.empty_like, lib=_library)


@dataclass
class Captured:
    """An FX graph that Dynamo captured, which is called with the values of its placeholders."""

    module: torch.fx.GraphModule  # the graph
    #: of each placeholder, what its source stands for: an argument or a number of it, as the
    #: function was told, or any other object
    places: list[Any]
    dims: list[int | None]  # of each placeholder that is a size, the number of the dimension; else None
    numbers: list[bool]  # of each placeholder, whether it is a number in a tensor
    #: the comparisons of sizes that the graph depends on
    branches: list[tuple[str, set[str]]] = field(default_factory=list)
    made: Any = None  # what its owner made of it
    uses: dict[torch.fx.Node, list[torch.fx.Node]] | None = None

    def forget(self) -> None:
        self.places[:] = [  # Dynamo holds the list too
            replace(one, value=None) if isinstance(one, ArgumentTensor) else one for one in self.places
        ]

    def last_uses(self) -> dict[torch.fx.Node, list[torch.fx.Node]]:
        """Returns the values that nobody reads after a node."""
        if self.uses is None:
            last = {one: node for node in self.module.graph.nodes for one in node.all_input_nodes}
            self.uses = {}
            for one, node in last.items():
                self.uses.setdefault(node, []).append(one)
        return self.uses

    def __call__(self, *values: Any) -> Sequence[Any]:
        if _local.run is None:
            raise Miss
        given = zip(values, self.numbers, strict=True)
        values = tuple(one.item() if number and isinstance(one, Tensor) else one for one, number in given)
        return _local.run(self, values)


def operations(captured: Captured) -> list[Any]:
    """Returns what a graph computes, in a form that compares with that of graphs of other sizes."""
    places: dict[torch.fx.Node, Any] = {}

    def described(one: Any) -> Any:
        if isinstance(one, torch.fx.Node):
            return places.get(one, "size")
        return "size" if type(one) is int and one == 0 else repr(one)

    found: list[Any] = []
    for node in captured.module.graph.nodes:
        value = node.meta.get("example_value")
        if node.op == "placeholder" and isinstance(value, Tensor):
            places[node] = node.target
        elif node.op in ("get_attr", "output") or next(rules.tensors(value), None) is not None:
            places[node] = len(found)
            found.append((str(node.target), mapped((node.args, dict(node.kwargs)), described)))
    return found


class _WrittenError(Exception):
    """A ``forward`` writes to leaves, whose ids this holds."""

    def __init__(self, found: set[int]) -> None:
        super().__init__("it writes to layers")
        self.found = found


@dataclass
class Capture:
    model: torch.nn.Module  # the model
    #: the arguments, with a description in the place of each tensor and each number of rows
    arguments: Mapping[str, Any]
    modules: dict[int, torch.nn.Module]  # the modules of the model by their ids
    #: the ids of those that ``forward`` writes to. They are no leaves, which would run before what
    #: was written is replayed.
    written: set[int] = field(default_factory=set)

    def check_writes(self, trims: Sequence[type[torch.nn.Module]] = ()) -> None:
        """Raises _WrittenError if ``forward`` writes to leaves, or to parts of them."""
        from torch._dynamo.symbolic_convert import InstructionTranslator

        effects = InstructionTranslator.current_tx().output.side_effects
        sources = [getattr(one, "source", None) for one in effects._get_modified_vars()]
        changed = {id(self.place(one)) for one in sources if one is not None}
        found = set()
        for number, module in self.modules.items():
            if id(module._parameters) in changed:
                raise Refusal(f"it writes to the parameters of a {rules.kind_of(module).__name__}")
            parts = [
                each for one in module.modules() for each in (one, one._parameters, one._buffers, vars(one))
            ]
            if kind_of_leaf(module, trims) and not changed.isdisjoint(map(id, parts)):
                found.add(number)
        if found - self.written:
            raise _WrittenError(found)

    def place(self, source: Any) -> Any:
        """Returns the argument, or part of the model, that a source of Dynamo's names, or None."""
        try:
            name = source.name() if callable(source.name) else source.name
            return eval(name, {}, {"L": {"model": self.model, "arguments": self.arguments}})
        except Exception:  # it names globals, or other objects
            return None


#: What Dynamo does not guard, though it follows it.
LIBRARIES = ("-packages/", f"{Path(__file__).parents[1]}/", f"{Path(os.__file__).parent}/")
_UNGUARDED = ("vars", "__dict__", "lru_cache", "cache_info", "environ", "getenv")


def _check_code(capture: Capture) -> None:
    """Raises Refusal if a ``forward`` reads what Dynamo follows but does not guard."""
    names: dict[str, str] = {}
    files: set[str] = set()
    traced = getattr(torch._guards.TracingContext, "get_traced_code", lambda: None)  # not in all releases
    for code in traced() or ():
        file = code.co_filename
        if file.endswith("/torch/nn/utils/stateless.py"):
            raise Refusal("it calls a layer with other parameters than its own (functional_call)")
        if not any(one in file for one in LIBRARIES):
            place = f"{file.rsplit('/', 1)[-1]}:{code.co_firstlineno}"
            names.update(dict.fromkeys(code.co_names, place))
            files.add(file)
    homes = [one for one in list(sys.modules.values()) if getattr(one, "__file__", None) in files]
    for name, place in names.items():
        if any(isinstance(vars(one).get(name), functools._lru_cache_wrapper) for one in homes):
            raise Refusal(f"{name} has a cache, which PyTorch's tracer does not know ({place})")
    for name in _UNGUARDED:
        if name in names:
            raise Refusal(f"it reads {name}, whose changes PyTorch's tracer does not see ({names[name]})")
    for module in capture.modules.values():
        for name, value in vars(module).items():
            if name in names and isinstance(value, collections.deque) and value.maxlen is not None:
                what = f"the greatest length of the deque {name} ({names[name]})"
                raise Refusal(f"PyTorch's tracer does not know {what}")


def _backend(module: torch.fx.GraphModule, inputs: Any) -> Captured:
    del inputs
    capture = _local.capture
    if capture is None:
        raise Miss
    _check_code(capture)
    capture.check_writes()
    if any("numpy" in getattr(type(one.target), "__name__", "") for one in module.graph.nodes):
        raise Refusal("it computes with NumPy")
    places, dims, numbers = [], [], []
    for node in module.graph.nodes:
        if node.op != "placeholder":
            continue
        argument = node.meta.get("grapharg")
        source = None if argument is None else argument.source
        base = getattr(source, "base", None) if hasattr(source, "prop") else source
        places.append(None if base is None else capture.place(base))
        dims.append(getattr(source, "idx", None) if base is not source else None)
        numbers.append(bool(getattr(argument, "pass_arg_as_tensor", False)))
    return Captured(module, places, dims, numbers, _branches(module))


def _branches(module: torch.fx.GraphModule) -> list[tuple[str, set[str]]]:
    """Returns the comparisons of sizes and numbers that a graph depends on, with their symbols."""
    modes = (getattr(one.meta.get("example_value"), "fake_mode", None) for one in module.graph.nodes)
    environment = next((mode.shape_env for mode in modes if mode is not None), None)
    guards = [] if environment is None else [one.expr for one in environment.guards]
    return [(str(one), {str(symbol) for symbol in one.free_symbols}) for one in guards if not _is_always(one)]


def _is_always(guard: Any) -> bool:
    """Returns whether a comparison of one size comes out alike for all sizes from 2 on."""
    import sympy  # type: ignore[import-untyped]

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
    if type(tree) is dict:
        return {name: _returned(one) for name, one in tree.items()}
    if type(tree) is collections.OrderedDict:
        return collections.OrderedDict([(name, _returned(one)) for name, one in tree.items()])
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
    """A function of a model and its arguments, with the graphs that Dynamo captured of it.

    Each has a code object of its own, so that neither other models' graphs nor those of the user's
    own ``torch.compile`` count for it; and a name of its own, by which Dynamo remembers the numbers
    that changed.
    """

    _made = itertools.count()

    def __init__(self) -> None:
        code = _call.__code__.replace(co_name=f"forward_{next(self._made)}")
        self._function = types.FunctionType(code, globals(), "forward")
        self._compiled = torch.compile(self._function, backend=_backend, fullgraph=True)
        self._known = torch._dynamo.run(self._function)

    def run(self, forward: Any, model: torch.nn.Module, arguments: Mapping[str, Any], run: Run) -> Any:
        """Calls ``run`` with the graph whose guards hold. Raises `Miss` if no graph fits."""
        outer, _local.run = _local.run, run
        try:
            return self._known(forward, model, arguments)
        finally:
            _local.run = outer

    def capture(
        self,
        forward: Any,
        model: torch.nn.Module,
        arguments: Mapping[str, Any],
        described: Mapping[str, Any],
        run: Run,
        trims: Sequence[type[torch.nn.Module]] = (),
        exact: bool = False,
    ) -> Any:
        """Captures a call, and calls the graph as `run` does. ``described``: the arguments, with a
        description in the place of each tensor and number that the graph's places name. ``exact``:
        sizes of 0 and 1 are constants of the graph. Raises `Refusal` if Dynamo cannot see what the
        function does, and `Miss` if it is turned off."""
        import torch.fx.experimental._config as shapes

        known = {name: one for name, one in _SETTINGS.items() if hasattr(torch._dynamo.config, name)}
        outer = _local.capture, _local.run
        modules = {id(one): one for one in model.modules()}
        with ExitStack() as stack:
            stack.enter_context(_capturing)
            stack.enter_context(_leaves(model, trims))
            stack.enter_context(torch._dynamo.config.patch(known))
            sources: Any = torch.compiler.config
            stack.enter_context(sources.patch(dynamic_sources=_OF_BATCHES))
            # Sizes of 0 and 1 have graphs of their own, unless they are treated as any others. Then
            # torch takes no size for 0, whatever it is.
            small = any(size < 2 for one in rules.tensors(arguments) for size in one.shape)
            oblivious = small and not exact
            patch: Any = shapes.patch  # type: ignore[attr-defined]
            stack.enter_context(patch(use_duck_shape=False, backed_size_oblivious=oblivious))
            _local.capture, _local.run = Capture(model, described, modules), run
            CAPTURING.append(threading.get_ident())
            try:
                return self._compile(forward, model, arguments, _local.capture)
            except torch._dynamo.exc.TorchDynamoException as error:
                raise Refusal(_reason(error)) from error
            finally:
                CAPTURING.pop()
                _local.capture, _local.run = outer

    def _compile(self, forward: Any, model: Any, arguments: Mapping[str, Any], capture: Capture) -> Any:
        try:
            return self._compiled(forward, model, arguments)
        except torch._dynamo.exc.TorchDynamoException as error:
            inside = getattr(error, "inner_exception", None) or error.__cause__
            if not isinstance(inside, _WrittenError):
                raise
            capture.written |= inside.found
            return self._compiled(forward, model, arguments)


def _reason(error: BaseException) -> str:
    """Returns why Dynamo refused a function, with the file and line."""
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
    """Returns the file and line of the user's code that a stack trace ends in."""
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
