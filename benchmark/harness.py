"""Contestants in processes of their own, taking turns: the part that every benchmark shares."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from jobs import Options
from settings import HERE, MALLOC_ENVIRONMENT, Setting

WORKER = HERE / "worker.py"


@dataclass(frozen=True)
class Contestant:
    """One column of a table: which side does which job, under which interpreter.

    Attributes:
        name: the column's name.
        side: module under ``contestants/``.
        job: entry of that module's ``JOBS``.
        python: interpreter that has what the side needs.
    """

    name: str
    side: str
    job: str
    python: str = sys.executable


class ContestantError(RuntimeError):
    """A contestant could not start or broke down; the text says why."""


class Worker:
    """The process of one contestant. Answers come back in order, one line each."""

    def __init__(self, contestant: Contestant, options: Options, setting: Setting) -> None:
        self.contestant = contestant
        self.log = (HERE / "results" / "logs" / f"{contestant.name}.log".replace(" ", "-")).open("w")
        self.process = subprocess.Popen(
            [contestant.python, str(WORKER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            env=setting.environment(),
            text=True,
        )
        ready = self._ask(
            {
                "side": contestant.side,
                "job": contestant.job,
                "options": options.with_threads(setting.threads).as_dict(),
            }
        )
        self.versions: dict[str, str] = ready["versions"]

    def _ask(self, order: dict[str, Any]) -> dict[str, Any]:
        assert self.process.stdin and self.process.stdout
        with contextlib.suppress(BrokenPipeError):  # the answer, or its absence, says why
            self.process.stdin.write(json.dumps(order) + "\n")
            self.process.stdin.flush()
        line = self.process.stdout.readline()
        answer = json.loads(line) if line else {"error": self._ending()}
        if "error" in answer:
            self.close()
            raise ContestantError(f"{self.contestant.name}: {answer['error']}")
        return answer

    def _ending(self) -> str:
        """Why a process that gave no answer has ended."""
        code = self.process.wait()
        if code == -signal.SIGKILL:
            return "killed, most likely because memory ran out; use fewer --batches or a smaller graph"
        return f"ended with status {code} and no answer; see {self.log.name}"

    def round(self, number: int) -> dict[str, Any]:
        """Have one round done and return what was measured inside the process."""
        return self._ask({"round": number})

    def close(self) -> None:
        """Let the process end, by closing its input; wait for it."""
        if self.process.stdin:
            with contextlib.suppress(BrokenPipeError):
                self.process.stdin.close()
        self.process.wait(timeout=120)
        self.log.close()


@dataclass
class Series:
    """All rounds of one setting."""

    setting: Setting
    versions: dict[str, dict[str, str]] = field(default_factory=dict)
    rounds: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """JSON-able form with the medians that the tables are made of."""
        return {
            "threads": self.setting.threads,
            "malloc": self.setting.malloc.value,
            "environment": MALLOC_ENVIRONMENT[self.setting.malloc],
            "absent": self.absent,
            "contestants": {
                name: {"versions": self.versions[name], "median": medians(rounds), "rounds": rounds}
                for name, rounds in self.rounds.items()
            },
        }


def medians(rounds: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Medians over the rounds: what a minibatch takes, the rates, and the memory at a round's end."""
    result = {}
    for quantity in rounds[0]:
        if quantity not in ("minibatches", "resident"):
            result[f"{quantity}_per_minibatch"] = median(r[quantity] / r["minibatches"] for r in rounds)
    result["edges_per_second"] = median(r["edges"] / r["wall"] for r in rounds)
    result["edges_per_cpu_second"] = median(r["edges"] / r["cpu"] for r in rounds)
    result["resident"] = median(r["resident"] for r in rounds)
    return result


class _Table:
    """The workers of a series; one that breaks down leaves, and the series says why."""

    def __init__(self, contestants: Sequence[Contestant], options: Options, series: Series) -> None:
        self.series = series
        self.workers: list[Worker] = []
        for contestant in contestants:
            try:
                worker = Worker(contestant, options, series.setting)
            except (ContestantError, OSError) as error:
                self._leave(contestant.name, error)
                continue
            self.workers.append(worker)
            series.versions[contestant.name] = worker.versions
            series.rounds[contestant.name] = []

    def _leave(self, name: str, error: Exception) -> None:
        self.series.rounds.pop(name, None)
        self.series.absent[name] = str(error)
        print(f"  without {name}: {error}", flush=True)

    def play(self, number: int) -> dict[str, dict[str, Any]]:
        """One round: everyone once, in an order that begins one further every time."""
        turn = number % max(len(self.workers), 1)
        measured = {}
        for worker in self.workers[turn:] + self.workers[:turn]:
            try:
                measured[worker.contestant.name] = worker.round(number)
            except ContestantError as error:
                self.workers.remove(worker)
                self._leave(worker.contestant.name, error)
        return measured

    def close(self) -> None:
        for worker in self.workers:
            worker.close()


def run_series(
    contestants: Sequence[Contestant], options: Options, setting: Setting, rounds: int, warmup: int = 1
) -> Series:
    """Rounds in which everyone has one turn, first turns going round; ``warmup`` rounds are not measured."""
    (HERE / "results" / "logs").mkdir(parents=True, exist_ok=True)
    series = Series(setting)
    print(f"{setting.threads} thread(s), malloc {setting.malloc.value}", flush=True)
    playing = _Table(contestants, options, series)
    try:
        for number in range(warmup + rounds):
            for name, measured in playing.play(number).items():
                if number >= warmup:
                    series.rounds[name].append(measured)
    finally:
        playing.close()
    for name, measured_rounds in series.rounds.items():
        middle = medians(measured_rounds)
        wall, cpu = 1e3 * middle["wall_per_minibatch"], 1e3 * middle["cpu_per_minibatch"]
        rate = middle["edges_per_second"] / 1e6
        print(f"  {name:<24} {wall:9.1f} ms a minibatch, {cpu:9.1f} CPU, {rate:8.2f} M edges/s", flush=True)
    return series
