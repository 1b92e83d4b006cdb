"""Graph attention with AVX-512, AVX2 and neither, if the processor has them."""

from __future__ import annotations

import pytest

from tests.support.simd_levels import WIDTHS, run_at_level

PROGRAM = """
import torch
from pyg_batchgnn import ops
from tests.support.reference_attention import assert_close_gradients, distance, gradients
from tests.support.reference_attention import make_case, reference

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10, torch.bfloat16: 2**-7, torch.float16: 1e-5}
for dtype, tolerance in TOLERANCE.items():
    for columns, heads, loops in ((3, 1, None), (64, 4, 20), (100, 4, 20), (37, 7, 9)):
        case = make_case(20, 30, 120, columns, heads, loops, dtype=dtype)
        found, (wanted, _) = case.run(), reference(case)
        assert distance(found.out, wanted) < tolerance, (dtype, columns, heads)
        mine, theirs = gradients(found.out, case.leaves), gradients(wanted, case.leaves)
        assert_close_gradients(mine, theirs, 2 * tolerance)
print(ops.simd_level())
"""


@pytest.mark.parametrize("level", WIDTHS)
def test_every_level_equals_the_formula(level: str) -> None:
    (bits,) = run_at_level(level, PROGRAM)
    assert int(bits) in WIDTHS[level]
