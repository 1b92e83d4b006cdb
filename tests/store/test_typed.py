"""The stores of typed graphs over ranks."""

from __future__ import annotations

import pytest

from tests.support.ranks import run_ranks
from tests.support.tiers import in_all

JOBS = "tests.store.job_typed"


@pytest.mark.parametrize("ranks", [*in_all(1), 3])
@pytest.mark.parametrize("job", ["reads_and_writes", "rows_of_all_groups", "lookups"])
def test_stores(job: str, ranks: int) -> None:
    run_ranks(f"{JOBS}:{job}", ranks)
