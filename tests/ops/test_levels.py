"""Kernels give right results with fewer vector instructions than this processor has, too."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.programs import WIDTHS, run_text
from tests.support.tiers import VARIABLE

PROGRAM = """
import sys
import pytest
from pyg_batchgnn import ops

code = pytest.main(["-q", "-x", "-p", "no:cacheprovider", "-m", "every_level", *sys.argv[1:]])
print(ops.simd_level())
sys.exit(code)
"""


@pytest.mark.parametrize("level", ["avx2", "baseline"])
def test_marked_tests_pass_at_every_level(level: str) -> None:
    variables = {"OMP_NUM_THREADS": "2", "PYG_BATCHGNN_SIMD": level, VARIABLE: ""}
    ran = run_text(PROGRAM, Path(__file__).parent, **variables)
    assert ran.returncode == 0, ran.stdout[-6000:] + ran.stderr
    assert int(ran.stdout.split()[-1]) in WIDTHS[level]
