"""Dense layers with AVX-512, AVX2 and neither, as far as the processor at hand goes."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.support.linear_cases import distance
from tests.support.simd_levels import WIDTHS, run_at_level

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-13, torch.bfloat16: 2**-7}
Answers = dict[str, tuple[list[Tensor], list[Tensor]]]

PROGRAM = """
import sys
import torch
from pyg_batchgnn import ops
from tests.support.linear_cases import View, gradients, make_case

torch.manual_seed(0)

answers, near = [], []
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
    d_x, d_weight = gradients(ops.linear([x], [weight], after_relu=True), [x, weight])
    near.append(d_x * (x != 0))
    answers.append(d_weight)
torch.save((answers, near), sys.argv[1])
"""


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Answers:
    folder = tmp_path_factory.mktemp("levels")

    def run(level: str) -> tuple[list[Tensor], list[Tensor]]:
        file = folder / f"answers-{level}.pt"
        run_at_level(level, PROGRAM, file)
        exact, near = torch.load(file)
        return exact, near

    return {level: run(level) for level in WIDTHS}


def test_avx2_and_avx512_give_the_same_bits(answers: Answers) -> None:
    for one, other in zip(answers[""][0], answers["avx2"][0], strict=True):
        if one.dtype is torch.bfloat16:  # multiplied in pairs where the processor does that
            assert distance(one, other) < 2**-7
        else:
            assert torch.equal(one, other)


def test_the_baseline_rounds_otherwise_and_drops_the_same(answers: Answers) -> None:
    for one, other in zip(answers[""][0], answers["baseline"][0], strict=True):
        assert distance(one, other) < TOLERANCE[one.dtype]
        if one.dtype is torch.float64:
            assert torch.equal(one == 0, other == 0)


@pytest.mark.parametrize("level", ["avx2", "baseline"])
def test_gradients_behind_a_relu_are_summed_in_as_many_parts_as_a_vector_has(
    level: str, answers: Answers
) -> None:
    for one, other in zip(answers[""][1], answers[level][1], strict=True):
        assert distance(one, other) < TOLERANCE[one.dtype]
        assert torch.equal(one == 0, other == 0)
