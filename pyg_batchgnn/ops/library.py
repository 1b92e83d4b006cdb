"""The compiled operators, as torch knows them.

The files of csrc/bindings list their names and schemas. Each is called by a wrapper in a module
of this package, which checks the arguments and names the results. The same module (or, for a long
one, its neighbour NAME_autograd.py) registers with torch the shapes of the results and the
gradients.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import torch

from pyg_batchgnn.ops.first_order import first_order

MASK64 = (1 << 64) - 1


def _load() -> None:
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
    """Registers the decorated function as the fake kernel of an operator.

    A fake kernel takes the operator's arguments and returns tensors of the right shapes and dtypes,
    without computing them. torch.compile traces with it.
    """

    def register(function: _Function) -> _Function:
        torch.library.register_fake(f"pyg_batchgnn::{name}", function)
        return function

    return register


def gradient(name: str, save: Callable[..., None]) -> Callable[[_Function], _Function]:
    """Registers the decorated function as the backward pass of an operator.

    The results of the pass cannot be differentiated: see `first_order`.

    Args:
        name: the operator.
        save: called behind the forward pass as ``save(ctx, inputs, output)``; keeps what the
            backward pass needs.
    """

    def register(function: _Function) -> _Function:
        once = first_order(function)
        torch.library.register_autograd(f"pyg_batchgnn::{name}", once, setup_context=save)
        return function

    return register


def to_signed(value: int) -> int:
    """Returns the signed 64-bit integer with the bits of ``value`` modulo 2**64, as operators take
    it."""
    value &= MASK64
    return value - (1 << 64) if value >> 63 else value


@contextlib.contextmanager
def memory_errors(message: str) -> Iterator[None]:
    """Lets a kernel that lacks memory raise a MemoryError with this message."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if "bad_alloc" not in str(error):
            raise
        raise MemoryError(message) from None


def simd_level() -> int:
    """Returns the width of the vector instructions in use, in bits: 512, 256, or 0 for the
    baseline.

    The environment variable PYG_BATCHGNN_SIMD=avx2|baseline lowers it.
    """
    return kernels.simd_level()
