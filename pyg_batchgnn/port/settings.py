"""Settings outside of a module: the globals and the closures that its ``forward`` reads."""

from __future__ import annotations

from collections.abc import Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any

import torch

from pyg_batchgnn.port.module_state import SCALARS, frozen

#: Packages whose functions and constants do not change.
_LIBRARIES = {"torch", "torch_geometric", "numpy", "math", "pyg_batchgnn", "builtins", "typing"}
_CONTAINERS = (list, tuple, dict, set, frozenset)


class Settings:
    """The settings that functions of users read, and what they were.

    Functions are followed from ``forward`` to those that they name: methods of the class, functions
    of the file, and inner ones. Of an object or a module, such as the arguments of a script, those
    attributes count that the function names and that are numbers, strings or the like.
    """

    def __init__(self) -> None:
        self._held: list[tuple[Any, str, Any]] = []
        self._seen: set[int] = set()

    def add(self, module: torch.nn.Module) -> None:
        """Adds the settings that a module's ``forward`` reads."""
        kind = getattr(module, "stands_for", type(module))
        self._follow(getattr(kind, "forward", None), kind)

    def change(self) -> str | None:
        """Returns the name of a setting that is not what it was, or None."""
        for holder, name, value in self._held:
            now = _now(holder, name)
            if now is not value and (type(value) is _Kept or type(now) is not type(value) or now != value):
                if type(value) is _Kept and frozen(now) == value.inside:
                    continue
                return name
        return None

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
        if type(value) in SCALARS or callable(value):
            self._held.append((holder, name, value))
            self._follow(value, kind)
        elif isinstance(value, _CONTAINERS):
            self._held.append((holder, name, _Kept(frozen(value))))
        elif not isinstance(value, torch.Tensor) and not _is_library(value):
            self._held.append((holder, name, value))
            for part in dict.fromkeys(names):
                inside = getattr(value, "__dict__", {}).get(part)
                if type(inside) in SCALARS or (isinstance(value, ModuleType) and callable(inside)):
                    self._held.append((value, part, inside))


class _Kept:
    """The contents that a container had."""

    def __init__(self, inside: Any) -> None:
        self.inside = inside


def _now(holder: Any, name: str) -> Any:
    if isinstance(holder, dict):
        return holder.get(name)
    if hasattr(holder, "cell_contents"):
        return holder.cell_contents
    return getattr(holder, "__dict__", {}).get(name)


def _is_library(value: Any) -> bool:
    return isinstance(value, ModuleType) and value.__name__.partition(".")[0] in _LIBRARIES


def _codes(code: CodeType) -> Iterator[CodeType]:
    """Yields a code and those of the functions that are written inside of it."""
    yield code
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield from _codes(one)
