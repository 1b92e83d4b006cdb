"""The other ranks end in time with an error that names a dead, stopped, diverged or silent peer."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.backends import BACKENDS, needs_ccl
from tests.support.leftovers import nothing_is_left
from tests.support.ranks import launch, run_ranks
from tests.support.tiers import all_only

JOBS = "tests.comm.job_faults"
TIMEOUT = 6.0


@pytest.fixture(autouse=True)
def leftovers() -> Iterator[None]:
    with nothing_is_left():
        yield


#: The victim's fault, the error on the other ranks, and a pattern of its text.
FAULTS = [
    ("kill", "PeerError", r"process \d+\) no longer exists"),
    ("raise", "PeerError", r"raised ValueError: the disk is full"),
    ("interrupt", "PeerError", r"raised KeyboardInterrupt"),
    ("leave", "PeerError", r"closed after exchange 5: its process ended"),
    ("close", "PeerError", r"closed after exchange 5"),
    ("barrier", "DivergenceError", r"rank 1 \(host 0\) is in exchange 6, barrier \(control\)"),
    ("other hop", "DivergenceError", r"rank 1 \(host 0\) is in .*macrobatch 5, hop 2"),
    ("other dtype", "DivergenceError", r"16 bytes per row, float64"),
    ("killed in the middle", "PeerError", r"no longer exists"),
    ("interrupted in the middle", "PeerError", r"rank 1 .*(met|raised) KeyboardInterrupt"),
    ("stop", "PeerError", r"is stopped .* never entered exchange 6 .*last entered exchange 5"),
    ("stopped in the middle", "PeerError", r"is stopped"),
    ("other communicator", "PeerError", r"last entered exchange 1 of communicator 'gradients'"),
]


#: The rest is tried with two ranks.
AT_FOUR = {"kill", "raise", "other hop", "stop"}


#: What the others notice long before the timeout.
AT_ONCE = {"kill", "raise", "leave", "close", "barrier", "killed in the middle"}

#: The faults that end inside an exchange. They are tried with every backend and every mailbox.
WITH_ALL = {
    "kill",
    "raise",
    "close",
    "killed in the middle",
    "interrupted in the middle",
    "stopped in the middle",
}

#: Whether ranks are on hosts of their own. Then messages go through the backend, not memory.
APART = [False, True]


def _case(fault: tuple[str, str, str], backend: str, apart: bool) -> Any:
    marks = [needs_ccl] if backend == "ccl" else []
    if (backend != "gloo" or apart) and fault[0] != "killed in the middle":
        marks.append(all_only)
    return pytest.param(*fault, backend, apart, id=f"{fault[0]}-{backend}-{apart}", marks=marks)


CASES = [
    _case(fault, backend, apart)
    for fault in FAULTS
    for backend in ("gloo", "ccl")
    for apart in APART
    if fault[0] in WITH_ALL or (backend == "gloo" and not apart)
]


@pytest.mark.parametrize(("how", "error", "text", "backend", "apart"), CASES)
def test_the_others_name_the_peer(how: str, error: str, text: str, backend: str, apart: bool) -> None:
    ranks = 4 if how in AT_FOUR else 2
    results = run_ranks(
        f"{JOBS}:fault",
        ranks,
        {"how": how, "victim": 1, "timeout": TIMEOUT, "backend": backend},
        never_end=[1] if how.startswith("stop") else [],
        check=False,
        hosts=list(range(ranks)) if apart else None,
        whole_end=ranks == 2,  # what was left in the middle of a collective must not hang there
    )
    for result in results:
        if result.rank == 1:
            assert result.code == {"kill": -9, "killed in the middle": -9}.get(how, result.code)
            continue
        assert result.code == 0, result.stderr
        _check(result.value, error, [1])
        if how in AT_ONCE:
            assert result.value["seconds"] < TIMEOUT / 2
        assert re.search(text, result.value["text"]), result.value["text"]
        assert "sampling" in result.value["text"]


def _check(value: dict[str, Any], error: str, ranks: list[int]) -> None:
    assert value["error"] == error, value
    assert value["ranks"] == ranks, value["text"]
    assert value["seconds"] < 2 * TIMEOUT, value["text"]  # one wait, not two
    assert ("waited" in value["text"]) == (error == "PeerError")
    said, seconds = value["again"]
    assert said == "BrokenCommunicatorError" and seconds < TIMEOUT


@pytest.mark.parametrize("how", ["kill", "stop", "killed in the middle"])
def test_the_rank_that_hosts_the_store_is_the_victim(how: str) -> None:
    results = run_ranks(
        f"{JOBS}:fault",
        3,
        {"how": how, "victim": 0, "timeout": TIMEOUT},
        store="rank 0",
        never_end=[0] if how == "stop" else [],
        check=False,
    )
    for result in results[1:]:
        assert result.code == 0, result.stderr
        _check(result.value, "PeerError", [0])
        assert re.search("is stopped" if how == "stop" else "no longer exists", result.value["text"])


def test_a_slow_peer_is_waited_for() -> None:
    for result in run_ranks(f"{JOBS}:fault", 2, {"how": "slow", "victim": 1, "timeout": TIMEOUT}):
        assert result.value["error"] is None and result.value["seconds"] > 0.2 * TIMEOUT


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_job_that_was_suspended_goes_on(tmp_path: Path, backend: str) -> None:
    """All ranks are stopped for longer than the timeout, and no rank is to blame."""
    timeout, ready = 3.0, tmp_path / "ready"
    with launch(f"{JOBS}:suspended", 3, {"timeout": timeout, "ready": str(ready), "backend": backend}) as job:
        while len(list(tmp_path.iterdir())) < 3:
            assert not job.wait({0, 1, 2}, 0.01), job.errors()
        time.sleep(0.3)
        for how, seconds in ((signal.SIGSTOP, timeout + 1.0), (signal.SIGCONT, 0.0)):
            for pid in job.pids:
                os.kill(pid, how)
            time.sleep(seconds)
        assert job.wait({0, 1, 2}, 30.0)
        assert job.codes == [0, 0, 0], job.errors()


def test_a_rank_that_never_comes_is_named() -> None:
    results = run_ranks(f"{JOBS}:absent", 3, {"victim": 2, "timeout": 4.0})
    for result in results[:2]:
        assert result.value["error"] == "PeerError" and result.value["ranks"] == [2]
        assert "rank 2 never came to make communicator 'second'" in result.value["text"]
        assert result.value["seconds"] < 12.0  # both communicators; the second waits for its timeout


def test_ranks_that_make_different_communicators_are_told() -> None:
    for result in run_ranks(f"{JOBS}:other_name", 3):
        assert result.value["error"] == "DivergenceError" and result.value["ranks"] == [1]
        assert "{0: 'sampling', 1: 'gradients', 2: 'sampling'}" in result.value["text"]


def test_ranks_with_other_arguments_are_told_by_name_and_value() -> None:
    for result in run_ranks(f"{JOBS}:disagree", 3):
        assert result.value["error"] == "AgreementError" and result.value["ranks"] == [0, 2]
        assert 'policy: "ldg" on rank 0, nothing on ranks 1, 2' in result.value["text"]
        assert "seed: 3 on ranks 0, 1, 4 on rank 2" in result.value["text"]
        assert "fanout" not in result.value["text"]


def test_two_threads_of_one_communicator_are_told() -> None:
    assert "used by two threads at once" in run_ranks(f"{JOBS}:two_threads", 2)[0].value


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_process_that_ends_in_the_middle_does_not_hang(backend: str) -> None:
    run_ranks(f"{JOBS}:ends_with_work_under_way", 2, {"backend": backend}, timeout=20, whole_end=True)
