"""The ranks of a distributed benchmark, as processes on loopback or on hosts of their own.

Every rank executes one job of a worker module. Its results come back, one JSON value per rank.
"""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmark.support import namespaces, start
from benchmark.support.harness import ProcessSetting

WORKER = "benchmark.support.ranks"
PORT = 29_511
LOOPBACK = "loopback"


class RankError(RuntimeError):
    """The error of ranks that failed or did not end; the text has the ends of their output."""


def answers_of(
    ranks: Sequence[subprocess.Popen[bytes]],
    servers: Sequence[subprocess.Popen[bytes]],
    folder: Path,
    timeout: float,
) -> list[Any]:
    """Waits for ranks, and returns what they wrote to files RANK.json of a folder; then kills all.

    Raises:
        RankError: a rank or a server failed, or did not end in time; the text has the ends of their
            logs in the folder.
    """
    end, every = time.monotonic() + timeout, [*ranks, *servers]
    try:
        while any(one.poll() is None for one in ranks) and time.monotonic() < end:
            if any(one.poll() for one in every):
                break
            time.sleep(0.05)
        if any(one.poll() != 0 for one in ranks):
            time.sleep(1.0)  # the others may have something to say
            logs = sorted(folder.glob("*.log"))
            said = "\n".join(f"{log.stem}: {log.read_text(errors='replace')[-3000:]}" for log in logs)
            raise RankError(f"a rank failed or had not ended after {timeout:.0f} s:\n{said}")
    finally:
        for process in every:
            process.kill()
            process.wait()
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(len(ranks))]


@dataclass(frozen=True)
class World:
    """The hosts that ranks run on."""

    ranks: int  # how many
    network: str = LOOPBACK
    timeout: float = 1800.0  # seconds for a whole job
    worker: str = WORKER  # the module whose `JOBS` every rank runs
    threads: int = 1  # threads of each rank, where the job does not set them
    one_host: bool = False

    @contextlib.contextmanager
    def standing(self) -> Iterator[World]:
        """Sets up the hosts for a block; loopback needs none."""
        with contextlib.ExitStack() as stack:
            if self.network != LOOPBACK:
                stack.enter_context(namespaces.hosts(self.ranks, self.network))
            yield self

    def run(self, job: str, options: dict[str, Any]) -> list[Any]:
        """Returns every rank's answer to a job of the worker's `JOBS`; call it inside `standing`.

        Raises:
            RankError: a rank failed or did not end in time.
        """
        port = PORT if self.network != LOOPBACK else _free_port()
        with tempfile.TemporaryDirectory() as folder:
            started = [self._start(rank, port, job, options, Path(folder)) for rank in range(self.ranks)]
            return answers_of(started, [], Path(folder), self.timeout)

    def _start(
        self, rank: int, port: int, job: str, options: dict[str, Any], folder: Path
    ) -> subprocess.Popen[bytes]:
        apart = self.network != LOOPBACK
        environment = {
            **ProcessSetting(threads=self.threads, malloc="kept").environment(),
            **{"RANK": str(rank), "WORLD_SIZE": str(self.ranks)},
            **self._place(rank),
            **{"MASTER_ADDR": namespaces.address(0) if apart else "127.0.0.1", "MASTER_PORT": str(port)},
            "GLOO_SOCKET_IFNAME": namespaces.DEVICE if apart else "lo",
        }
        order = {"module": self.worker, "job": job, "options": options}
        words = start.command(WORKER, "answer", order, folder / f"{rank}.json")
        command = [sys.executable, *words]
        return subprocess.Popen(
            namespaces.command_on(rank, command) if apart else command,
            env=environment,
            stdout=(folder / f"{rank}.log").open("wb"),
            stderr=subprocess.STDOUT,
        )

    def _place(self, rank: int) -> dict[str, str]:
        host, local, mates = (0, rank, self.ranks) if self.one_host else (rank, 0, 1)
        return {"GROUP_RANK": str(host), "LOCAL_RANK": str(local), "LOCAL_WORLD_SIZE": str(mates)}


def summary(of_ranks: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Returns what results keep of the answers of all ranks to a job: means over ranks."""
    found: dict[str, Any] = {"ranks": len(of_ranks)}
    for name, first in of_ranks[0].items():
        values: list[Any] = [one[name] for one in of_ranks]
        if name in ("wall", "peak"):
            found[name] = max(values)
        elif name == "cpu":
            found[name] = sum(values)
        elif name == "ready":
            steps = list(zip(*values, strict=True))
            found[name] = fmean(fmean(step) for step in steps)
            found["apart"] = fmean(max(step) - min(step) for step in steps)
        elif isinstance(first, dict):
            found[name] = {key: one for key, one in summary(values).items() if key != "ranks"}
        elif first is None or isinstance(first, (int, float)):
            found[name] = None if first is None else fmean(values)
    return found


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port
