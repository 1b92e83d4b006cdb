"""A rank that dies, stops, raises or leaves in the middle of an epoch: the others end with an error
that names it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

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
    check(how, error, text)


@pytest.mark.parametrize("loader", ["typed", "links"])
@pytest.mark.parametrize(("how", "error", "text"), FAULTS[:2], ids=["kill", "stop"])
def test_so_they_do_in_a_typed_graph_with_times(how: str, error: str, text: str, loader: str) -> None:
    check(how, error, text, loader)


def check(how: str, error: str, text: str, loader: str = "plain") -> None:
    prefetch = 0 if how in NOT_AHEAD else 1
    results = run_ranks(
        "tests.loader.job_rank_faults:fault",
        3,
        {"how": how, "victim": 1, "timeout": TIMEOUT, "prefetch": prefetch, "loader": loader},
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


@pytest.mark.parametrize("task", ["nodes", "links"])
def test_a_typed_script_ends_with_the_weights_of_an_undisturbed_run(tmp_path: Path, task: str) -> None:
    def train(folder: Path, kill_at: int | None = None) -> str:
        folder.mkdir(exist_ok=True)
        arguments = {"folder": str(folder), "task": task, "kill_at": kill_at}
        results = run_ranks(
            "tests.loader.job_typed_script:train", 2, arguments, hosts=[0, 1], check=kill_at is None
        )
        return results[0].value or ""

    train(tmp_path / "undisturbed")
    told = train(tmp_path / "killed", kill_at=5)
    assert re.search(r"rank 1 .*no longer exists", told), told
    assert not (tmp_path / "killed" / "weights.pt").exists()
    assert train(tmp_path / "killed") == ""
    one, other = (torch.load(tmp_path / name / "weights.pt") for name in ("undisturbed", "killed"))
    assert one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)
