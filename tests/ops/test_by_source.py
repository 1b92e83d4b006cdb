"""The edges of a layer in a stable order by source."""

from __future__ import annotations

import pytest
import torch

from pyg_batchgnn import ops
from tests.support.aggregate_cases import graph


@pytest.mark.parametrize("degree", [0, 3, 50])
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_transpose_is_a_stable_sort_by_source(degree: int, threads: int) -> None:
    indptr, indices = graph(9000 if degree else 5, 700, degree)
    by_source = ops.transpose(indptr, indices, 700, threads)
    target = torch.repeat_interleave(torch.arange(indptr.numel() - 1), indptr.diff())
    order = indices.long().argsort(stable=True)
    assert torch.equal(by_source.edge.long(), order) and torch.equal(by_source.targets.long(), target[order])
    assert torch.equal(by_source.ptr.diff(), torch.bincount(indices.long(), minlength=700))
