"""A rank that dies, stops, raises or leaves in the middle of an epoch: the others end with an error
that names it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.support.leftovers import nothing_is_left
from tests.support.ranks import run_ranks

TIMEOUT = 8.0


@pytest.fixture(autouse=True)
def leftovers() -> Iterator[None]:
    with nothing_is_left():
        yield


#: What the victim does; the errors that the others may end with, and what they say.
FAULTS = [
    ("kill", "PeerError", r"no longer exists"),
    ("stop", "PeerError", r"is stopped"),
    ("raise", "PeerError", r"raised ValueError: the disk is full"),
    ("interrupt", "PeerError", r"raised KeyboardInterrupt"),
    ("leave", "PeerError", r"closed after exchange \d+"),
    ("break", "DivergenceError", r"rank 1 \(host 1\) is in exchange"),
]
#: The loader prepares macrobatches ahead, but for these.
NOT_AHEAD = {"kill", "interrupt"}


@pytest.mark.parametrize(("how", "error", "text"), FAULTS, ids=[fault[0] for fault in FAULTS])
def test_the_others_name_the_rank(how: str, error: str, text: str) -> None:
    prefetch = 0 if how in NOT_AHEAD else 1
    results = run_ranks(
        "tests.loader.job_rank_faults:fault",
        3,
        {"how": how, "victim": 1, "timeout": TIMEOUT, "prefetch": prefetch},
        hosts=[0, 1, 0],
        never_end=[1] if how == "stop" else [],
        check=False,
        whole_end=how in ("leave", "raise"),
    )
    for result in (results[0], results[2]):
        assert result.code == 0, result.stderr
        value = result.value
        assert value["error"] == error, value
        assert re.search(text, value["text"]), value["text"]
        assert 1 in value["ranks"] and value["seconds"] < 2 * TIMEOUT, value
