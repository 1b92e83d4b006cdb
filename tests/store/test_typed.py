"""The stores of typed graphs over ranks."""

from __future__ import annotations

import pytest

from tests.support.ranks import run_ranks

JOBS = "tests.store.job_typed"


@pytest.mark.parametrize("ranks", [1, 3])
@pytest.mark.parametrize("job", ["reads_and_writes", "rows_of_all_groups", "lookups"])
def test_stores(job: str, ranks: int) -> None:
    run_ranks(f"{JOBS}:{job}", ranks)
