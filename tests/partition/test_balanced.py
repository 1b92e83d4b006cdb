"""The limits of the loads that policies balance."""

from __future__ import annotations

import pytest
import torch

from pyg_batchgnn.partition import Multilevel
from pyg_batchgnn.partition.limits import Balance


@pytest.mark.parametrize(
    ("slack", "says"),
    [
        (0.9, "'train' must be at least 1, not 0.9; 1.05 allows"),
        (float("nan"), "'train' must be at least 1, not nan; 1.05 allows"),
        (float("inf"), "'train' must be finite, not inf; leave out a load"),
    ],
)
def test_a_slack_is_a_finite_number_of_at_least_one(slack: float, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Multilevel({"nodes": 1.05, "train": slack})


def test_no_limit_is_more_than_there_is() -> None:
    total = torch.tensor([10, 10, 10, 0])
    balance = Balance.of(4, total, torch.tensor([1.0, 1.5, 1e300, 1e300], dtype=torch.float64))
    assert balance.limit.tolist() == [3, 3, 10, 0]
