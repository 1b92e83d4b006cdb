"""Contestants in processes of their own, taking turns: the part that every benchmark shares."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from benchmark.support.jobs import Options
from benchmark.support.tables import typical

#: The folder of all benchmarks.
BENCHMARK = Path(__file__).resolve().parents[1]


#: The settings of glibc's allocator. "kept": nothing is mapped anew or given back between
#: minibatches.
MALLOC = {
    "default": {},
    "kept": {
        "MALLOC_MMAP_THRESHOLD_": "4294967296",
        "MALLOC_TRIM_THRESHOLD_": "17179869184",
        "MALLOC_TOP_PAD_": "67108864",
    },
}


@dataclass(frozen=True)
class ProcessSetting:
    """The environment that all contestants of a series share."""

    threads: int = 1
    malloc: str = "default"
    preload: str = ""

    def environment(self) -> dict[str, str]:
        """Returns the variables of a contestant: ours without malloc's, and the setting's."""
        clean = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
        threads = str(self.threads)
        return {
            **clean,
            "PYTHONPATH": str(BENCHMARK.parent),
            **MALLOC[self.malloc],
            "OMP_NUM_THREADS": threads,
            "MKL_NUM_THREADS": threads,
            "DGLBACKEND": "pytorch",
            **({"LD_PRELOAD": self.preload} if self.preload else {}),
        }


WORKER = "benchmark.support.worker"
LOGS = BENCHMARK / "results" / "logs"


@dataclass(frozen=True)
class Contestant:
    """One column of a table: which side does which job, under which interpreter."""

    name: str  # the column's name
    side: str  # module under ``contestants/``
    job: str  # entry of that module's ``JOBS``
    python: str = sys.executable  # interpreter that has what the side needs
    batches: int = 0


class ContestantError(RuntimeError):
    """The error of a contestant that could not start or failed; the text says why."""


class Worker:
    """The process of one contestant. Answers come back in order, one line each."""

    def __init__(self, contestant: Contestant, setting: ProcessSetting) -> None:
        LOGS.mkdir(parents=True, exist_ok=True)
        self.contestant, self.setting = contestant, setting
        self.log = (LOGS / f"{contestant.name}.log".replace(" ", "-")).open("w")
        self.process = subprocess.Popen(
            [contestant.python, "-m", WORKER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            env=setting.environment(),
            text=True,
        )

    def prepare(self, options: Options) -> dict[str, Any]:
        """Lets the process build the job; returns the ``versions`` of its packages."""
        mine = replace(
            options, threads=self.setting.threads, batches=self.contestant.batches or options.batches
        )
        order = {"side": self.contestant.side, "job": self.contestant.job, "options": mine.as_dict()}
        return self._ask(order)

    def round(self, number: int) -> dict[str, Any]:
        return self._ask({"round": number})

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def _ask(self, order: dict[str, Any]) -> dict[str, Any]:
        assert self.process.stdin and self.process.stdout
        with contextlib.suppress(BrokenPipeError):  # the answer, or its absence, says why
            self.process.stdin.write(json.dumps(order) + "\n")
            self.process.stdin.flush()
        line = self.process.stdout.readline()
        answer = json.loads(line) if line else {"error": self._ending()}
        if "error" in answer:
            raise ContestantError(f"{self.contestant.name}: {answer['error']}")
        return answer

    def _ending(self) -> str:
        code = self.process.wait()
        if code == -signal.SIGKILL:
            return "killed, most likely because memory ran out; use fewer --batches or a smaller graph"
        return f"ended with status {code} and no answer; see {self.log.name}"

    def close(self) -> None:
        """Lets the process end, by closing its input, and waits for it."""
        if self.process.stdin:
            with contextlib.suppress(BrokenPipeError):
                self.process.stdin.close()
        self.process.wait(timeout=120)
        self.log.close()


@dataclass
class Series:
    """All rounds of one setting."""

    setting: ProcessSetting
    versions: dict[str, dict[str, str]] = field(default_factory=dict)
    rounds: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)

    def leave(self, name: str, error: Exception) -> None:
        self.rounds.pop(name, None)
        self.absent[name] = str(error)
        print(f"  without {name}: {error}", flush=True)

    def show(self) -> None:
        """Prints the figures."""
        for name, rounds in self.rounds.items():
            middle = figures(rounds)
            wall, cpu = 1e3 * middle["wall_per_minibatch"], 1e3 * middle["cpu_per_minibatch"]
            rate = middle["edges_per_second"] / 1e6
            print(
                f"  {name:<28} {wall:9.1f} ms per minibatch, {cpu:9.1f} CPU, {rate:8.2f} M edges/s",
                flush=True,
            )

    def as_dict(self) -> dict[str, Any]:
        """Returns the series for JSON, with the figures that tables show."""
        return {
            "threads": self.setting.threads,
            "malloc": self.setting.malloc,
            "absent": self.absent,
            "contestants": {
                name: {
                    "versions": self.versions[name],
                    "figures": figures(rounds),
                    "walls": [one["wall"] / one["minibatches"] for one in rounds],
                }
                for name, rounds in self.rounds.items()
            },
        }


PER_ROUND = ("minibatches", "resident")


def figures(rounds: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Returns what tables show of the rounds (`typical`): figures per minibatch, and rates."""
    result = {}
    for quantity in rounds[0]:
        if quantity not in PER_ROUND:
            result[f"{quantity}_per_minibatch"] = typical(r[quantity] / r["minibatches"] for r in rounds)
    result["edges_per_second"] = 1 / typical(r["wall"] / r["edges"] for r in rounds)
    result["edges_per_cpu_second"] = 1 / typical(r["cpu"] / r["edges"] for r in rounds)
    return result


class Players:
    """The processes of one setting, kept from one series to the next; use as a context manager."""

    def __init__(self, contestants: Sequence[Contestant], setting: ProcessSetting) -> None:
        self.contestants, self.setting = contestants, setting
        self.workers: dict[str, Worker] = {}

    def __enter__(self) -> Players:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self.workers.values():
            worker.close()

    def _worker(self, contestant: Contestant) -> Worker:
        worker = self.workers.get(contestant.name)
        if worker is None or not worker.alive:
            worker = self.workers[contestant.name] = Worker(contestant, self.setting)
        return worker

    def _prepare(self, options: Options, series: Series, names: Sequence[str] | None) -> list[Worker]:
        """Returns the workers that can do the job; the series says why others cannot."""
        playing = []
        for contestant in (one for one in self.contestants if names is None or one.name in names):
            try:
                worker = self._worker(contestant)
                answer = worker.prepare(options)
            except (ContestantError, OSError) as error:
                series.leave(contestant.name, error)
                continue
            series.versions[contestant.name] = answer["versions"]
            series.rounds[contestant.name] = []
            playing.append(worker)
        return playing

    def series(
        self, options: Options, rounds: int, warmup: int = 1, names: Sequence[str] | None = None
    ) -> Series:
        """Measures rounds in which every contestant has one turn; the first one changes."""
        series = Series(self.setting)
        playing = self._prepare(options, series, names)
        for number in range(warmup + rounds):
            turn = number % max(len(playing), 1)
            for worker in playing[turn:] + playing[:turn]:
                try:
                    measured = worker.round(number)
                except ContestantError as error:
                    playing = [one for one in playing if one is not worker]
                    series.leave(worker.contestant.name, error)
                    continue
                if number >= warmup:
                    series.rounds[worker.contestant.name].append(measured)
        series.show()
        return series
