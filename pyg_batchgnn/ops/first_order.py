"""Backward passes that refuse to be differentiated."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor


def first_order(backward: Callable[..., Any]) -> Callable[..., Any]:
    """Makes a backward pass whose results raise an error if they are differentiated.

    Kernels compute gradients outside autograd. Without the error, ``create_graph=True`` would leave
    terms out of a second derivative. Torch's ``once_differentiable`` leaves results alone whose
    arriving gradient is a constant; here every result is guarded. A result hangs on all that it
    depends on: the arriving gradients, the saved tensors, and ``ctx.leaves`` if there are any.
    Otherwise ``torch.autograd.grad`` would find no path to its inputs, and no error.
    """

    @functools.wraps(backward)
    def guarded(ctx: Any, *grads: Tensor | None) -> Any:
        with torch.no_grad():
            found = backward(ctx, *grads)
        return _guard(found, _depends_on(ctx, grads)) if torch.is_grad_enabled() else found

    return guarded


def _depends_on(ctx: Any, grads: Sequence[Any]) -> list[Tensor]:
    """Returns the tensors with a gradient that a backward pass read."""
    read = (*grads, *getattr(ctx, "saved_tensors", ()), *getattr(ctx, "leaves", ()))
    return [one for one in read if isinstance(one, Tensor) and one.requires_grad]


def _guard(found: Any, read: Sequence[Tensor]) -> Any:
    if isinstance(found, Tensor):
        return _Refusal.apply(found.detach().requires_grad_(), *read)
    if isinstance(found, list):
        return [_guard(one, read) for one in found]
    if isinstance(found, tuple):
        return tuple(_guard(one, read) for one in found)
    return found


class _Refusal(torch.autograd.Function):
    """Returns its first argument, without a derivative of any."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, *read: Tensor) -> Tensor:
        del ctx, read
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        del ctx, grads
        raise RuntimeError(
            "native layers have no second derivatives; use PyG's layers for losses that contain gradients "
            "(create_graph=True)"
        )
