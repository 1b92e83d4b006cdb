"""The state of a model: what its ``forward`` may read, and what a call that is only tried leaves
as it was."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pyg_batchgnn.port.values import Refusal


class Before:
    """The generators, the buffers and the attributes of a model before a call."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.torch, self.python = torch.get_rng_state(), random.getstate()
        self.numpy = np.random.get_state()
        self.buffers = [(one, one.clone()) for one in model.buffers()]
        self._states = [(path, one, ModuleState(one)) for path, one in model.named_modules()]

    def check(self) -> None:
        """Raises Refusal if the call changed attributes, or drew from generators unseen."""
        if random.getstate() != self.python or not _same(np.random.get_state(), self.numpy):
            raise Refusal("it draws random numbers from the generator of Python or NumPy")
        for path, module, before in self._states:
            name = before.change(module)
            if name is not None:
                raise Refusal(f"it writes to {'.'.join([path or 'self', name])}")

    def restore(self) -> None:
        torch.set_rng_state(self.torch)
        random.setstate(self.python)
        np.random.set_state(self.numpy)
        with torch.no_grad():
            for one, value in self.buffers:
                one.copy_(value)


@contextmanager
def restored(model: torch.nn.Module) -> Iterator[Before]:
    """Brings generators and buffers back after a block."""
    before = Before(model)
    try:
        yield before
    finally:
        before.restore()


def _same(first: Any, second: Any) -> bool:
    return all(np.array_equal(one, other) for one, other in zip(first, second, strict=True))


@contextmanager
def calm(module: torch.nn.Module) -> Iterator[None]:
    """Sets a module and its parts to evaluation mode for the duration of a block."""
    were = [(one, one.training) for one in module.modules()]
    try:
        for one, _ in were:
            one.training = False
        yield
    finally:
        for one, training in were:
            one.training = training


# The state that a graph depends on ################################################################

_SCALARS = (int, float, bool, str, bytes, complex, type(None), torch.dtype, torch.device)
#: Attributes that no ``forward`` reads, and those that are compared in another way.
_SKIPPED = {
    *("_parameters", "_buffers", "_modules", "_non_persistent_buffers_set", "_is_full_backward_hook"),
    *("_forward_hooks_with_kwargs", "_forward_hooks_always_called", "_forward_pre_hooks_with_kwargs"),
    *("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"),
    *("_state_dict_hooks", "_state_dict_pre_hooks", "_load_state_dict_pre_hooks"),
    *("_load_state_dict_post_hooks", "_as_made", "_batchgnn", "training"),
}
_MISSING = object()


class ModuleState:
    """The attributes of a module that a ``forward`` may have read.

    Modules, parameters, buffers and tensors stand for themselves; other objects for what they hold.
    """

    def __init__(self, module: torch.nn.Module) -> None:
        own = vars(module)
        self._kind, self._count = type(module), len(own.keys() - _SKIPPED)
        kept = {name: value for name, value in own.items() if name not in _SKIPPED}
        self._scalars = {name: one for name, one in kept.items() if type(one) in _SCALARS}
        self._others = {
            name: (one, _frozen(one, 0)) for name, one in kept.items() if name not in self._scalars
        }
        self._modules = dict(own["_modules"])
        self._missing = _missing(own)

    def change(self, module: torch.nn.Module) -> str | None:
        """Returns the name of an attribute that is not what it was, or None."""
        own = vars(module)
        if type(module) is not self._kind:
            return "__class__"
        for name, value in self._scalars.items():
            now = own.get(name, _MISSING)
            if now is not value and (type(now) is not type(value) or now != value):
                return name
        for name, (value, inside) in self._others.items():
            now = own.get(name, _MISSING)
            if now is not value or (inside is not None and _frozen(now, 0) != inside):
                return name
        if own["_modules"] != self._modules:
            return next(iter({*own["_modules"]} ^ {*self._modules}), "_modules")
        if _missing(own) != self._missing:
            return "_parameters"
        if len(own) - len(own.keys() & _SKIPPED) != self._count:
            return next(iter(own.keys() - _SKIPPED - {*self._scalars, *self._others}))
        return None


def _missing(own: Mapping[str, Any]) -> list[str]:
    """Returns the names of parameters and buffers that are None."""
    return [name for kind in ("_parameters", "_buffers") for name, one in own[kind].items() if one is None]


def _frozen(value: Any, depth: int) -> Any:
    """Returns what an object holds, in a form that compares; None if it stands for itself."""
    if type(value) in _SCALARS:
        return value
    if isinstance(value, (list, tuple, set, frozenset)):
        return tuple(_held(one, depth) for one in value)
    if isinstance(value, Mapping):
        return tuple((name, _held(one, depth)) for name, one in value.items())
    if isinstance(value, (Tensor, torch.nn.Module, type)) or callable(value):
        return None
    inside = getattr(value, "__dict__", None)
    return None if not inside else _frozen(dict(inside), depth + 1)


class _Same:
    """An object that equals itself alone. It keeps the object alive."""

    def __init__(self, one: Any) -> None:
        self._one = one

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self._one is other._one

    def __hash__(self) -> int:
        return id(self._one)


def _held(value: Any, depth: int) -> Any:
    inside = None if depth > 3 else _frozen(value, depth + 1)
    return _Same(value) if inside is None else inside
