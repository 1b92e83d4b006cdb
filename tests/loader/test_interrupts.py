"""Ctrl-C, killed workers and lost ranks: a loader ends at once, and leaves nothing behind."""

from __future__ import annotations

import contextlib
import mmap
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import dataloader
from torch.utils.data._utils import signal_handling

from pyg_batchgnn import MacrobatchNeighborLoader
from pyg_batchgnn.comm import CommError, Communicator
from pyg_batchgnn.loader.workers import WorkerContext
from tests.support.faults import AwakeClock, stop_for_good
from tests.support.leftovers import nothing_is_left
from tests.support.loader_cases import make_data, make_loader
from tests.support.partitioned_graphs import CASES, whole
from tests.support.rank_epochs import stores
from tests.support.ranks import run_ranks
from tests.support.tiers import ALL, in_all

from .job_interrupts import KINDS, WAYS
from .test_prefetch import nothing_left_behind  # noqa: F401  (a fixture)

ROOT = Path(__file__).resolve().parents[2]


def test_ctrl_c_ends_every_kind_of_loader() -> None:
    found = []
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.loader.job_interrupts", str(300 if ALL else 6)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        cwd=ROOT,
    )
    limit = threading.Timer(200, os.killpg, (process.pid, signal.SIGKILL))
    limit.start()
    with nothing_is_left(), process:
        assert process.stdout is not None and process.stderr is not None
        for line in process.stdout:
            if line.startswith("at work"):
                os.killpg(process.pid, signal.SIGINT)
            else:
                found.append(line.strip())
        errors = process.stderr.read()
    limit.cancel()
    assert process.returncode == 0, f"{found}\n{errors}"
    once = [f"{kind}, {way}: left [] []" for kind, way in zip(KINDS, WAYS, strict=True)]
    often = "prefetch, often: left []", "device, often: left [] 0", "persistent workers, often: left []"
    assert found == [*once, *often]


@pytest.mark.parametrize("lost", [ConnectionResetError(104, "reset"), EOFError()])
def test_a_worker_that_is_killed_while_it_hands_a_batch_over_is_named(
    lost: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: object) -> None:
        raise lost

    loader = make_loader(make_data(), num_workers=1, macrobatch_size=1, fetch_size=1, prefetch_factor=1)
    with nothing_is_left():
        batches = iter(loader)
        next(batches)
        (worker,) = multiprocessing.active_children()
        # Torch's handler of SIGCHLD may name the worker first, at any moment.
        monkeypatch.setattr(signal_handling, "_error_if_any_worker_fails", lambda: None)
        os.kill(worker.pid or 0, signal.SIGKILL)
        monkeypatch.setattr(dataloader._MultiProcessingDataLoaderIter, "_next_data", fail)
        with pytest.raises(RuntimeError, match=rf"worker \(pid {worker.pid}\) exited"):
            list(batches)
        del batches, loader


def _look_at(event: Any) -> None:
    while not event.is_set():
        pass


def test_a_killed_worker_does_not_block_the_event_that_ends_workers() -> None:
    event = WorkerContext(None).Event()
    for _ in range(5):
        worker = multiprocessing.get_context("fork").Process(target=_look_at, args=(event,))
        worker.start()
        time.sleep(0.05)
        worker.kill()
        worker.join()
    setter = threading.Thread(target=event.set, daemon=True)
    setter.start()
    setter.join(timeout=20)
    assert not setter.is_alive() and event.is_set()


@pytest.mark.parametrize("options", [{}, {"persistent_workers": True}, {"export": "native"}])
def test_a_killed_worker_is_an_error(options: dict[str, Any]) -> None:
    sizes = {"macrobatch_size": 1, "fetch_size": 1, "prefetch_factor": 1}
    loader = make_loader(make_data(), num_workers=1, **sizes, **options)
    with nothing_is_left():
        batches = iter(loader)
        next(batches)
        (worker,) = multiprocessing.active_children()
        # Memory that the worker gave a name and has not sent yet.
        Path(f"/dev/shm/torch_{worker.pid}_1_1").touch()
        with pytest.raises(RuntimeError, match=r"worker \(pid.*(killed|exited)"):  # at any moment
            os.kill(worker.pid or 0, signal.SIGKILL)
            list(batches)
        del batches, loader


def test_memory_of_other_containers_stays() -> None:
    """Another container may share /dev/shm, and have a process of a worker's number."""
    loader = make_loader(make_data(), num_workers=1, macrobatch_size=1, fetch_size=1, prefetch_factor=1)
    batches = iter(loader)
    next(batches)
    (worker,) = multiprocessing.active_children()
    used, older, own = (Path(f"/dev/shm/torch_{worker.pid}_{at}_1") for at in range(3))
    try:
        for path in (used, older, own):
            path.write_bytes(bytes(64))
        os.utime(older, (0, 0))
        with used.open("r+b") as file, mmap.mmap(file.fileno(), 64):
            file.close()  # mapped only, as a tensor is
            os.kill(worker.pid or 0, signal.SIGKILL)
            with pytest.raises(RuntimeError, match=r"worker \(pid.*(killed|exited)"):
                list(batches)
            assert [path.exists() for path in (used, older, own)] == [True, True, False]
    finally:
        for path in (used, older, own):
            path.unlink(missing_ok=True)


def fault(how: str, victim: int, timeout: float, prefetch: int) -> dict[str, Any]:
    comm = Communicator.create("loader", timeout=timeout)
    sizes = {"batch_size": 2, "macrobatch_size": 2, "fetch_size": 1, "prefetch": prefetch}
    nodes = whole(CASES[0]).train_mask
    batches = MacrobatchNeighborLoader(
        stores(comm, CASES[0]), [3, 2], nodes, seed=1, schedule="global", **sizes
    )
    clock = AwakeClock()
    try:
        with comm if how in ("raise", "interrupt") else contextlib.nullcontext():
            for number, _ in enumerate(batches):
                if number == 3 and comm.rank == victim:
                    if how == "kill":
                        os.kill(os.getpid(), signal.SIGKILL)
                    if how == "stop":
                        stop_for_good()
                    if how == "raise":
                        raise ValueError("the disk is full")
                    if how == "interrupt":
                        raise KeyboardInterrupt
                    if how in ("break", "leave"):
                        break
        if how == "break":  # the victim begins the next epoch while the others are in this one
            list(batches)
    except CommError as error:
        text = str(error)
        return {"error": type(error).__name__, "text": text, "ranks": error.ranks, "seconds": clock.seconds}
    except (ValueError, KeyboardInterrupt) as error:
        return {"error": type(error).__name__, "text": "", "ranks": [], "seconds": clock.seconds}
    return {"error": None, "text": "", "ranks": [], "seconds": clock.seconds}


TIMEOUT = 8.0


@pytest.fixture(autouse=True)
def leftovers() -> Iterator[None]:
    with nothing_is_left():
        yield


#: What the victim does; the errors that the others may end with, and what they say.
FAULTS = [
    ("kill", "PeerError", r"no longer exists"),
    *in_all(("stop", "PeerError", r"is stopped")),
    *in_all(("raise", "PeerError", r"raised ValueError: the disk is full")),
    *in_all(("interrupt", "PeerError", r"raised KeyboardInterrupt")),
    *in_all(("leave", "PeerError", r"closed after exchange \d+")),
    ("break", "DivergenceError", r"rank 1 \(host 1\) is in exchange"),
]
#: The loader prepares macrobatches ahead, but for these.
NOT_AHEAD = {"kill", "interrupt"}


@pytest.mark.parametrize(("how", "error", "text"), FAULTS)
def test_the_others_name_the_rank(how: str, error: str, text: str) -> None:
    given = {"how": how, "victim": 1, "timeout": TIMEOUT, "prefetch": 0 if how in NOT_AHEAD else 1}
    never_end, whole_end = [1] if how == "stop" else [], how in ("leave", "raise")
    results = run_ranks(
        fault, 3, given, hosts=[0, 1, 0], never_end=never_end, check=False, whole_end=whole_end
    )
    for result in (results[0], results[2]):
        assert result.code == 0, result.stderr
        value = result.value
        assert value["error"] == error, value
        assert re.search(text, value["text"]), value["text"]
        assert 1 in value["ranks"] and value["seconds"] < 2 * TIMEOUT, value
