"""Tables of several node types over ranks equal those of one process."""

from __future__ import annotations

import pytest

from tests.support.ranks import run_ranks
from tests.support.tiers import in_all


@pytest.mark.parametrize("ranks", [*in_all(2), 3])
def test_types_travel_together(ranks: int) -> None:
    run_ranks("tests.embed.job_types:types", ranks)


def test_loaders_of_typed_graphs_tell_which_rows_they_need() -> None:
    run_ranks("tests.embed.job_types:loaders", 2)
