"""Starting runs from tests, and the figures that they draw."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from safetensors.torch import load_file
from torch import Tensor

from pyg_batchgnn.data import Dataset
from pyg_batchgnn.train import start
from pyg_batchgnn.train.cli import main
from pyg_batchgnn.train.config.train_config import TrainConfig
from pyg_batchgnn.train.job import TrainingJob, build_job
from pyg_batchgnn.train.ranks import Ranks

SMALL = ["--num-layers", "2", "--fanout", "4,3", "--test-fanout", "5,5", "--hidden", "16", "--threads", "1"]
SMALL += ["--set", "run.malloc=default"]


def job_alone(config: TrainConfig, dataset: Dataset) -> TrainingJob:
    return build_job(config, dataset, Ranks.join(config.ranks))


def batchgnn(*arguments: object, plots: bool = False) -> int:
    """Runs the command line in this process, without plots by default; returns the exit status."""
    drawing = contextlib.nullcontext() if plots else without_plots()
    with drawing, pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    return int(ended.value.code or 0)


def mistake(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """Runs a command line that is refused; returns the one line that it says."""
    capsys.readouterr()
    assert batchgnn(*arguments) == 2
    said = capsys.readouterr().err
    assert said.startswith("batchgnn: ") and said.count("\n") == 1, said
    return said


@contextlib.contextmanager
def without_plots() -> Iterator[None]:
    """Leaves out the plots at the end of a run, which take as long as many of the runs here."""
    learning, phases = (mock.create_autospec(plot) for plot in (start.plot_learning, start.plot_phases))
    with mock.patch.multiple(start, plot_learning=learning, plot_phases=phases):
        yield


def figures_drawn(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    from matplotlib.figure import Figure  # late: it takes long to import

    drawn: list[Any] = []
    save = Figure.savefig

    def savefig(figure: Any, *arguments: Any, **options: Any) -> None:
        drawn.append(figure)
        save(figure, *arguments, **options)

    monkeypatch.setattr(Figure, "savefig", savefig)
    return drawn


def weights(run: Path) -> dict[str, Tensor]:
    return load_file(run / "checkpoint.safetensors")


def records(run: Path) -> list[dict[str, Any]]:
    """Lines of metrics.jsonl without what depends on time, or on where the features lie."""
    lines = (run / "metrics.jsonl").read_text().splitlines()
    parsed = [json.loads(line) for line in lines]
    timed = {"seconds", "elapsed_seconds", "phases", "phase_ranges", "imbalance", "disk"}
    return [{key: value for key, value in line.items() if key not in timed} for line in parsed]
