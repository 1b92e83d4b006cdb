"""Backward passes that refuse to be differentiated."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def first_order(backward: Callable[..., Any]) -> Callable[..., Any]:
    """Makes a backward pass whose results raise an error if they are differentiated.

    Kernels compute gradients outside autograd. Without the error, ``create_graph=True`` would leave
    terms out of a second derivative. Torch's ``once_differentiable`` leaves results alone whose
    arriving gradient is a constant; here every result is guarded.
    """

    @functools.wraps(backward)
    def guarded(ctx: Any, *grads: Tensor | None) -> Any:
        with torch.no_grad():
            found = backward(ctx, *grads)
        return _guard(found) if torch.is_grad_enabled() else found

    return guarded


def _guard(found: Any) -> Any:
    if isinstance(found, Tensor):
        return _Refusal.apply(found.detach().requires_grad_())
    if isinstance(found, list):
        return [_guard(one) for one in found]
    if isinstance(found, tuple):
        return tuple(_guard(one) for one in found)
    return found


class _Refusal(torch.autograd.Function):
    """The identity, without a derivative."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        del ctx
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        del ctx, grads
        raise RuntimeError(
            "native layers have no second derivatives; use PyG's layers for losses that contain gradients "
            "(create_graph=True)"
        )
