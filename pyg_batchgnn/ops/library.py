"""Loads the compiled operators."""

from __future__ import annotations

from pathlib import Path

import torch

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
            f"is older than 2.13, or the library was built on another kind of processor or system (install "
            f"the package again)."
        ) from error


_load()
kernels = torch.ops.pyg_batchgnn


def to_signed(value: int) -> int:
    """The 64-bit signed integer with the same bits as ``value`` modulo 2**64, as operators take seeds and
    epochs."""
    value &= MASK64
    return value - (1 << 64) if value >> 63 else value


def simd_level() -> int:
    """Bits of the widest vector instructions in use: 512, 256, or 0. PYG_BATCHGNN_SIMD=avx2|baseline lowers
    it."""
    return kernels.simd_level()
