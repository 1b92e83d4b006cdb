"""Starts, resumes and ends a run: what ``batchgnn train`` does."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from pyg_batchgnn.data import Dataset, default_dataset, load_dataset
from pyg_batchgnn.nn.matmul import ProductChoice
from pyg_batchgnn.train import config_json
from pyg_batchgnn.train.checkpoint import Checkpoint
from pyg_batchgnn.train.config import LayerSource, MatrixProduct, TrainConfig
from pyg_batchgnn.train.errors import TrainError
from pyg_batchgnn.train.fingerprint import fingerprint
from pyg_batchgnn.train.job import Job, build_job
from pyg_batchgnn.train.memory import configure_malloc
from pyg_batchgnn.train.metrics import read_records
from pyg_batchgnn.train.outcome import Outcome, RunResult
from pyg_batchgnn.train.plots import plot_learning, plot_phases
from pyg_batchgnn.train.product import apply_product, product_line, settle_product
from pyg_batchgnn.train.report import TerminalReport, final_table, opening
from pyg_batchgnn.train.run_folder import RunFolder, write_json
from pyg_batchgnn.train.stop import StopRequest
from pyg_batchgnn.train.trainer import Trainer

# What may change when a run is resumed: length and resources, which leave the results of each epoch alone.
_RESUMABLE = frozenset(
    {
        "run.epochs",
        "run.dataset",
        "run.malloc",
        "run.checkpoint_seconds",
        "sampling.macrobatch_size",
        "sampling.fetch_size",
        "sampling.memory_budget",
        "sampling.prefetch",
    }
)


def start_run(config: TrainConfig, path: Path | None, console: Console) -> Outcome:
    """Train from the beginning in a new run folder.

    Raises:
        TrainError, DatasetError: something the user can mend.
    """
    configure_malloc(config.run.malloc)
    dataset = open_dataset(config.run.dataset)
    config = _settled(config, dataset)
    torch.set_num_threads(config.run.threads or 1)
    config, choice = settle_product(config, dataset)
    job = build_job(config, dataset)
    folder = RunFolder.create(path, f"{_short_name(dataset, config)}-{config.model.kind.value}")
    write_json(folder.config, config_json.to_dict(config))
    _print_opening(console, job, dataset, folder, choice)
    with StopRequest() as stop, TerminalReport(console, config.run.epochs) as report:
        trainer = Trainer(job, folder, fingerprint(dataset), stop, report)
        outcome, result = _train(trainer)
    return _conclude(outcome, result, folder, dataset, console)


def resume_run(path: Path, changes: list[str], console: Console) -> Outcome:
    """Go on with a run from its checkpoint; `changes` as for `config_json.assign`.

    Raises:
        TrainError, DatasetError: something the user can mend.
    """
    folder = RunFolder.open(path)
    written = config_json.read(folder.config)
    checkpoint = Checkpoint.load(folder.checkpoint)
    _refuse_changes(checkpoint.config, written, f"{folder.config} was changed since the checkpoint:")
    config = config_json.assign(written, changes)
    _refuse_changes(written, config, "a run cannot be resumed with another")
    configure_malloc(config.run.malloc)
    dataset = open_dataset(config.run.dataset)
    torch.set_num_threads(config.run.threads or 1)
    apply_product(config)
    job = build_job(config, dataset)
    _print_opening(console, job, dataset, folder, None)
    with StopRequest() as stop, TerminalReport(console, config.run.epochs) as report:
        trainer = Trainer(job, folder, fingerprint(dataset), stop, report)
        records = trainer.resume(checkpoint)
        write_json(folder.config, config_json.to_dict(config))
        step = f", minibatch {checkpoint.progress.step}" if checkpoint.progress.step else ""
        console.print(f"resumed after {len(records)} epochs{step}", highlight=False)
        outcome, result = _train(trainer)
    return _conclude(outcome, result, folder, dataset, console)


def open_dataset(name: str | None) -> Dataset:
    """The data set of that name or path; the default one where it is None."""
    return default_dataset() if name is None else load_dataset(name)


def _short_name(dataset: Dataset, config: TrainConfig) -> str:
    """The last part of a data set's path, or its name without options."""
    path = Path(config.run.dataset or "")
    return path.name if path.is_dir() and path.name else dataset.name.partition(":")[0]


def _settled(config: TrainConfig, dataset: Dataset) -> TrainConfig:
    """With what was left open decided, so that the configuration alone repeats the run."""
    name = dataset.name if config.run.dataset is None else config.run.dataset
    if Path(name).is_dir():
        name = str(Path(name).resolve())
    threads = config.run.threads or torch.get_num_threads()
    return replace(config, run=replace(config.run, dataset=name, threads=threads))


def _train(trainer: Trainer) -> tuple[Outcome, RunResult | None]:
    if trainer.fit() is Outcome.INTERRUPTED:
        return Outcome.INTERRUPTED, None
    result = trainer.test()
    return (Outcome.INTERRUPTED if result is None else Outcome.FINISHED), result


def _conclude(
    outcome: Outcome, result: RunResult | None, folder: RunFolder, dataset: Dataset, console: Console
) -> Outcome:
    records = read_records(folder.metrics)
    if records:
        best = max(records, key=lambda r: -1.0 if r.val_accuracy is None else r.val_accuracy).epoch
        plot_learning(records, f"{dataset.name}: {folder.path.name}", best, folder.path / "learning.png")
    if result is None:
        console.print(
            f"stopped; go on with: batchgnn train --resume {folder.path}", highlight=False, soft_wrap=True
        )
        return outcome
    plot_phases(result.phases, f"Wall time by phase: {folder.path.name}", folder.path / "phases.png")
    write_json(folder.result, asdict(result))
    console.print(final_table(result), highlight=False)
    console.print(f"written to {folder.path}", highlight=False, soft_wrap=True)
    return outcome


def _print_opening(
    console: Console, job: Job, dataset: Dataset, folder: RunFolder, choice: ProductChoice | None
) -> None:
    config = job.config
    lines = opening(config, dataset, folder, config.run.threads or 1)
    if (products := product_line(config, choice)) is not None:
        lines.append(f"        {products}")
    for line in [*lines, *(f"note    {note}" for note in job.notes)]:
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def _refuse_changes(before: TrainConfig, after: TrainConfig, reason: str) -> None:
    old, new = _flat(config_json.to_dict(before)), _flat(config_json.to_dict(after))
    resumable = _RESUMABLE | ({"run.threads"} if _any_threads(before) else set())
    for name, value in new.items():
        if value != old[name] and name not in resumable:
            raise TrainError(f"{reason} {name} ({old[name]!r} is now {value!r}); start a new run for that")


def _any_threads(config: TrainConfig) -> bool:
    """Whether the bits of a run are the same on any number of threads. PyTorch's products are not."""
    is_native = config.model.layers is LayerSource.NATIVE
    return is_native and config.run.matrix_product is MatrixProduct.NATIVE


def _flat(values: dict[str, Any]) -> dict[str, Any]:
    return {f"{section}.{key}": value for section, part in values.items() for key, value in part.items()}
