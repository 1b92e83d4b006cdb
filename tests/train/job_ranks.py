"""The jobs of ranks in test_ranks.py and test_evaluate.py: run the command line, take notes."""

from __future__ import annotations

import contextlib
import gc
import io
import os
import signal
import time
from dataclasses import asdict, dataclass, field
from typing import Any
from unittest import mock

import torch
import torch._dynamo

from pyg_batchgnn.train import prediction, trainer
from pyg_batchgnn.train.cli import main
from pyg_batchgnn.train.job import Replica
from pyg_batchgnn.train.trainer import train_step
from tests.support.training_runs import without_plots


@dataclass
class Seen:
    """The observations of a rank in one run of the command line."""

    status: int = -1  # that it ended with
    out: str = ""
    err: str = ""
    seeds: list[list[int]] = field(default_factory=list)  # of each minibatch that it trained
    losses: list[float] = field(default_factory=list)  # their sums
    threads: int = 0  # of torch, in training
    seconds: float = 0.0  # from the fault on


def run(commands: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Runs one command after the other.

    Each has ``arguments`` of the command line or, where ranks differ, ``by_rank``; and may have
    ``fault``, [rank, step, what]: a signal's name, which that rank sends itself before that step,
    counted from 0.
    """
    rank = int(os.environ["RANK"])
    seen = [asdict(_run_one(command, rank)) for command in commands]
    gc.collect()
    if not any("fault" in command for command in commands):
        assert not any(type(one) is Replica for one in gc.get_objects()), "a replica is never freed"
    return seen


def _run_one(command: dict[str, Any], rank: int) -> Seen:
    seen, out, err = Seen(), io.StringIO(), io.StringIO()
    victim, at, name = command.get("fault", [-1, -1, ""])
    began = time.monotonic()

    def step(job: Any, batch: Any, *arguments: Any) -> Any:
        nonlocal began
        if len(seen.seeds) == at:
            began = time.monotonic()
            if rank == victim:
                os.kill(os.getpid(), getattr(signal, name))
        figures = train_step(job, batch, *arguments)
        seen.seeds.append(job.network.seeds(batch).tolist())
        seen.losses.append(figures.loss)
        seen.threads = torch.get_num_threads()
        return figures

    arguments = command["by_rank"][rank] if "by_rank" in command else command["arguments"]
    to_text = contextlib.redirect_stdout(out), contextlib.redirect_stderr(err)
    with mock.patch.object(trainer, "train_step", step), to_text[0], to_text[1], without_plots():
        try:
            main(arguments)
        except SystemExit as ended:
            seen.status = int(ended.code or 0)
    seen.out, seen.err, seen.seconds = out.getvalue(), err.getvalue(), time.monotonic() - began
    return seen


def killed(arguments: list[str], victim: int) -> list[dict[str, Any]]:
    """Runs a command; ``victim`` kills itself before the model computes the nodes."""
    infer_all = prediction.infer_all

    def infer(*given: Any) -> Any:
        if int(os.environ["RANK"]) == victim:
            os.kill(os.getpid(), signal.SIGKILL)
        return infer_all(*given)

    with mock.patch.object(prediction, "infer_all", infer):
        return run([{"arguments": arguments}])
