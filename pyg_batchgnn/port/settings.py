"""Settings outside of a module: the globals and the closures that its ``forward`` reads."""

from __future__ import annotations

from collections.abc import Iterator
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np
import torch

from pyg_batchgnn.port.module_state import SCALARS, frozen

#: Packages whose functions and constants do not change.
_LIBRARIES = {"torch", "torch_geometric", "numpy", "math", "pyg_batchgnn", "builtins", "typing"}
#: What is compared by its contents.
_HOLDERS = (list, tuple, dict, set, frozenset, np.ndarray)


class Settings:
    """The settings that functions of users read, and what they were.

    Functions are followed from ``forward`` to those that they name: methods of the class, functions
    of the file, and inner ones. Of an object or a module, such as the arguments of a script, those
    attributes count that the function names and that are numbers, strings or the like.
    """

    def __init__(self) -> None:
        self._held: list[_Held] = []
        self._seen: set[int] = set()

    def add(self, module: torch.nn.Module) -> None:
        """Adds the settings that a module's ``forward`` reads."""
        kind = getattr(module, "stands_for", type(module))
        self._follow(getattr(kind, "forward", None), kind)

    def change(self) -> str | None:
        """Returns the name of a setting that is not what it was, or None."""
        return next((one.name for one in self._held if one.is_other()), None)

    def _follow(self, function: Any, kind: type) -> None:
        function = getattr(function, "__func__", getattr(function, "fget", function))
        if not isinstance(function, FunctionType) or id(function) in self._seen:
            return
        if str(function.__module__).partition(".")[0] in _LIBRARIES:  # None of a forward of torch.fx
            return
        self._seen.add(id(function))
        names = [name for code in _codes(function.__code__) for name in code.co_names]
        for name in dict.fromkeys(names):
            if name in function.__globals__:
                self._see(function.__globals__, name, names, kind)
            self._follow(vars(kind).get(name, getattr(kind, name, None)), kind)
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            if name != "__class__":
                self._see(cell, name, names, kind)

    def _see(self, holder: Any, name: str, names: list[str], kind: type) -> None:
        """Notes a value that a function reads, or what it reads of it."""
        value = _now(holder, name)
        if isinstance(value, torch.Tensor) or _is_library(value):  # the recording refuses such a tensor
            return
        self._held.append(_Held(holder, name, value))
        if callable(value):
            self._follow(value, kind)
        elif type(value) not in SCALARS and not isinstance(value, _HOLDERS):
            inside = getattr(value, "__dict__", {})
            for part in [name for name in dict.fromkeys(names) if name in inside]:
                fixed = isinstance(value, ModuleType) and callable(inside[part])
                if type(inside[part]) in SCALARS or fixed:
                    self._held.append(_Held(value, part, inside[part]))


class _Held:
    """A setting: by its holder and name, and what it was.

    Args:
        holder: the globals, the cell of a closure, or an object with attributes.
    """

    def __init__(self, holder: Any, name: str, value: Any) -> None:
        self.name, self._holder, self._value = name, holder, value
        self._inside = frozen(value) if isinstance(value, _HOLDERS) else None

    def is_other(self) -> bool:
        """Returns whether it is not what it was."""
        now, was = _now(self._holder, self.name), self._value
        if self._inside is not None:
            return type(now) is not type(was) or bool(frozen(now) != self._inside)
        if now is was:
            return False
        return type(was) not in SCALARS or type(now) is not type(was) or bool(now != was)


def _now(holder: Any, name: str) -> Any:
    if isinstance(holder, dict):
        return holder.get(name)
    if isinstance(holder, CellType):
        try:
            return holder.cell_contents
        except ValueError:  # nothing was assigned yet
            return None
    return getattr(holder, "__dict__", {}).get(name)


def _is_library(value: Any) -> bool:
    return isinstance(value, ModuleType) and value.__name__.partition(".")[0] in _LIBRARIES


def _codes(code: CodeType) -> Iterator[CodeType]:
    """Yields a code and those of the functions that are written inside of it."""
    yield code
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield from _codes(one)
