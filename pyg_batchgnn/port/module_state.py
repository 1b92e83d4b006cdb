"""The state of a model: what its ``forward`` may read, and what a call that is only tried leaves
as it was."""

from __future__ import annotations

import copy
import enum
import operator
import pickle
import random
import sys
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, MemberDescriptorType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pyg_batchgnn.port.values import Refusal


class Before:
    """The generators, the buffers and the attributes of a model before a call.

    Attributes:
        writes: where attributes were set, by the id of the module and their name.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        self.torch, self.python = torch.get_rng_state(), random.getstate()
        self.numpy = np.random.get_state()
        self.buffers = [(one, one.clone()) for one in model.buffers()]
        self.writes: dict[tuple[int, str], str] = {}
        self._model = model
        self._states = [(path, one, ModuleState(one)) for path, one in model.named_modules()]
        held = tuple(vars(one) for one in model.modules())
        self._held = [(one, copy.copy(one)) for one in _containers(held, set())]

    def check(self, called: Collection[str]) -> set[str]:
        """Raises Refusal if the call changed attributes, or drew from generators unseen.

        Args:
            called: the paths of the modules that were called as one step. What they write to
                themselves they write in every call.

        Returns:
            The paths of these modules, and of their parts, that did.
        """
        if random.getstate() != self.python or not _same(np.random.get_state(), self.numpy):
            raise Refusal(
                f"it draws random numbers from the generator of Python or NumPy{_at_forward(self._model)}"
            )
        writers = set()
        for path, module, before in self._states:
            name = before.change(module)
            if name is None:
                continue
            written = next((one for owner, one in self.writes if owner == id(module)), None)
            if written is not None or not any(path == one or path.startswith(f"{one}.") for one in called):
                name = written or name
                place = self.writes.get((id(module), name)) or _at_forward(module)
                raise Refusal(f"it writes to {path or 'self'}.{name}{place}")
            writers.add(path)
        return writers

    def restore(self) -> None:
        torch.set_rng_state(self.torch)
        random.setstate(self.python)
        np.random.set_state(self.numpy)
        for held, before in self._held:
            _put_back(held, before)
        with torch.no_grad():
            for one, value in self.buffers:
                if not torch.equal(one, value):
                    one.copy_(value)


_HOLDERS = (list, dict, set, deque)


def _containers(tree: Any, seen: set[int], depth: int = 0) -> Iterator[Any]:
    """Yields the lists, dicts and sets in a container and in objects, and itself."""
    if depth > DEEPEST or id(tree) in seen:
        return
    inside = attributes_of(tree)
    if inside is not None:
        seen.add(id(tree))
        yield from _containers(inside, seen, depth)
    if isinstance(tree, _HOLDERS):
        seen.add(id(tree))
        yield tree
    if isinstance(tree, (*_HOLDERS, tuple)):
        for one in tree.values() if isinstance(tree, dict) else tree:
            yield from _containers(one, seen, depth + 1)


def _put_back(held: Any, before: Any) -> None:
    """Gives a container the contents of a copy; what did not change is not touched."""
    if isinstance(held, dict):
        for name in [name for name in held if name not in before]:
            del held[name]
        for name, one in before.items():
            if name not in held or held[name] is not one:
                held[name] = one
    elif len(held) != len(before) or any(map(operator.is_not, held, before)):
        held.clear()
        (held.update if isinstance(held, set) else held.extend)(before)


def _at_forward(module: torch.nn.Module) -> str:
    code = getattr(getattr(module, "stands_for", type(module)).forward, "__code__", None)
    return "" if code is None else f" ({code.co_filename.rsplit('/', 1)[-1]}:{code.co_firstlineno})"


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

SCALARS = (int, float, bool, str, bytes, complex, type(None), torch.dtype, torch.device)
#: Attributes that no ``forward`` reads, and those that are compared in another way.
_SKIPPED = {
    *("_parameters", "_buffers", "_modules", "_non_persistent_buffers_set", "_is_full_backward_hook"),
    *("_forward_hooks_with_kwargs", "_forward_hooks_always_called", "_forward_pre_hooks_with_kwargs"),
    *("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"),
    *("_state_dict_hooks", "_state_dict_pre_hooks", "_load_state_dict_pre_hooks"),
    *("_load_state_dict_post_hooks", "_as_made", "_batchgnn", "training"),
}
_MISSING = object()
_GENERATORS = (np.random.Generator, np.random.RandomState, random.Random, torch.Generator)


class ModuleState:
    """The attributes of a module that a ``forward`` may have read.

    Modules, parameters, buffers and tensors stand for themselves; other objects for what they hold.

    Args:
        names: the attributes that were read; all of the module's own where None.
    """

    def __init__(self, module: torch.nn.Module, names: Collection[str] | None = None) -> None:
        own = vars(module)
        self._module, self._kind = module, type(module)
        self._count = len(own.keys() - _SKIPPED) if names is None else None
        read = (name for name in names or own if name not in _SKIPPED and not name.startswith("__"))
        kept = {name: _attribute(module, name) for name in read}
        if names is not None:
            kept = {name: one for name, one in kept.items() if name in own or not callable(one)}
        self._scalars = {name: one for name, one in kept.items() if type(one) in SCALARS}
        others = {name: one for name, one in kept.items() if name not in self._scalars}
        self._others = {name: (one, frozen(one)) for name, one in others.items()}
        self._modules = dict(own["_modules"])
        self._tensors = _tensors(own)

    def change(self, module: torch.nn.Module) -> str | None:
        """Returns the name of an attribute that is not what it was, or None."""
        own = vars(module)
        if module is not self._module or type(module) is not self._kind:
            return "__class__"
        for name, value in self._scalars.items():
            now = _attribute(module, name)
            if now is not value and (type(now) is not type(value) or now != value):
                return name
        for name, (value, inside) in self._others.items():
            now = _attribute(module, name)
            if now is not value or (inside is not None and frozen(now) != inside):
                return name
        if own["_modules"] != self._modules:
            return next(iter({*own["_modules"]} ^ {*self._modules}), "_modules")
        tensors = _tensors(own)
        if tensors != self._tensors:
            return next(
                name for name in {*tensors, *self._tensors} if tensors.get(name) != self._tensors.get(name)
            )
        if self._count is not None and len(own) - len(own.keys() & _SKIPPED) != self._count:
            return next(iter(own.keys() - _SKIPPED - {*self._scalars, *self._others}))
        return None


def _tensors(own: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the parameters and the buffers of a module, which stand for themselves."""
    return {name: _Same(one) for kind in ("_parameters", "_buffers") for name, one in own[kind].items()}


#: How deep, and up to which length, the contents of what an attribute holds are looked at.
DEEPEST, _LONGEST = 6, 1000


def _attribute(module: torch.nn.Module, name: str) -> Any:
    """Returns an attribute of a module or of its class; modules and parameters stand elsewhere."""
    own = vars(module)
    return own[name] if name in own else getattr(type(module), name, None)


def _frozen(value: Any, depth: int, seen: set[int]) -> Any:
    if type(value) in SCALARS:
        return value
    if isinstance(value, np.ndarray) and value.size <= _LONGEST:  # it may be written in place
        return value.dtype, value.shape, value.tobytes()
    if isinstance(value, _GENERATORS):
        return pickle.dumps(value)
    if isinstance(value, Iterator):  # nobody can tell what it gives next
        return object()
    if depth > DEEPEST or id(value) in seen:
        return None
    inside = attributes_of(value)
    if isinstance(value, (*_HOLDERS, tuple, frozenset, Mapping)) and len(value) > _LONGEST:
        return _Same(value), len(value)
    if inside is not None or isinstance(value, (*_HOLDERS, Mapping)):
        seen.add(id(value))
    if isinstance(value, (list, tuple, set, frozenset, deque)):
        return tuple(_held(one, depth, seen) for one in value)
    if isinstance(value, Mapping):
        return tuple((name, _held(one, depth, seen)) for name, one in value.items())
    return None if inside is None else _frozen(inside, depth + 1, seen)


def frozen(value: Any) -> Any:
    """Returns what an object holds, in a form that compares; None if it stands for itself."""
    return _frozen(value, 0, set())


def attributes_of(value: Any) -> dict[str, Any] | None:
    """Returns the attributes of an object that holds values; None of modules, tensors and
    functions."""
    if isinstance(value, (type, Tensor, torch.nn.Module, FunctionType, BuiltinFunctionType)):
        return None
    inside = getattr(value, "__dict__", None)
    slots = [one for kind in type(value).__mro__ for one in _slots(kind) if hasattr(value, one)]
    if slots:
        return {**(inside or {}), **{name: getattr(value, name) for name in slots}}
    return inside if inside and isinstance(inside, dict) else None


def _slots(kind: type) -> Sequence[str]:
    """Returns the names that a user's class keeps outside of ``__dict__``. Python's own classes
    keep values there that they compute when asked."""
    if kind.__module__.partition(".")[0] in sys.stdlib_module_names:
        return []
    found = vars(kind).get("__slots__", ())
    names = (found,) if isinstance(found, str) else tuple(found)
    return [one for one in names if one not in ("__dict__", "__weakref__") and not one.startswith("__")]


def contents(value: Any, depth: int = 0) -> Any:
    """Returns what an argument holds, in a form that has a hash; tensors in it stand for any.

    Raises:
        Refusal: it cannot be told.
    """
    if type(value) in SCALARS or callable(value) or isinstance(value, enum.Enum):
        return type(value), value
    if isinstance(value, np.ndarray):
        return value.dtype, value.shape, value.tobytes()
    if isinstance(value, Tensor):
        return Tensor
    if depth <= DEEPEST and isinstance(value, (list, tuple, deque)):
        return type(value), tuple(contents(one, depth + 1) for one in value)
    if depth <= DEEPEST and isinstance(value, (set, frozenset)):
        return type(value), frozenset(contents(one, depth + 1) for one in value)
    if depth <= DEEPEST and isinstance(value, Mapping):
        return type(value), tuple((name, contents(one, depth + 1)) for name, one in value.items())
    inside = attributes_of(value)
    if inside is None or depth > DEEPEST:
        raise Refusal(f"an argument is a {type(value).__name__}, whose contents may change")
    return type(value), contents(inside, depth + 1)


class _Same:
    """An object that equals itself alone. It keeps the object alive."""

    def __init__(self, one: Any) -> None:
        self._one = one

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self._one is other._one

    def __hash__(self) -> int:
        return id(self._one)


def _held(value: Any, depth: int, seen: set[int]) -> Any:
    inside = _frozen(value, depth + 1, seen)
    return _Same(value) if inside is None else inside


# Settings outside of a module #####################################################################

# The globals, the closures and the objects that a forward reads.

#: Packages whose functions and constants do not change, beside those that were installed.
_LIBRARIES = {"torch", "torch_geometric", "numpy", "pyg_batchgnn", *sys.stdlib_module_names} - {"os"}
#: What is compared by its contents.
_COMPARED = (list, tuple, Mapping, set, frozenset, np.ndarray)


class Settings:
    """The settings that functions of users read, and what they were.

    Functions are followed from ``forward`` to those that they name: methods of the class and of its
    bases, functions of the file and of other files, inner ones, and methods of objects. Of an
    object, a class or a file those attributes count that the functions name, and so on in the
    objects that it holds (``config.model.rate``).
    """

    def __init__(self) -> None:
        self._held: list[_Held] = []
        self._seen: set[Any] = set()
        self._names: dict[str, None] = {}

    def add(self, module: torch.nn.Module, names: Collection[str]) -> None:
        """Adds the settings that methods of a module read.

        Args:
            names: the attributes of the module that were read, the methods among them.

        Raises:
            Refusal: a method reads a generator of random numbers.
        """
        kind = getattr(module, "stands_for", type(module))
        self._look(kind, tuple(names))
        for own in [vars(module)[name] for name in names if name in vars(module)]:
            if type(own) not in SCALARS and not isinstance(own, (Tensor, *_COMPARED)):
                self._follow(own, kind)
                self._look(own, tuple(self._names))

    def change(self) -> str | None:
        """Returns the name of a setting that is not what it was, or None."""
        return next((one.name for one in self._held if one.is_other()), None)

    def _follow(self, function: Any, owner: Any) -> None:
        """Notes what a function reads. ``owner``: the class or the object whose method it is."""
        for wrapper in ("__func__", "fget", "func"):  # methods, properties, partial functions
            function = getattr(function, wrapper, function)
        if not isinstance(function, FunctionType) or _is_library(function):
            return
        if (id(function), id(owner)) in self._seen:
            return
        self._seen.add((id(function), id(owner)))
        inner = codes(function.__code__)
        names = tuple(dict.fromkeys(name for code in inner for name in code.co_names))
        self._names.update(dict.fromkeys(names))
        for name in names:
            if name in function.__globals__:
                self._note(function.__globals__, name, names, owner)
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            if name != "__class__":
                self._note(cell, name, names, owner)
        if owner is not None:
            self._look(owner, names)

    def _look(self, owner: Any, names: tuple[str, ...]) -> None:
        """Notes the attributes of an object, a class or a file that functions name."""
        if _is_library(owner) or (id(owner), names) in self._seen:
            return
        self._seen.add((id(owner), names))
        for name in names if isinstance(owner, (type, FunctionType)) else (*names, "__call__"):
            self._note(owner, name, names, owner)
            for kind in owner.__mro__ if isinstance(owner, type) else ():  # what super() finds
                self._follow(vars(kind).get(name), owner)

    def _note(self, holder: Any, name: str, names: tuple[str, ...], owner: Any) -> None:
        value = _now(holder, name)
        is_fixed = isinstance(value, ModuleType) and _is_library(value)
        if value is _MISSING or is_fixed or isinstance(value, Tensor):  # the recording refuses it
            return
        if isinstance(value, _GENERATORS):
            raise Refusal(f"it reads {name}, a generator, which draws other numbers in every call")
        self._held.append(_Held(holder, name, value))
        if type(value) not in SCALARS and not isinstance(value, _COMPARED):
            self._follow(value, None if isinstance(owner, ModuleType) else owner)
            self._look(value, names)


class _Held:
    """A setting: by its holder and name, and what it was.

    Args:
        holder: the globals, the cell of a closure, or what has attributes.
    """

    def __init__(self, holder: Any, name: str, value: Any) -> None:
        self.name, self._holder, self._value = name, holder, value
        self._inside = frozen(value) if isinstance(value, _COMPARED) else None

    def is_other(self) -> bool:
        """Returns whether it is not what it was."""
        now, was = _now(self._holder, self.name), self._value
        if self._inside is not None:
            return type(now) is not type(was) or bool(frozen(now) != self._inside)
        if now is was:
            return False
        return type(was) not in SCALARS or type(now) is not type(was) or bool(now != was)


def _now(holder: Any, name: str) -> Any:
    """Returns what a name stands for, without calling anything of the user's."""
    if isinstance(holder, CellType):
        try:
            return holder.cell_contents
        except ValueError:  # nothing was assigned yet
            return _MISSING
    if type(holder) is dict:
        return holder.get(name, _MISSING)
    kinds = holder.__mro__ if isinstance(holder, type) else (holder, *type(holder).__mro__)
    for kind in kinds:
        inside = getattr(kind, "__dict__", {})
        if name in inside:
            found = inside[name]
            return getattr(holder, name, _MISSING) if isinstance(found, MemberDescriptorType) else found
    return _MISSING


def _is_library(value: Any) -> bool:
    if isinstance(value, ModuleType):
        home = value.__name__
    else:  # None of a forward of torch.fx
        home = value.__module__ if isinstance(value, (type, FunctionType)) else ""
    file = getattr(sys.modules.get(str(home)), "__file__", None) or ""
    return str(home).partition(".")[0] in _LIBRARIES or "-packages/" in file  # where pip installs


def codes(code: CodeType) -> Iterator[CodeType]:
    """Yields a code and those of the functions that are written inside of it."""
    yield code
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield from codes(one)
