"""The other ranks end in time with an error that names a dead, stopped, diverged or silent peer."""

from __future__ import annotations

import contextlib
import mmap
import multiprocessing
import os
import re
import signal
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed import HashStore, Store

from pyg_batchgnn.comm import AgreementError, CommError, Communicator, DivergenceError, ccl, host_memory
from pyg_batchgnn.comm.diagnosis import LINE_BYTES, StatusLines, StoreReader
from tests.support.backends import BACKENDS, needs_ccl
from tests.support.leftovers import nothing_is_left, stays
from tests.support.ranks import launch, run_ranks
from tests.support.thread_ranks import run_threads
from tests.support.tiers import all_only, in_all

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


#: What the others notice long before the timeout.
AT_ONCE = {"kill", "raise", "leave", "close", "barrier", "killed in the middle"}
#: Tried with every backend and every mailbox: ranks on hosts of their own share no memory.
WITH_ALL = {"kill", "raise", "close", *(f"{how}ed in the middle" for how in ("kill", "interrupt", "stopp"))}
#: Like another one.
ONLY_ALL = {"interrupt", "close", "barrier", "other dtype", "stopped in the middle"}


def _case(fault: tuple[str, str, str], backend: str, apart: bool) -> Any:
    marks = [needs_ccl] if backend == "ccl" else []
    usual = {("gloo", False), *([("ccl", True)] if fault[0] == "killed in the middle" else [])}
    if fault[0] in ONLY_ALL or (backend, apart) not in usual:
        marks.append(all_only)
    return pytest.param(*fault, backend, apart, id=f"{fault[0]}-{backend}-{apart}", marks=marks)


CASES = [
    _case(fault, backend, apart)
    for fault in FAULTS
    for backend in ("gloo", "ccl")
    for apart in (False, True)
    if fault[0] in WITH_ALL or (backend == "gloo" and not apart)
]


@pytest.mark.parametrize(("how", "error", "text", "backend", "apart"), CASES)
def test_the_others_name_the_peer(how: str, error: str, text: str, backend: str, apart: bool) -> None:
    ranks = 3 if how in ("kill", "stop") else 2
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


@pytest.mark.parametrize("how", ["kill", *in_all("stop", "killed in the middle")])
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
    def disagree(comm: Communicator) -> None:
        same = {"fanout": [15, 10, 5], "seed": 3}
        comm.check_agreement(same)
        with pytest.raises(AgreementError) as caught:
            comm.check_agreement({**same, **({"policy": "ldg"}, {}, {"seed": 4})[comm.rank]})
        assert caught.value.ranks == (0, 2) and "fanout" not in str(caught.value)
        assert 'policy: "ldg" on rank 0, nothing on ranks 1, 2' in str(caught.value)
        assert "seed: 3 on ranks 0, 1, 4 on rank 2" in str(caught.value)
        comm.barrier()  # all ranks know: nothing is broken

    run_threads(disagree, 3)


def test_two_threads_of_one_communicator_are_told() -> None:
    assert "used by two threads at once" in run_ranks(f"{JOBS}:two_threads", 2)[0].value


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_process_that_ends_in_the_middle_does_not_hang(backend: str) -> None:
    run_ranks(f"{JOBS}:ends_with_work_under_way", 2, {"backend": backend}, timeout=20, whole_end=True)


@pytest.mark.parametrize("ranks", [2, *in_all(3, 4)])
def test_weights_are_the_same_after_a_resume_and_on_every_rank(ranks: int) -> None:
    seeds = [[4, 7, 1, 3], [5, 0, 2, 2], [0, 6, 1, 1]]
    straight = run_ranks(f"{JOBS}:train", ranks, {"steps": 6, "resume_at": -1, "seeds": seeds})
    resumed = run_ranks(f"{JOBS}:train", ranks, {"steps": 6, "resume_at": 3, "seeds": seeds})
    for result in (*straight, *resumed):
        assert result.value == straight[0].value


def test_a_peer_killed_before_its_backward_pass_is_named() -> None:
    results = run_ranks(f"{JOBS}:killed_in_training", 3, {"timeout": 6.0}, check=False)
    for result in (results[0], results[2]):
        assert result.code == 0, result.stderr
        assert result.value["error"] == "PeerError" and result.value["ranks"] == [1]
        assert "gradients" in result.value["text"] and result.value["seconds"] < 6.0


def work(failing: tuple[int, ...], rank: int) -> int:
    if rank in failing:
        raise OSError(f"no room for {rank}")
    return 10 * rank


@pytest.mark.parametrize("failing", [(), (1, 2)])
def test_a_failure_on_some_ranks_is_raised_on_all(failing: tuple[int, ...]) -> None:
    def together(comm: Communicator) -> object:
        try:
            return comm.run_together(lambda: work(failing, comm.rank))
        except CommError as error:
            assert error.ranks == failing and (error.__cause__ is not None) == (comm.rank in failing)
            comm.barrier()  # nothing is broken
            return str(error)

    text = "rank 1 (host 1): no room for 1; rank 2 (host 2): no room for 2"
    assert run_threads(together, 3) == ([text] * 3 if failing else [0, 10, 20])


def test_other_errors() -> None:
    def fail() -> None:
        raise OSError

    with Communicator.create("alone") as comm:
        with pytest.raises(CommError, match=r"rank 0 \(host 0\): OSError"):  # without a text
            comm.run_together(fail)
        with pytest.raises(ZeroDivisionError):  # not caught
            comm.run_together(lambda: 1 // 0)


def test_values_are_not_taken_for_arguments() -> None:
    def meet(comm: Communicator) -> None:
        with pytest.raises(DivergenceError, match="comparison of arguments"):
            comm.check_agreement({"seed": 1}) if comm.rank else comm.all_gather_json("no room")

    run_threads(meet, 2)


def lines(ranks: int) -> list[StatusLines]:
    memory = {rank: torch.zeros(LINE_BYTES, dtype=torch.uint8) for rank in range(ranks)}
    return [StatusLines(memory, rank) for rank in range(ranks)]


def test_long_texts_are_cut_off() -> None:
    own, other = lines(2)
    own.write(1, "ä" * 100)
    assert other.read(0) == (1, "ä" * 58)
    own.write(2, "x" + "ä" * 100)
    assert other.read(0) == (2, "x" + "ä" * 57 + "�")


@pytest.mark.parametrize("order", ["number", "text", "checksum"])
def test_bytes_in_any_order_are_no_status(order: str) -> None:
    """Processors such as Arm's may see some bytes of a line before the others."""
    memory = {0: torch.zeros(LINE_BYTES, dtype=torch.uint8)}
    lines_of_rank, place = StatusLines(memory, 0), memory[0].view(2, -1)
    lines_of_rank.write(1, "the first")
    lines_of_rank.write(2, "the second")
    older = place[1].clone()
    lines_of_rank.write(3, "the third, which is longer")
    newer = {"number": slice(0, 8), "text": slice(8, -4), "checksum": slice(-4, None)}[order]
    place[1] = torch.where(torch.isin(torch.arange(128), torch.arange(128)[newer]), place[1], older)
    assert lines_of_rank.read(0) == (2, "the second")


def test_a_reader_sees_whole_statuses_only() -> None:
    writer, reader = lines(2)
    done = threading.Event()

    def write() -> None:
        for exchange in range(1, 20_000):
            writer.write(exchange, f"exchange {exchange} of all" * (1 + exchange % 3))
        done.set()

    thread = threading.Thread(target=write)
    thread.start()
    seen = 0
    while not done.is_set():
        found = reader.read(0)
        if found is not None:
            number, text = found
            assert text == f"exchange {number} of all" * (1 + number % 3)
            assert number >= seen
            seen = number
    thread.join()
    assert reader.read(0) == (19_999, "exchange 19999 of all" * 2)


@pytest.fixture
def reader() -> StoreReader:
    store = HashStore()
    store.set("key", "value")
    return StoreReader(store)


def look(store: Store) -> bytes:
    return store.get("key")


def test_errors_are_no_answer(reader: StoreReader, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> bytes:
        raise RuntimeError("the store is gone, or no thread can be started")

    assert reader.ask(fail, 5.0) is None
    with monkeypatch.context() as without_threads:
        without_threads.setattr(threading.Thread, "start", fail)
        assert reader.ask(look, 5.0) is None
    assert reader.ask(look, 5.0) == b"value"


def test_a_question_without_an_answer_keeps_nobody_longer_than_told(reader: StoreReader) -> None:
    answered = threading.Event()

    def wait(store: Store) -> bytes:
        answered.wait(60)
        return b"late"

    with ThreadPoolExecutor(2) as pool:
        started = time.monotonic()
        lost = pool.submit(reader.ask, wait, 0.2)
        time.sleep(0.05)
        assert reader.ask(look, 30.0) is None, "the connection is taken"
        assert lost.result() is None
        assert reader.ask(look, 30.0) is None
        assert time.monotonic() - started < 20
    answered.set()
    deadline = time.monotonic() + 30
    while reader.ask(look, 5.0) != b"value":
        assert time.monotonic() < deadline


def test_ranks_of_a_host_see_each_others_blocks() -> None:
    sizes = [5000, 0, 3, 1 << 20]
    for result in run_ranks(f"{JOBS}:shared", 4, {"sizes": sizes}, hosts=[0, 0, 1, 0]):
        assert result.value == ([2] if result.rank == 2 else [0, 1, 3])


def test_memory_that_cannot_be_had_is_an_error_on_every_rank() -> None:
    for result in run_ranks(f"{JOBS}:too_much_shared", 2):
        assert result.value.startswith("(1,) memory of a host cannot be shared: rank 1 (host 0): ")


def test_a_write_to_a_block_for_reading_ends_the_writer() -> None:
    results = run_ranks(f"{JOBS}:written_through_a_reader", 2, check=False)
    assert [result.code for result in results] == [-11, 0]


def _connect_as_another_user(name: str, done: Any, end: Any) -> None:
    os.setuid(65534)
    held = []
    with contextlib.suppress(BlockingIOError):  # the queue of the socket is full
        while True:
            held.append(socket.socket(socket.AF_UNIX))
            held[-1].setblocking(False)
            held[-1].connect(b"\0" + name.encode())
    done.set()
    end.wait()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs the right to be another user")
def test_another_user_does_not_hold_up_the_ranks_of_a_host() -> None:
    """Every user sees the names of abstract sockets."""
    context = multiprocessing.get_context("fork")
    done, end = context.Event(), context.Event()
    with contextlib.ExitStack() as stack:
        own, block, server, name = host_memory._offer(10, stack)
        stranger = context.Process(target=_connect_as_another_user, args=(name, done, end))
        stranger.start()
        try:
            assert done.wait(60)
            own[:] = 7
            found = host_memory._swap(block, server, {1: (10, name)})
            assert found[1].tolist() == [7] * 10
        finally:
            end.set()
            stranger.join()


def test_memory_of_other_containers_keeps_its_name() -> None:
    """Another container may share /dev/shm, and have a process of this number."""
    own, other = (ccl.SHARED / f"{os.getpid()}:test-{name}" for name in ("own", "other"))
    try:
        for path in (own, other):
            path.write_bytes(bytes(64))
        with own.open("r+b") as file, mmap.mmap(file.fileno(), 64):
            ccl._unname_shared_memory.__wrapped__()
            assert other.exists() and not own.exists()
    finally:
        for path in (own, other):
            path.unlink(missing_ok=True)


@pytest.mark.parametrize("after", [*in_all(0.0, 0.05), 0.2, None])
def test_nothing_is_left_when_all_ranks_are_killed(after: float | None, tmp_path: Path) -> None:
    """At some moment while the memory is being shared, or (None) when it is there."""
    before = _ours()
    with launch(f"{JOBS}:killed_with_memory", 3, {"folder": str(tmp_path)}) as job:
        if after is None:
            while len(list(tmp_path.iterdir())) < 3:
                time.sleep(0.01)
        else:
            time.sleep(after)
        job.kill()
    assert not stays(_ours, before)


def _ours() -> set[Any]:
    lines = Path("/proc/net/unix").read_text().splitlines()
    sockets = {line.split()[-1] for line in lines if "pyg_batchgnn" in line}
    return {*Path("/dev/shm").glob("*pyg_batchgnn*"), *sockets}
