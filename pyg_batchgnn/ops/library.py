"""The compiled operators, as torch knows them, and the number of threads that they use.

The files of csrc/bindings list their names and schemas. Each is called by a wrapper in a module of
this package, which checks the arguments, names the results, and registers shapes and gradients.
"""

from __future__ import annotations

import contextlib
import functools
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

MASK64 = (1 << 64) - 1
#: The variables of the environment that choose among kernels, and what they may be.
_CHOICES = {
    "PYG_BATCHGNN_SIMD": ("avx512", "avx2", "baseline"),
    "PYG_BATCHGNN_BFLOAT16": ("widened", "pairs", "tiles"),
}


def _load() -> None:
    for variable, choices in _CHOICES.items():
        if (said := os.environ.get(variable)) and said not in choices:
            raise ImportError(f"{variable}={said}: it may be {', '.join(choices)}, or unset")
    folder = Path(__file__).parent.parent
    libraries = sorted(folder.glob("_C*.so"))
    if not libraries:
        raise ImportError(
            f"pyg_batchgnn's compiled operators are missing from {folder}. Likely causes: the package is "
            f"imported from its source tree without having been built (run `pip install -e .` there), or the "
            f"build was interrupted (install it again)."
        )
    try:
        torch.ops.load_library(str(libraries[0]))
    except OSError as error:
        raise ImportError(
            f"{libraries[0]} does not load beside torch {torch.__version__}: {error}. Likely causes: torch "
            f"is older than 2.11, or the library was built on another kind of processor or system (install "
            f"the package again)."
        ) from error


_load()
kernels = torch.ops.pyg_batchgnn

_Function = TypeVar("_Function", bound=Callable[..., Any])


def fake(name: str) -> Callable[[_Function], _Function]:
    """Registers the decorated function as an operator's fake kernel, with which torch.compile
    traces: it returns tensors of the right shapes and dtypes, without computing them."""

    def register(function: _Function) -> _Function:
        torch.library.register_fake(f"pyg_batchgnn::{name}", function)
        return function

    return register


def gradient(name: str, save: Callable[..., None]) -> Callable[[_Function], _Function]:
    """Registers the decorated function as an operator's backward pass (see `first_order`)."""

    def register(function: _Function) -> _Function:
        once = first_order(function)
        torch.library.register_autograd(f"pyg_batchgnn::{name}", once, setup_context=save)
        return function

    return register


def to_signed(value: int) -> int:
    """Returns the signed 64-bit integer with the bits of an unsigned one."""
    value &= MASK64
    return value - (1 << 64) if value >> 63 else value


@contextlib.contextmanager
def memory_errors(message: str) -> Iterator[None]:
    """Lets a kernel without enough memory raise MemoryError with this message."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if "bad_alloc" not in str(error):
            raise
        raise MemoryError(message) from None


def simd_level() -> int:
    """Returns the width of the vector instructions in use: 512 or 256 bits, or 0 for the baseline.
    The environment variable PYG_BATCHGNN_SIMD=avx2|baseline lowers it."""
    return kernels.simd_level()


# First derivatives only ###########################################################################


def first_order(backward: Callable[..., Any]) -> Callable[..., Any]:
    """Makes a backward pass whose results raise an error if they are differentiated again.

    Kernels compute gradients outside autograd, so that a second derivative would lack terms.
    Torch's ``once_differentiable`` does not guard results for which the arriving gradient is a
    constant; here every result is guarded. It depends on the arriving gradients, the saved tensors,
    and ``ctx.leaves`` if there are any, so that ``torch.autograd.grad`` finds a path to its inputs,
    and the error.
    """

    @functools.wraps(backward)
    def guarded(ctx: Any, *grads: Tensor | None) -> Any:
        with torch.no_grad():
            found = backward(ctx, *grads)
        if not torch.is_grad_enabled():
            return found
        read = (*grads, *getattr(ctx, "saved_tensors", ()), *getattr(ctx, "leaves", ()))
        return _guard(found, [one for one in read if isinstance(one, Tensor) and one.requires_grad])

    return guarded


def _guard(found: Any, read: Sequence[Tensor]) -> Any:
    if isinstance(found, Tensor):
        return _Refusal.apply(found.detach().requires_grad_(), *read)
    if isinstance(found, list):
        return [_guard(one, read) for one in found]
    if isinstance(found, tuple):
        return tuple(_guard(one, read) for one in found)
    return found


class _Refusal(torch.autograd.Function):
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


# Threads ##########################################################################################


#: The setting of each thread of the program, such as one that prefetches.
_setting = threading.local()


def thread_count() -> int:
    """Returns the most threads of an operator called in this thread: the smallest `thread_limit`
    around the call, else torch's number."""
    return getattr(_setting, "count", None) or torch.get_num_threads()


@contextlib.contextmanager
def thread_limit(count: int | None) -> Iterator[None]:
    """Limits operators that this thread calls in the block to `count` threads. None, or a number
    above an outer limit, changes nothing."""
    before = getattr(_setting, "count", None)
    _setting.count = min(filter(None, (before, count)), default=None)
    try:
        yield
    finally:
        _setting.count = before
