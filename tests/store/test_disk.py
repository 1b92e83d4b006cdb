"""Parts whose rows stay in files give what parts in memory give."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.ranks import run_ranks
from tests.support.tiers import in_all


@pytest.mark.parametrize(
    ("ranks", "hosts"), [*in_all((1, [0]), (2, [0, 1]), (4, [0, 1, 0, 1])), (3, [0, 1, 1])], ids=str
)
def test_equal_minibatches_and_messages(ranks: int, hosts: Sequence[int], tmp_path: Path) -> None:
    run_ranks("tests.store.job_disk:epochs", ranks, {"folder": str(tmp_path)}, hosts=hosts)


@pytest.mark.parametrize(("ranks", "hosts"), [*in_all((1, [0])), (3, [0, 1, 1])], ids=str)
def test_stores(ranks: int, hosts: Sequence[int], tmp_path: Path) -> None:
    run_ranks("tests.store.job_disk:stores", ranks, {"folder": str(tmp_path)}, hosts=hosts)


def test_a_file_that_is_cut_ends_every_rank(tmp_path: Path) -> None:
    run_ranks("tests.store.job_disk:a_file_is_cut", 2, {"folder": str(tmp_path)}, hosts=[0, 1])
