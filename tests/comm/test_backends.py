"""One table of collectives over every backend: results are equal to those computed locally."""

from __future__ import annotations

import pytest

from tests.support.backends import BACKENDS, needs_ccl
from tests.support.ranks import run_ranks

JOBS = "tests.comm.job_backends"

#: What a backend is known to refuse.
REFUSED = {
    "gloo": ["all_reduce_unsigned", "all_gather_uneven", "all_to_all_uneven"],
    "ccl": [],
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("ranks", [2, 4])
def test_collectives_are_what_is_computed_locally(backend: str, ranks: int) -> None:
    arguments = {"backend": backend, "refused": REFUSED[backend]}
    for result in run_ranks(f"{JOBS}:all_cases", ranks, arguments):
        assert result.value == {}, "\n".join(f"{name}: {text}" for name, text in result.value.items())


@needs_ccl
def test_ccl_over_tcp() -> None:
    """Where ranks share no memory, as between hosts."""
    results = run_ranks(f"{JOBS}:all_cases", 2, {"backend": "ccl", "refused": []}, hosts=[0, 1])
    assert [result.value for result in results] == [{}, {}]
