"""Ctrl-C and killed workers: a loader ends at once, and leaves no process, thread or memory."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import dataloader
from torch.utils.data._utils import signal_handling

from pyg_batchgnn.loader.workers import WorkerContext, _lost_worker
from tests.support.leftovers import nothing_is_left
from tests.support.loader_cases import make_data, make_loader
from tests.support.tiers import ALL

from .job_interrupts import WAYS
from .test_prefetch import nothing_left_behind  # noqa: F401  (a fixture)

ROOT = Path(__file__).resolve().parents[2]


def test_ctrl_c_ends_every_kind_of_loader() -> None:
    """The terminal sends the signal to the whole process group, to workers as well."""
    found = []
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.loader.job_interrupts", str(300 if ALL else 60)],
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
    once = [f"{kind}, {way}: left [] []" for way in WAYS for kind in ("node", "link", "typed")]
    assert found == [
        *once,
        "prefetch, often: left []",
        "device, often: left [] 0",
        "persistent workers, often: left []",
    ]


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


def test_an_error_of_a_worker_about_a_connection_is_its_own() -> None:
    error = ConnectionError("Caught ConnectionError in DataLoader worker process 0.")
    assert _lost_worker(error, iter(())) == ""


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
