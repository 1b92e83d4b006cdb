"""Runs a function in several ranks, each a process, and brings back what they returned."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

from torch.distributed import TCPStore

ROOT = Path(__file__).parents[2]
_TEMPORARY = "temporary"
#: What PyG leaves for every class of convolutions of which a process has made one, and what Python
#: compiles of it.
_PYG = re.compile(r"_(propagate|edge_updater)_\w+\.(py|cpython-\w+\.pyc)$")


@dataclass(frozen=True)
class RankResult:
    rank: int
    code: int  # of its exit; minus the signal that ended it
    value: Any  # what the function returned, by JSON; None where it did not
    stderr: str


class Job:
    def __init__(self, pids: list[int], folder: Path) -> None:
        self.pids, self.folder = pids, folder
        self.codes: list[int | None] = [None] * len(pids)

    def kill(self) -> None:
        for pid in self.pids:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)

    def wait(self, ranks: set[int], timeout: float) -> bool:
        for _ in range(int(timeout / 0.01)):  # counted, not timed: all may have been stopped together
            self._poll()
            if all(self.codes[rank] is not None for rank in ranks):
                return True
            time.sleep(0.01)
        return False

    def end(self) -> None:
        """Kills what still runs and makes sure that nothing is left."""
        self.kill()
        assert self.wait(set(range(len(self.pids))), 30.0)
        left = list(_of_sessions(self.pids))
        assert not left, f"ranks left processes behind: {left}"
        left_there = [path for path in (self.folder / _TEMPORARY).rglob("*") if path.name != "__pycache__"]
        files = [path for path in left_there if not _PYG.search(path.name)]
        assert not files, f"ranks left temporary files behind: {files}"

    def errors(self) -> str:
        written = [self.folder / str(rank) / "stderr" for rank in range(len(self.pids))]
        return "\n".join(path.read_text(errors="replace")[-6000:] for path in written if path.exists())

    def _poll(self) -> None:
        running = [at for at, code in enumerate(self.codes) if code is None]
        answer = _ask({"do": "poll", "pids": [self.pids[at] for at in running]})
        for at, code in zip(running, answer, strict=True):
            self.codes[at] = code


@contextlib.contextmanager
def launch(
    function: Callable[..., Any] | str,
    ranks: int,
    arguments: dict[str, Any] | None = None,
    *,
    store: Literal["launcher", "rank 0"] = "launcher",
    hosts: Sequence[int] | None = None,
    environment: dict[str, str] | None = None,
    whole_end: bool = False,
) -> Iterator[Job]:
    """Starts ranks (see `run_ranks`); nothing of them is left at the end of the block."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for name in (*map(str, range(ranks)), _TEMPORARY):
            (folder / name).mkdir()
        common = {**_rendezvous(store, stack), "TMPDIR": str(folder / _TEMPORARY), **(environment or {})}
        environments = [_environment(rank, ranks, hosts or [0] * ranks, common) for rank in range(ranks)]
        request = {"function": _name(function), "arguments": arguments or {}, "folder": str(folder)}
        request["whole_end"] = whole_end
        job = Job(_ask({"do": "start", "environments": environments, **request}), folder)
        stack.callback(job.end)
        yield job


def run_ranks(
    function: Callable[..., Any] | str,
    ranks: int,
    arguments: dict[str, Any] | None = None,
    *,
    timeout: float = 60.0,
    never_end: Sequence[int] = (),
    check: bool = True,
    store: Literal["launcher", "rank 0"] = "launcher",
    hosts: Sequence[int] | None = None,
    environment: dict[str, str] | None = None,
    whole_end: bool = False,
) -> list[RankResult]:
    """Runs ``function`` in every rank, in a folder of its own, with torchrun's environment."""
    needed = set(range(ranks)) - set(never_end)
    options: dict[str, Any] = {"store": store, "hosts": hosts, "environment": environment}
    with launch(function, ranks, arguments, whole_end=whole_end, **options) as job:
        in_time = job.wait(needed, timeout)
        job.end()
        results = [_result(job.folder / str(rank), rank, job.codes[rank]) for rank in range(ranks)]
    assert in_time, f"ranks had not ended after {timeout} s\n{_errors(results)}"
    failed = [result for result in results if check and result.rank in needed and result.code]
    assert not failed, f"ranks {[result.rank for result in failed]} failed\n{_errors(failed)}"
    return results


def _name(function: Callable[..., Any] | str) -> str:
    if isinstance(function, str):
        return function
    module = function.__module__.removeprefix("tests.")  # pytest gives test modules names without it
    return f"tests.{module}:{function.__name__}"


def _environment(rank: int, ranks: int, hosts: Sequence[int], common: dict[str, str]) -> dict[str, str]:
    mates = [other for other in range(ranks) if hosts[other] == hosts[rank]]
    return {
        **common,
        "RANK": str(rank),
        "WORLD_SIZE": str(ranks),
        "LOCAL_RANK": str(mates.index(rank)),
        "LOCAL_WORLD_SIZE": str(len(mates)),
        "GROUP_RANK": str(hosts[rank]),
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
    }


def _rendezvous(store: str, stack: contextlib.ExitStack) -> dict[str, str]:
    if store == "rank 0":
        return {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_port())}
    host = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=60))
    stack.callback(lambda: host)  # lives as long as the launch
    agent = {"TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": "0"}
    return {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(host.port), **agent}


def _port() -> int:
    """Returns a free port below those that the system gives to connections."""
    while True:
        port = random.SystemRandom().randrange(12_000, 32_000)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


def _of_sessions(sessions: list[int]) -> Iterator[str]:
    """Processes that belong to the ranks' sessions, whoever started them."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            name, _, words = stat.read_text().rpartition(")")
            state, session = words.split()[0], int(words.split()[3])
            if session in sessions and state not in "ZX":
                yield name + ")"


def _result(folder: Path, rank: int, code: int | None) -> RankResult:
    assert code is not None
    value = folder / "value.json"
    return RankResult(
        rank,
        code,
        json.loads(value.read_text()) if value.exists() else None,
        (folder / "stderr").read_text(errors="replace") if (folder / "stderr").exists() else "",
    )


def _errors(results: Sequence[RankResult]) -> str:
    return "\n".join(
        f"--- rank {result.rank} (exit {result.code})\n{result.stderr[-6000:]}" for result in results
    )


_fork_server: subprocess.Popen[str] | None = None


def _ask(request: dict[str, Any]) -> list[Any]:
    global _fork_server
    if _fork_server is None:
        _fork_server = subprocess.Popen(
            [sys.executable, "-m", "tests.support.fork_server"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
        )
        atexit.register(_fork_server.kill)
    assert _fork_server.stdin is not None and _fork_server.stdout is not None
    _fork_server.stdin.write(json.dumps(request) + "\n")
    _fork_server.stdin.flush()
    answer: list[Any] = json.loads(_fork_server.stdout.readline())
    return answer
