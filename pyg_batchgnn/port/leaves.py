"""The modules that are one step of a captured graph: convolutions, linear layers, norms and others.

While a model is captured, the ``forward`` of their classes calls one function, which names the
module and its arguments, and makes a fake result alone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
import torch_geometric.nn
from torch import Tensor
from torch.compiler import is_dynamo_compiling
from torch_geometric.nn.conv import MessagePassing

from pyg_batchgnn.nn.models import is_row_wise_norm
from pyg_batchgnn.port import foreign, rules
from pyg_batchgnn.port.recording import Refusal, mapped

#: Between the kind of a leaf and the names of its tensors.
_BETWEEN = "\x1f"
#: The ``forward``, or ``propagate``, of the classes of leaves, and the names of their arguments.
_originals: dict[tuple[type, str], Any] = {}
_names: dict[type, tuple[str, ...]] = {}
#: What they were in the first capture of all.
_first: dict[tuple[type, str], Any] = {}


class _Now(threading.local):
    """What this thread captures and runs."""

    capture: Any = None  # the `Capture`, whose modules these are
    run: Any = None  # what runs a captured graph


now = _Now()

_JUMPS = torch_geometric.nn.JumpingKnowledge
#: Modules of torch and PyG, beside linear layers and norms of each row, that are one step.
_OF_ONE = (
    *(torch.nn.BatchNorm1d, torch_geometric.nn.BatchNorm, torch_geometric.nn.InstanceNorm),
    *(torch_geometric.nn.MLP, _JUMPS, torch.nn.ReLU, torch.nn.Dropout),
)


def kind_of_leaf(module: torch.nn.Module, trims: Sequence[type[torch.nn.Module]] = ()) -> str | None:
    """Returns how a module is captured as one step: as "conv", "one" (of one tensor) or "propagate"
    (the messages of a user's layer); None if its ``forward`` is traced."""
    if isinstance(module, MessagePassing):
        users = foreign.is_users(module) and not isinstance(module, tuple(trims))
        return "propagate" if users else "conv"
    kind = rules.kind_of(module)
    known = kind in (*rules.LINEAR, *_OF_ONE) or rules.encodes_columns(module)
    return "one" if known or (is_row_wise_norm(module) and kind is not torch.nn.Identity) else None


@dataclass(frozen=True)
class Leaf:
    """A call of a module that is captured as a single step."""

    module: int  # the id of the module
    args: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)
    plain: Any = None  # what ``propagate`` returned, whose calls were captured too

    @classmethod
    def of(cls, tensors: Sequence[Any], module: int, names: str, _: Any = None) -> Leaf:
        kind, *each = names.split(_BETWEEN)
        if kind == "one":  # of one tensor, or of several in a list
            return cls(module, (list(tensors) if each else tensors[0],))
        given = dict(zip(each, tensors, strict=True))
        if kind == "propagate":
            return cls(module, (given.pop("edge_index"),), given, plain=given.pop(""))
        x = (given.pop("x.0"), given.pop("x.1")) if "x.0" in given else given.pop("x")
        return cls(module, (x,), given)


def _original(module: Any, name: str) -> Any:
    for kind in type(module).__mro__:
        if (kind, name) in _originals:
            return _originals[kind, name]
    raise AssertionError(name)


@torch._dynamo.assume_constant_result  # type: ignore[untyped-decorator]
def captures() -> bool:
    """Returns whether this thread captures a model for `accelerate`."""
    return now.capture is not None


@torch._dynamo.assume_constant_result  # type: ignore[untyped-decorator]
def _learns(number: int) -> bool | None:
    """Returns whether a leaf module has parameters with gradients; None if it is no leaf."""
    capture = now.capture
    module = None if capture is None or number in capture.written else capture.modules.get(number)
    if module is None or kind_of_leaf(module) is None:
        return None
    return any(one.requires_grad for one in module.parameters())


def _call(module: Any, tensors: list[Tensor], names: list[str]) -> list[Tensor]:
    return LEAF(tensors, id(module), _BETWEEN.join(names), _learns(id(module)))


@torch.compiler.allow_in_graph  # type: ignore[untyped-decorator]
def LEAF(tensors: list[Tensor], module: int, names: str, learns: bool | None) -> list[Tensor]:  # noqa: N802
    """Stands for a call of a leaf module in a graph, which the tracer asks for a fake result."""
    made = _fake(tensors, module, names)
    takes_gradient = learns or any(one.requires_grad for one in tensors)
    if not torch.is_grad_enabled() or not takes_gradient or not made.is_floating_point():
        return [made]
    return [made.requires_grad_().clone()]


def _packed(given: Mapping[str, Any]) -> tuple[list[Tensor], list[str]] | None:
    """Returns the tensors among arguments, and their names; None if others than None are left."""
    tensors: list[Tensor] = []
    names: list[str] = []
    for name, one in given.items():
        pair = name == "x" and isinstance(one, (tuple, list)) and len(one) == 2
        for place, part in enumerate(one if pair else (one,)):
            if isinstance(part, Tensor):
                tensors.append(part)
                names.append(f"{name}.{place}" if pair else name)
            elif pair or part is not None:
                return None
    return tensors, names


def _conv_forward(self: Any, *args: Any, **kwargs: Any) -> Any:
    if is_dynamo_compiling() and type(self) in _names and _learns(id(self)) is not None:
        packed = _packed({**dict(zip(_names[type(self)], args, strict=False)), **kwargs})
        if packed and "edge_index" in packed[1] and ("x" in packed[1] or "x.0" in packed[1]):
            return _call(self, packed[0], ["conv", *packed[1]])[0]
    return _original(self, "forward")(self, *args, **kwargs)


def _forward_of_one(self: Any, *args: Any, **kwargs: Any) -> Any:
    simple = not kwargs and len(args) > 0 and isinstance(args[0], (Tensor, list))
    simple = simple and all(one is None or isinstance(one, list) for one in args[1:])  # names of columns
    if not is_dynamo_compiling() or not simple or _learns(id(self)) is None:
        return _original(self, "forward")(self, *args, **kwargs)
    several = isinstance(args[0], list)
    return _call(self, args[0], ["one", "several"])[0] if several else _call(self, [args[0]], ["one"])[0]


def _propagate(self: Any, edge_index: Any, size: Any = None, **kwargs: Any) -> Any:
    plain = _original(self, "propagate")(self, edge_index, size=size, **kwargs)
    packed = _packed({"": plain, "edge_index": edge_index, **kwargs})
    known = packed is not None and packed[1][:2] == ["", "edge_index"]
    if not is_dynamo_compiling() or packed is None or not known or _learns(id(self)) is None:
        return plain
    return _call(self, packed[0], ["propagate", *packed[1]])[0]


_FUNCTIONS = {"conv": _conv_forward, "one": _forward_of_one, "propagate": _propagate}


def as_leaves(
    modules: Iterable[torch.nn.Module], trims: Sequence[type[torch.nn.Module]]
) -> AbstractContextManager[None]:
    """Replaces the ``forward`` of leaf modules for the tracer. Other threads see that there is no
    capture."""
    functions: dict[tuple[type, str], Any] = {}
    for module in modules:
        kind, how = type(module), kind_of_leaf(module, trims)
        name = "propagate" if how == "propagate" else "forward"
        if how is None or (kind, name) in functions:
            continue
        functions[kind, name] = _FUNCTIONS[how]
        _originals[kind, name] = getattr(kind, name)
        known, own = rules.kind_of(module), getattr(rules.kind_of(module), name)
        of_library = known.__module__.startswith(("torch.", "torch_geometric."))
        if _first.setdefault((known, name), own) is not own and of_library:
            raise Refusal(f"{known.__name__}.{name} was replaced by another function")
        if how == "conv":
            code = own.__code__
            _names[kind] = code.co_varnames[1 : code.co_argcount]
    return in_place(functions)


@contextmanager
def in_place(functions: Mapping[tuple[type, str], Any]) -> Iterator[None]:
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


def _fake(tensors: Sequence[Tensor], module: int, names: str) -> Tensor:
    found, leaf = now.capture.modules[module], Leaf.of(tensors, module, names)
    if leaf.plain is not None:
        return torch.empty_like(leaf.plain)
    if not isinstance(found, MessagePassing):
        return _fake_of_one(found, tensors)
    x, result = leaf.args[0], _small(found, leaf)
    if not isinstance(result, Tensor) or not result.dim() or result.size(0) != 2:
        raise Refusal(f"{rules.kind_of(found).__name__} returns something else than a row for each node")
    rows = x[1] if isinstance(x, tuple) else x
    return rows.new_empty((rows.size(0), *result.shape[1:]), dtype=result.dtype)


def _fake_of_one(module: Any, tensors: Sequence[Tensor]) -> Tensor:
    kind, x = rules.kind_of(module), tensors[0]
    if rules.encodes_columns(module):
        weight = next(module.parameters(), x)
        dtype = torch.promote_types(x.dtype, weight.dtype) if x.is_floating_point() else weight.dtype
        return x.new_empty((x.size(0), len(module.stats_list), module.out_channels), dtype=dtype)
    if kind is _JUMPS and module.mode == "cat":
        return x.new_empty((*x.shape[:-1], sum(one.size(-1) for one in tensors)))
    if kind not in rules.LINEAR and kind is not torch_geometric.nn.MLP:
        return x.new_empty(x.shape)
    weight = module.weight if kind in rules.LINEAR else module.lins[-1].weight
    dtype = torch.promote_types(x.dtype, weight.dtype)
    if torch.is_autocast_enabled("cpu"):
        dtype = torch.get_autocast_dtype("cpu")
    return x.new_empty((*x.shape[:-1], weight.size(0)), dtype=dtype)


def _small(module: torch.nn.Module, leaf: Leaf) -> Any:
    from torch._subclasses.fake_tensor import unset_fake_temporarily

    def rows(one: Tensor) -> Tensor:
        return torch.zeros((2, *map(int, one.shape[1:])), dtype=one.dtype)

    def edges(one: Tensor) -> Tensor:
        return torch.tensor([[0, 1], [1, 0]], dtype=one.dtype)

    ours = _FUNCTIONS.values()
    plain = {place: one for place, one in _originals.items() if vars(place[0]).get(place[1]) in ours}
    with unset_fake_temporarily(), torch.no_grad(), calm(module), in_place(plain):
        args = *mapped(leaf.args[:1], rows), *mapped(leaf.args[1:], edges)
        named = leaf.kwargs.items()
        return module(*args, **{name: (edges if name == "edge_index" else rows)(one) for name, one in named})


@contextmanager
def calm(module: torch.nn.Module, keeps: Callable[[Any], bool] = lambda _: False) -> Iterator[None]:
    """Sets a module to evaluation mode for a block, and clears what it cached of other edges. Then
    attributes and random generator are as before. ``keeps``: returns whether a part keeps its
    mode."""
    before = [(vars(one), dict(vars(one))) for one in module.modules()]
    state = torch.get_rng_state()
    try:
        for one in module.modules():
            if isinstance(one, MessagePassing):
                vars(one).update(dict.fromkeys(name for name in vars(one) if name.startswith("_cached")))
            vars(one).update({} if keeps(one) else {"training": False})
        yield
    finally:
        for values, were in before:
            for name in values.keys() - were.keys():
                del values[name]
            values.update((name, one) for name, one in were.items() if values.get(name, values) is not one)
        torch.set_rng_state(state)


@torch.compiler.allow_in_graph  # type: ignore[untyped-decorator]
def RETURNED(one: Tensor) -> Tensor:  # noqa: N802
    """Marks a tensor that ``forward`` returns."""
    return one.clone()
