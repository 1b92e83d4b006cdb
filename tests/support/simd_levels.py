"""Runs programs with the widest vector instructions of this processor, or with fewer."""

from __future__ import annotations

from pathlib import Path

from tests.support.programs import run_text

#: The limits to the instructions, and the widths in bits that kernels may have with each.
WIDTHS = {"": {0, 256, 512}, "avx2": {0, 256}, "baseline": {0}}


def run_at_level(level: str, program: str, *arguments: str | Path) -> list[str]:
    """Runs a program's text in a process whose kernels use a level of WIDTHS, and two threads.

    Returns:
        The words that it printed.
    """
    ran = run_text(program, *arguments, OMP_NUM_THREADS="2", PYG_BATCHGNN_SIMD=level)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.split()
