"""Dropout of dense layers is as defined."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from pyg_batchgnn import ops
from tests.support.linear_cases import distance, gradients, make_case


def keeps(key: int, nodes: Tensor, columns: int, drop: float) -> Tensor:
    """The definition in csrc/kernels/random.h, element by element."""
    mask = (1 << 64) - 1

    def mix(z: int) -> int:
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
        return z ^ (z >> 31)

    gamma, levels = 0x9E3779B97F4A7C15, int((1 - drop) * 65536 + 0.5)
    kept = torch.zeros(len(nodes), columns, dtype=torch.bool)
    for i, node in enumerate(nodes.tolist()):
        row_key = mix((((key & mask) ^ (node & mask)) + gamma) & mask)
        for column in range(columns):
            word = mix((row_key + (column // 4 + 1) * gamma) & mask)
            kept[i, column] = (word >> (16 * (column % 4))) % 65536 < levels
    return kept


@pytest.mark.parametrize("groups", [1, 3])
@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("drop", [0.1, 0.5, 1e-7, 0.9999])
def test_dropout_is_as_defined(drop: float, relu: bool, groups: int) -> None:
    case = make_case(40, 47, (9, 3), groups=groups, dtype=torch.float64)
    node = torch.randint(-(1 << 62), 1 << 62, (40,))
    key = ops.dropout_key(1, 2, 3, 4)
    kept = keeps(key, node, 47 * groups, drop)
    y = case.run(relu=relu, drop=drop, key=key, node=node)
    before = case.reference()
    wanted = torch.where(kept, before.relu() if relu else before, 0.0) * ops.dropout_scale(drop)
    assert distance(y, wanted) < 1e-13
    for found, expected in zip(gradients(y, case.leaves()), gradients(wanted, case.leaves()), strict=True):
        assert distance(found, expected) < 1e-13


def test_dropout_counts_rows_where_there_are_no_ids() -> None:
    case = make_case(100, 40, (8,))
    by_row = case.run(drop=0.5, key=9)
    assert torch.equal(by_row, case.run(drop=0.5, key=9, node=torch.arange(100)))
    assert not torch.equal(by_row == 0, case.run(drop=0.5, key=10) == 0)


@pytest.mark.parametrize("drop", [0.1, 0.5, 0.9])
def test_dropout_drops_as_often_as_said_and_keeps_the_mean(drop: float) -> None:
    ones = torch.ones(4000, 1)
    y = ops.linear([ones], [torch.ones(100, 1)], drop=drop, key=5)
    spread = (drop * (1 - drop) / y.numel()) ** 0.5
    assert abs(float((y == 0).float().mean()) - drop) < 5 * spread
    assert abs(float(y.double().mean()) - 1) < 5 * spread / (1 - drop)
