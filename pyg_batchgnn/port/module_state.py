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
        self._attributes = [(path, one, plain_state(one)) for path, one in model.named_modules()]

    def check(self) -> None:
        """Raises Refusal if the call changed attributes, or drew from generators unseen."""
        if random.getstate() != self.python or not _same(np.random.get_state(), self.numpy):
            raise Refusal("it draws random numbers from the generator of Python or NumPy")
        for path, module, before in self._attributes:
            after = plain_state(module)
            if after != before:
                changed = sorted(name for name in {*before, *after} if before.get(name) != after.get(name))
                raise Refusal(f"it writes to {'.'.join([path or 'self', *changed[:1]])}")

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

_PLAIN = (int, float, bool, str, bytes, complex, type(None), torch.dtype, torch.device)
_SKIPPED = {
    *("_parameters", "_buffers", "_modules", "_non_persistent_buffers_set", "_is_full_backward_hook"),
    *("_forward_hooks_with_kwargs", "_forward_hooks_always_called", "_forward_pre_hooks_with_kwargs"),
    *(
        "_state_dict_hooks",
        "_state_dict_pre_hooks",
        "_load_state_dict_pre_hooks",
        "_load_state_dict_post_hooks",
    ),
    *("_as_made", "_batchgnn"),
}


def plain_state(module: torch.nn.Module) -> dict[str, Any]:
    """Returns the attributes of a module that its ``forward`` may have read, in a form that
    compares.

    Modules, parameters and buffers stand for themselves; other objects for what they hold.
    """
    own = vars(module)
    found = {name: _frozen(value, 0) for name, value in own.items() if name not in _SKIPPED}
    found.update({name: id(part) for name, part in own["_modules"].items()})
    found.update(
        {name: part is None for kind in ("_parameters", "_buffers") for name, part in own[kind].items()}
    )
    return found


def _frozen(value: Any, depth: int) -> Any:
    if type(value) in _PLAIN:
        return value
    if isinstance(value, Tensor) or depth > 3:
        return id(value)
    if isinstance(value, (list, tuple, set, frozenset)):
        return type(value), tuple(_frozen(one, depth + 1) for one in value)
    if isinstance(value, Mapping):
        return type(value), tuple((name, _frozen(one, depth + 1)) for name, one in value.items())
    inside = getattr(value, "__dict__", None)
    if inside and not isinstance(value, (type, torch.nn.Module)) and not callable(value):
        return id(value), _frozen(dict(inside), depth + 1)
    return id(value)
