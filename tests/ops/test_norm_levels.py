"""Batch normalisation and activations with AVX-512, AVX2 and neither."""

from __future__ import annotations

import pytest

from tests.support.simd_levels import WIDTHS, run_at_level

PROGRAM = """
import torch
from pyg_batchgnn import ops

torch.manual_seed(0)
sums = []
for dtype, tolerance in ((torch.float32, 1e-5), (torch.float64, 1e-12), (torch.bfloat16, 2**-7)):
    for columns in (1, 7, 64, 100):
        x, grad = torch.randn(700, columns).to(dtype) + 2, torch.randn(700, columns).to(dtype)
        own, wide = x.clone().requires_grad_(), x.double().requires_grad_()
        bias = torch.full((columns,), 0.0123)  # keeps results away from zero, where ReLU's gradient jumps
        out = ops.batch_norm(own, bias=bias, relu=True)[0]
        out.backward(grad)
        wanted = torch.nn.functional.batch_norm(wide, None, None, None, bias.double(), True).relu()
        wanted.backward(grad.double())
        for one, other in ((out, wanted), (own.grad, wide.grad)):
            error = (one.double() - other).abs().max() / other.abs().max()
            assert error < tolerance, (dtype, columns, error)
        start = torch.randn(50, columns).to(dtype).requires_grad_()
        out = ops.activate(start * 1, relu=True, drop=0.4, key=5)
        out.backward(grad[:50])
        sums += [float(out.detach().double().sum()), float(start.grad.double().sum())]
print(ops.simd_level(), *sums)
"""


@pytest.fixture(scope="module")
def widest() -> list[str]:
    return run_at_level("", PROGRAM)


@pytest.mark.parametrize("level", ["avx2", "baseline"])
def test_every_level_computes_the_same(level: str, widest: list[str]) -> None:
    """Normalised values to a tolerance; what activations give, which rounds once, to the bit."""
    found = run_at_level(level, PROGRAM)
    assert int(found[0]) in WIDTHS[level] and found[1:] == widest[1:]
