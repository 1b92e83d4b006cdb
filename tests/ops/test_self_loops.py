"""Scales of degrees, and graphs without their self loops."""

from __future__ import annotations

import torch

from pyg_batchgnn import ops


def test_degree_scale() -> None:
    indptr = torch.tensor([0, 0, 3, 4])
    found = ops.degree_scale(indptr, 5, loops=0, root=True, dtype=torch.float64)
    torch.testing.assert_close(found, torch.tensor([0.0, 3**-0.5, 1.0, 0.0, 0.0], dtype=torch.float64))
    assert torch.equal(
        ops.degree_scale(indptr, 5, loops=1, root=False), torch.tensor([1.0, 0.25, 0.5, 1.0, 1.0])
    )


def test_self_loops_are_dropped() -> None:
    indptr, indices = torch.tensor([0, 3, 3, 6]), torch.tensor([0, 1, 0, 2, 0, 1])
    found = ops.drop_self_loops(indptr, indices)
    assert found is not None
    assert found.indptr.tolist() == [0, 1, 1, 3] and found.indices.tolist() == [1, 0, 1]
    assert found.kept.tolist() == [1, 4, 5]
    assert ops.drop_self_loops(torch.tensor([0, 1]), torch.tensor([1])) is None
