"""The way to a GPU without one: streams, events and registering of pages are made up."""

from __future__ import annotations

import contextlib
import importlib.util
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

from pyg_batchgnn.device import CudaLane, checked_device, locked_bytes
from pyg_batchgnn.loader import device_stage
from tests.loader.test_on_device import CASES, check
from tests.support.programs import run_python


@dataclass
class MadeUp:
    """Stands for the runtime of CUDA."""

    registered: dict[int, int] = field(default_factory=dict)  # bytes by address
    calls: list[str] = field(default_factory=list)
    fails: int = 0  # what `cudaHostRegister` returns
    chosen: threading.local = field(default_factory=threading.local)

    @property
    def has_device(self) -> bool:
        return getattr(self.chosen, "depth", 0) > 0

    @contextlib.contextmanager
    def device(self, _: Any) -> Iterator[None]:
        self.chosen.depth = getattr(self.chosen, "depth", 0) + 1
        try:
            yield
        finally:
            self.chosen.depth -= 1

    @contextlib.contextmanager
    def stream(self, _: Any) -> Iterator[None]:
        assert self.has_device
        yield

    def cudaHostRegister(self, address: int, nbytes: int, flags: int) -> int:  # noqa: N802
        assert self.has_device and flags == 3 and address not in self.registered
        if not self.fails:
            self.registered[address] = nbytes
        return self.fails

    def cudaHostUnregister(self, address: int) -> None:  # noqa: N802
        assert self.has_device
        del self.registered[address]

    def cudaGetErrorString(self, code: int) -> str:  # noqa: N802
        return f"error {code}"


class Stream:
    def __init__(self, calls: list[str]) -> None:
        self.calls = calls

    def wait_event(self, event: Any) -> None:
        assert event.recorded
        self.calls.append("wait for an event")

    def wait_stream(self, stream: Any) -> None:
        self.calls.append("follow")


class Event:
    recorded = False

    def record(self, stream: Any) -> None:
        self.recorded = True

    def query(self) -> bool:
        return self.recorded

    def synchronize(self) -> None:
        assert self.recorded


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> Iterator[MadeUp]:
    made = MadeUp()
    stream = Stream(made.calls)

    for name, value in {
        "Stream": lambda _: stream,
        "stream": made.stream,
        "device": made.device,
        "Event": Event,
        "cudart": lambda: made,
        "default_stream": lambda _: stream,
        "current_stream": lambda _: stream,
        "mem_get_info": lambda _: (1 << 30, 1 << 31),
        "memory_reserved": lambda _: 10,
        "memory_allocated": lambda _: 4,
    }.items():
        monkeypatch.setattr(torch.cuda, name, value)
    yield made
    assert not made.registered and locked_bytes() == 0


@pytest.mark.parametrize("case", ["plain", "typed", "triplets"])
@pytest.mark.parametrize("place", ["host", "device"])
def test_batches(case: str, place: str, runtime: MadeUp, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each batch is handed over by an event, and pages are registered while the loader lives."""
    monkeypatch.setattr(device_stage, "lane_of", lambda _: CudaLane(torch.device("cpu")))
    there = check(CASES[case], {"feature_placement": place}, epochs=1)
    assert runtime.calls.count("wait for an event") == len(there) and runtime.calls[0] == "follow"
    assert sum(runtime.registered.values()) == there.stats().device.pinned_bytes > 0
    del there


def test_what_the_lane_says(runtime: MadeUp) -> None:
    lane = CudaLane(torch.device("cpu"))
    assert lane.free_bytes() == (1 << 30) + 6
    assert lane.register(4096, 64) is None
    lane.unregister(4096)
    runtime.fails = 2
    assert lane.register(4096, 64) == "error 2"
    refused = CudaLane(torch.device("cpu"))
    assert not refused.reads_host and refused.why_not is not None


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (None, None),
        ("cpu", torch.device("cpu")),
        ("cuda", torch.device("cuda", 1)),
        ("cuda:0", torch.device("cuda", 0)),
        (torch.device("cuda:1"), torch.device("cuda", 1)),
        (0, torch.device("cuda", 0)),
    ],
)
def test_devices(given: Any, found: torch.device | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert checked_device(given) == found
    with pytest.raises(ValueError, match="there are 2 GPUs, from cuda:0"):
        checked_device("cuda:2")


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
@pytest.mark.parametrize("interpret", ["1", ""], ids=["interpreted, with loaders", "compiled"])
def test_the_kernel(interpret: str) -> None:
    """In a process of its own, as Triton decides once whether it interprets."""
    done = run_python("-m", "tests.device.job_triton", timeout=250, TRITON_INTERPRET=interpret)
    assert done.returncode == 0 and done.stdout == "right\n", done.stderr
