"""Dense layers with AVX-512, AVX2 and neither, as far as the processor at hand goes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tests.ops.test_linear import distance

LEVELS = ("", "avx2", "baseline")

PROGRAM = """
import sys
import torch
from pyg_batchgnn import ops
from tests.ops.test_linear import View, gradients, make_case

torch.manual_seed(0)

answers = []
for dtype in (torch.float32, torch.float64, torch.bfloat16):
    for rows, outputs, columns, groups in ((200, 130, (33, 16), 1), (65, 47, (5,), 3), (1, 1, (1,), 1)):
        case = make_case(rows, outputs, columns, groups, dtype, table_dtype=torch.float16)
        case.inputs.append(View(torch.randn(37, 40 * groups).relu(), torch.randint(37, (rows,))))
        case.weights.append(torch.randn(outputs * groups, 40, dtype=dtype, requires_grad=True))
        for update in ({}, {"drop": 0.3, "key": 5}):
            y = case.run(**update)
            answers += [y.detach(), *gradients(y, case.leaves())]
    x = torch.randn(150, 90).relu().to(dtype).requires_grad_()
    weight = torch.randn(130, 90, dtype=dtype, requires_grad=True)
    d_x, d_weight = gradients(ops.linear([x], [weight], gated=True), [x, weight])
    answers += [d_x * (x != 0), d_weight]
torch.save(answers, sys.argv[1])
"""


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Tensor]]:
    folder = tmp_path_factory.mktemp("levels")

    def run(level: str) -> list[Tensor]:
        environment = {**os.environ, "PYG_BATCHGNN_SIMD": level}
        file = folder / f"answers-{level}.pt"
        ran = subprocess.run(
            [sys.executable, "-c", PROGRAM, str(file)],
            env=environment,
            cwd=Path(__file__).parents[2],
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert ran.returncode == 0, ran.stderr
        return torch.load(file)

    return {level: run(level) for level in LEVELS}


def test_avx2_and_avx512_give_the_same_bits(answers: dict[str, list[Tensor]]) -> None:
    for one, other in zip(answers[""], answers["avx2"], strict=True):
        if one.dtype is torch.bfloat16:  # multiplied in pairs where the processor does that
            assert distance(one, other) < 2**-7
        else:
            assert torch.equal(one, other)


def test_the_baseline_rounds_otherwise_and_drops_the_same(answers: dict[str, list[Tensor]]) -> None:
    tolerance = {torch.float32: 1e-5, torch.float64: 1e-13, torch.bfloat16: 2**-7}
    for one, other in zip(answers[""], answers["baseline"], strict=True):
        assert distance(one, other) < tolerance[one.dtype]
        if one.dtype is torch.float64:
            assert torch.equal(one == 0, other == 0)
