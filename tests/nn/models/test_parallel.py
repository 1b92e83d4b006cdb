"""Native models under DistributedDataParallel."""

from __future__ import annotations

import pytest

from tests.support.ranks import run_ranks


@pytest.mark.timeout(180)
@pytest.mark.parametrize("ranks", [2, 3])
def test_gradients_are_the_mean_over_ranks(ranks: int) -> None:
    run_ranks("tests.nn.models.job_parallel:train", ranks, {"kind": "sage"}, timeout=120)
