"""The base of native convolutions, and the check that a convolution still is what PyG made.

A native layer reads attributes and weights, and calls no method of message passing, no aggregation
and no linear layer. So it is right as long as nobody replaced, hooked or patched what it does not
call. `NativeConv.check` looks at everything, in more than ten microseconds. `as_made` compares with
what was looked at, in one.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from operator import attrgetter, itemgetter
from typing import Any, ClassVar

import torch
from torch.nn.utils import parametrize
from torch_geometric.nn import Linear, SumAggregation
from torch_geometric.nn.conv import MessagePassing
from torch_geometric.nn.dense.linear import is_uninitialized_parameter

from pyg_batchgnn import ops


def layer_name(module: torch.nn.Module) -> str:
    """Returns the name of the class that the user knows: PyG's or torch's for a module that
    `pyg_batchgnn.accelerate` made native."""
    kind: type = getattr(module, "stands_for", type(module))
    return kind.__name__


def refuse(conv: MessagePassing, what: str, remedy: str) -> ValueError:
    return ValueError(f"pyg_batchgnn.nn.{layer_name(conv)} does not support {what}; {remedy}")


_ON_MODULES = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_ON_MESSAGES = tuple(
    f"_{step}_forward_{when}"
    for step in ("propagate", "message", "aggregate", "message_and_aggregate", "edge_update")
    for when in ("pre_hooks", "hooks")
)
_module_hooks, _message_hooks = itemgetter(*_ON_MODULES), itemgetter(*_ON_MESSAGES)
#: What PyG's forward calls on an instance, directly or further down.
_OVERRIDABLE = ("message", "update", "aggregate", "message_and_aggregate", "edge_update")
_CALLED = (
    *(*_OVERRIDABLE, "propagate", "edge_updater", "collect", "edge_collect", "_collect", "_lift"),
    *("_check_input", "_set_size", "_index_select", "_index_select_safe"),
)
_methods = attrgetter(*_OVERRIDABLE)
_KEY = "_as_made"
_HELD = ("_modules", "_parameters", "_buffers")


class AsMade:
    """The state in which `NativeConv.check` accepted a convolution. It is stored on the
    convolution, until an attribute is set. ``first``: the first parameter, or None."""

    def __init__(self, conv: NativeConv) -> None:
        own = conv.__dict__
        own[_KEY] = self
        self._kind, self._methods, self._attributes = type(conv), _methods(type(conv)), len(own)
        self._modules, self._parameters, self._buffers = (dict(own[name]) for name in _HELD)
        self._hooks: tuple[Any, ...] = _message_hooks(own)
        found = [conv.aggr_module, *(conv._modules.get(name) for name in conv.read_parts)]
        self._parts = [
            (part, type(part), part.__dict__, dict(part._parameters)) for part in found if part is not None
        ]
        self.first = next(conv.parameters(), None)

    def fits(self, conv: MessagePassing) -> bool:
        """Returns whether the convolution has the class, methods, hooks, modules, parameters and
        buffers that it had; so must its aggregation and linear layers that are read, not called."""
        own = conv.__dict__
        try:
            if (
                type(conv) is not self._kind
                or len(own) != self._attributes
                or own["_modules"] != self._modules
                or own["_parameters"] != self._parameters
                or own["_buffers"] != self._buffers
                or any(self._hooks)
                or _methods(self._kind) != self._methods
            ):
                return False
            for part, kind, its_own, parameters in self._parts:
                if (
                    type(part) is not kind
                    or its_own["_parameters"] != parameters
                    or any(_module_hooks(its_own))
                    or "forward" in its_own
                    or "reduce" in its_own
                ):
                    return False
        except (RuntimeError, KeyError):  # two tensors do not compare as one value
            return False
        return True


class NativeConv(MessagePassing):
    """The base of the native convolutions, which send no messages. It stands before PyG's class and
    reads its attributes. ``terms`` of a class returns the `Terms` of a layer's result."""

    edge_values: ClassVar[str | None]  # the argument that takes values of edges
    read_parts: ClassVar[Mapping[str, bool]] = {}  # linear layers read, not called: may it have a bias
    aggregations: ClassVar[Mapping[type[torch.nn.Module], str]] = {SumAggregation: "sum"}
    pygs_node_dim: ClassVar[int] = -2
    _pygs_methods: ClassVar[tuple[Any, ...]]

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        pygs = next(one for one in cls.__mro__ if one.__module__.startswith("torch_geometric."))
        cls._pygs_methods = _methods(pygs)

    @classmethod
    def check(cls, conv: MessagePassing) -> None:
        """Raises ValueError, with the reason, unless this layer computes what ``conv`` of PyG does.
        ``conv``: a layer of PyG's class, or of this one."""
        use_pyg = f"use torch_geometric.nn.{layer_name(conv)}"
        if conv.flow != "source_to_target":
            raise refuse(conv, f"flow={conv.flow!r}", "reverse the edges: edge_index.flip(0)")
        if conv.node_dim != cls.pygs_node_dim:
            raise refuse(conv, f"node_dim={conv.node_dim}", use_pyg)
        if conv.decomposed_layers != 1:
            raise refuse(conv, f"decomposed_layers={conv.decomposed_layers}", "leave it at 1")
        if conv.explain:
            raise refuse(conv, "explanations, which wait for messages", use_pyg)
        if any(_message_hooks(vars(conv))):
            raise refuse(conv, "hooks on messages", use_pyg)
        patched = cls._patched(conv)
        if patched is not None:
            raise refuse(conv, f"a method {patched} that is not PyG's, because it never calls it", use_pyg)
        if type(conv.aggr_module) not in cls.aggregations:
            known = " or ".join(repr(name) for name in cls.aggregations.values())
            what = f"aggr={conv.aggr!r} with the aggregation {conv.aggr_module}"
            raise refuse(conv, what, f"give {known}, or {use_pyg}")
        is_users = type(conv) is cls and not hasattr(conv, "stands_for")
        if parametrize.is_parametrized(conv) and not is_users:
            raise refuse(conv, "parametrisations, which it may read several times", use_pyg)
        reasons = [_reason_of(conv.aggr_module, "aggr_module"), _reason_of_bias(conv)]
        reasons += [cls._reason_against(conv, name, is_users) for name in cls.read_parts]
        for reason in filter(None, reasons):
            raise refuse(conv, f"a part that must be called: {reason}", use_pyg)

    @classmethod
    def _patched(cls, conv: MessagePassing) -> str | None:
        own, kind = vars(conv), type(conv)
        # PyG itself puts these on an instance when an explanation ends.
        back = [getattr(kind, name, None) for name in ("_jinja_propagate", "_orig_propagate")]
        for name in _CALLED:
            if name in own and not (name == "propagate" and getattr(own[name], "__func__", None) in back):
                return name
        for name, now, pygs in zip(_OVERRIDABLE, _methods(kind), cls._pygs_methods, strict=True):
            if now is not pygs:
                return name
        return None

    @classmethod
    def _reason_against(cls, conv: MessagePassing, name: str, is_users: bool) -> str | None:
        """Returns why a linear layer must be called; None if its weights may be read instead."""
        part = getattr(conv, name, None)
        if part is None:
            return f"{name} was taken away" if name in conv._modules else None
        kind = type(part)
        if parametrize.is_parametrized(part):
            if not is_users:
                return f"{name} has parametrisations"
            kind = parametrize.type_before_parametrizations(part)
        if kind is not Linear:
            return f"{name} is a {kind.__name__}, not PyG's Linear"
        if part.bias is not None and not cls.read_parts[name]:
            return f"{name} has a bias"
        if part.bias is not None and not fits_bias(part):
            return f"{name} has a bias of another shape than PyG's"
        return _reason_of(part, name)

    def check_call(self) -> None:
        """Raises ValueError for a call that only PyG's code can compute, unless callers look."""
        check_called(self)

    def _set_jittable_templates(self, raise_on_error: bool = False) -> None:
        """Generates no code for messages: it would hide PyG's, to which `accelerate` falls back."""
        del raise_on_error

    def __setattr__(self, name: str, value: Any) -> None:
        if name != "training":
            self.__dict__.pop(_KEY, None)
        odd = name == "aggr" and isinstance(value, list) and not "".join(one[:1] for one in value).isalpha()
        if odd or (name == "aggr_module" and not isinstance(value, torch.nn.Module | None)):
            raise TypeError(f"aggr must be the name of an aggregation or a module of PyG's, got {value!r}")
        super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        self.__dict__.pop(_KEY, None)
        super().__delattr__(name)

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        self.__dict__.pop(_KEY, None)
        return super()._apply(fn, recurse)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if name != _KEY}


def as_made(conv: NativeConv) -> AsMade | None:
    """Returns the recorded state of a convolution if it is unchanged since PyG made it, with
    parameters of one dtype on the CPU; else None. Hooks on itself are allowed (`is_watched`)."""
    known: AsMade | None = conv.__dict__.get(_KEY)
    if known is not None and known.fits(conv):
        return known
    try:
        conv.check(conv)
    except (ValueError, TypeError, AttributeError, KeyError):  # also for attributes that were deleted
        conv.__dict__.pop(_KEY, None)
        return None
    kinds = {(one.dtype, one.device.type) for one in conv.parameters()}
    if len(kinds) > 1 or any(device != "cpu" for _, device in kinds):
        return None
    return AsMade(conv)


def check_called(conv: NativeConv) -> None:
    """Raises ValueError if a convolution is not as PyG made it, or torch.func transforms it."""
    if ops.is_transforming():
        what = "transforms of torch.func and differentiation in forward mode"
        raise refuse(conv, what, f"use torch_geometric.nn.{layer_name(conv)}")
    if as_made(conv) is None:
        conv.check(conv)


def fits_bias(linear: Linear) -> bool:
    """Returns whether a linear layer's bias has an entry for each column, as PyG makes it."""
    weight = linear.weight
    return is_uninitialized_parameter(weight) or list(linear.bias.shape) == [weight.size(0)]


def _reason_of_bias(conv: MessagePassing) -> str | None:
    bias, columns = getattr(conv, "bias", None), getattr(conv, "out_channels", 1)
    widths = [(columns,), (getattr(conv, "heads", 1) * columns,)]
    usual = bias is None or (isinstance(bias, torch.Tensor) and bias.shape in widths)
    return None if usual else "its bias has another shape than PyG's"


def _reason_of(part: torch.nn.Module, name: str) -> str | None:
    """Returns why a part must be called, or None. PyG's own hook for lazy widths is allowed."""
    lazy = hasattr(part, "_hook") and is_uninitialized_parameter(getattr(part, "weight", None))
    found = (part._forward_hooks, part._backward_hooks, part._backward_pre_hooks)
    if any(found) or len(part._forward_pre_hooks) > (1 if lazy else 0) or "forward" in vars(part):
        return f"{name} has hooks"
    return f"{name} has a method reduce of its own" if "reduce" in vars(part) else None


def positive(name: str, value: Any) -> int:
    found = _integer(name, value)
    if found < 1:
        raise ValueError(f"{name}={value!r}, but it must be at least 1")
    return found


def input_columns(name: str, value: Any) -> Any:
    """Returns a checked number of input columns, or a pair for sources and targets; -1 is lazy."""
    if isinstance(value, (tuple, list)):
        if len(value) != 2:
            raise ValueError(f"{name}={value!r}, but it must be a number or (of sources, of targets)")
        return tuple(input_columns(name, one) for one in value)
    found = _integer(name, value)
    if found < 1 and found != -1:
        raise ValueError(f"{name}={value!r}, but it must be at least 1, or -1 to come from the first call")
    return found


def probability(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name}={value!r}, but it must be a number in [0, 1)")
    try:
        ops.check_drop(value)
    except ValueError as error:
        raise ValueError(f"{name}={value!r}: {error}") from None
    return value


def _integer(name: str, value: Any) -> int:
    try:
        return operator.index(None if isinstance(value, bool) else value)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"{name}={value!r}, but it must be an integer") from None
