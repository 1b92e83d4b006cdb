"""The same results with AVX-512, AVX2 and neither, as far as the processor at hand goes."""

from __future__ import annotations

import pytest

from tests.support.programs import WIDTHS, run_at_level

PROGRAM = """
import torch
from pyg_batchgnn import CscGraph, MacrobatchSampler, SamplingPlan, ops

torch.manual_seed(0)
answers = []
for dtype in (torch.int32, torch.int64):
    for size in (1, 7, 64, 65, 1000, 5000):
        values = torch.randint(-1000, 1000, (size,)).to(dtype)
        assert ops.extent(values) == (int(values.min()), int(values.max()))
        assert ops.is_ascending(values.sort().values)
        for at in {0, size // 2, size - 1}:
            broken = values.sort().values
            broken[at] -= 5000
            assert ops.is_ascending(broken) == (at == 0), (size, at)
nodes = torch.randint(0, 5000, (3000,))
unique, (row,) = ops.unique_nodes([nodes], 5000)
assert torch.equal(unique, nodes.unique()) and torch.equal(unique[row], nodes)
table = torch.randn(5000, 33)
assert torch.equal(ops.gather_rows(table, nodes), table[nodes])
graph = CscGraph.from_edge_index(torch.randint(0, 5000, (2, 60000)), 5000)
for one in MacrobatchSampler(graph, SamplingPlan((10, 5)), seed=1).sample([nodes[:50], nodes[50:99]], 3):
    answers += [one.node, one.indices, one.edge]
print(ops.simd_level(), ops.minibatch_key(torch.cat(answers)))
"""


@pytest.fixture(scope="module")
def answers() -> dict[str, list[int]]:
    return {level: [int(word) for word in run_at_level(level, PROGRAM)] for level in WIDTHS}


@pytest.mark.parametrize("level", WIDTHS)
def test_every_level_gives_the_same(level: str, answers: dict[str, list[int]]) -> None:
    bits, key = answers[level]
    assert bits in WIDTHS[level]
    assert key == answers[""][1]
