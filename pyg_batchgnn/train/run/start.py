"""Starts, resumes and ends a run: what ``batchgnn train`` does, on every rank."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

import torch
from rich.console import Console

from pyg_batchgnn.data import Dataset, default_dataset, load_dataset
from pyg_batchgnn.nn.matmul import ProductChoice
from pyg_batchgnn.train.config import (
    TrainConfig,
    agreed_fields,
    assign,
    config_from_dict,
    config_to_dict,
    is_thread_independent,
    read_config,
    refuse_changes,
    with_decided_fields,
)
from pyg_batchgnn.train.graph import DatasetFingerprint, check_partition, fingerprint_dataset
from pyg_batchgnn.train.loop import RunOutcome, RunResult, StopRequest, Trainer, TrainingJob, build_job
from pyg_batchgnn.train.malloc import configure_malloc
from pyg_batchgnn.train.model import apply_product, choose_product, product_line
from pyg_batchgnn.train.ranks import Ranks
from pyg_batchgnn.train.report import TerminalReport, final_table, opening, plot_learning, plot_phases
from pyg_batchgnn.train.run_folder import Checkpoint, RunFolder, read_records, write_json


def start_run(config: TrainConfig, path: Path | None, console: Console) -> RunOutcome:
    """Train from the beginning in a new run folder.

    Raises:
        TrainError, DatasetError: something the user can mend.
        CommError: another rank failed, or was given other arguments.
    """
    with Ranks.join(config.ranks) as ranks:
        return _start(ranks, config, path, _of_first(ranks, console))


def resume_run(path: Path, changes: list[str], console: Console) -> RunOutcome:
    """Go on with a run from its checkpoint; `changes` as for `assign`. How the ranks meet is
    taken from the changes alone, as only the first one need have the run folder.

    Raises:
        TrainError, DatasetError, CommError: as `start_run` does.
    """
    meeting = [change for change in changes if change.startswith("ranks.")]
    with Ranks.join(assign(TrainConfig(), meeting).ranks) as ranks:
        return _resume(ranks, path, changes, _of_first(ranks, console))


def start_or_resume_run(config: TrainConfig, path: Path, console: Console) -> RunOutcome:
    """Go on with the run at `path` where it has a checkpoint, with the configuration that it was started
    with; start it where it has none.

    Raises:
        TrainError, DatasetError, CommError: as `start_run` does.
    """
    with Ranks.join(config.ranks) as ranks:
        console = _of_first(ranks, console)
        if ranks.of_first(lambda: RunFolder(path).checkpoint.exists()):
            return _resume(ranks, path, config, console)
        ranks.of_first(RunFolder(path).clear)
        return _start(ranks, config, path, console)


def _start(ranks: Ranks, config: TrainConfig, path: Path | None, console: Console) -> RunOutcome:
    ranks.agree({"command": "start a run", **agreed_fields(config)})
    check_partition(config.ranks.partition)
    configure_malloc(config.run.malloc)
    dataset, identity = _open_together(ranks, config)
    own_threads = config.run.threads
    config = config_from_dict(ranks.of_first(lambda: _settled(config, dataset, ranks)))
    torch.set_num_threads(config.run.threads or 1)
    config, choice = choose_product(config, dataset, ranks)
    config = _with_own_threads(config, own_threads, ranks)
    job = build_job(config, dataset, ranks)
    folder = RunFolder(Path(ranks.of_first(lambda: _new_folder(config, dataset, path))))
    _print_opening(console, job, dataset, folder, choice, ranks)
    with StopRequest() as stop, TerminalReport(console, config.run.epochs) as report:
        trainer = Trainer(job, ranks, folder, identity, stop, report)
        outcome, result = _train(trainer)
    return _conclude(outcome, result, folder, dataset, console, ranks)


def _resume(ranks: Ranks, path: Path, wanted: list[str] | TrainConfig, console: Console) -> RunOutcome:
    """`wanted`: changes, or the whole configuration that the run must have been started with."""
    folder = RunFolder(path)
    written = config_from_dict(ranks.of_first(lambda: _written(path)))
    data = ranks.bytes_of_first(folder.checkpoint.read_bytes() if ranks.is_first else b"")
    checkpoint = Checkpoint.parse(folder.checkpoint, data)
    config = (
        with_decided_fields(wanted, written) if isinstance(wanted, TrainConfig) else assign(written, wanted)
    )
    refuse_changes(written, config, "a run cannot be resumed with another")
    ranks.agree({"command": f"resume {path}", **agreed_fields(config)})
    configure_malloc(config.run.malloc)
    dataset, identity = _open_together(ranks, config)
    torch.set_num_threads(config.run.threads or 1)
    apply_product(config)
    job = build_job(config, dataset, ranks)
    _print_opening(console, job, dataset, folder, None, ranks)
    with StopRequest() as stop, TerminalReport(console, config.run.epochs) as report:
        trainer = Trainer(job, ranks, folder, identity, stop, report)
        trainer.resume(checkpoint)
        ranks.of_first(lambda: write_json(folder.config, config_to_dict(config)))
        progress = checkpoint.progress
        step = f", minibatch {progress.step}" if progress.step else ""
        console.print(f"resumed after {progress.epoch} epochs{step}", highlight=False)
        outcome, result = _train(trainer)
    return _conclude(outcome, result, folder, dataset, console, ranks)


def open_dataset(name: str | None) -> Dataset:
    """The data set of that name or path; the default one where it is None."""
    return default_dataset() if name is None else load_dataset(name)


def _of_first(ranks: Ranks, console: Console) -> Console:
    """The first rank reports."""
    return console if ranks.is_first else Console(quiet=True, force_terminal=False)


def _open_together(ranks: Ranks, config: TrainConfig) -> tuple[Dataset, DatasetFingerprint]:
    """Each rank's data set, which must be the same, wherever it lies."""
    dataset = open_dataset(config.run.dataset)
    identity = fingerprint_dataset(dataset)
    ranks.agree({f"data set, {name}": value for name, value in identity.to_dict().items()})
    return dataset, identity


def _written(path: Path) -> dict[str, dict[str, object]]:
    """The configuration of a run that can be resumed, as JSON values."""
    folder = RunFolder.open(path)
    folder.remove_leftovers()
    written = read_config(folder.config)
    checkpoint = Checkpoint.load(folder.checkpoint)
    refuse_changes(checkpoint.config, written, f"{folder.config} was changed since the checkpoint:")
    return config_to_dict(written)


def _settled(config: TrainConfig, dataset: Dataset, ranks: Ranks) -> dict[str, dict[str, object]]:
    """With what was left open decided, so that the configuration alone repeats the run."""
    name = dataset.name if config.run.dataset is None else config.run.dataset
    if Path(name).is_dir():
        name = str(Path(name).resolve())
    threads = config.run.threads or ranks.threads()
    return config_to_dict(replace(config, run=replace(config.run, dataset=name, threads=threads)))


def _with_own_threads(config: TrainConfig, own: int | None, ranks: Ranks) -> TrainConfig:
    """Each rank may have a number of threads of its own, but where that changes bits: a resumed run knows the
    first rank's alone. A rank that was given none takes the first one's.

    Raises:
        AgreementError: the numbers differ and change bits.
    """
    config = replace(config, run=replace(config.run, threads=own or config.run.threads))
    if not is_thread_independent(config):
        ranks.agree({"run.threads": config.run.threads})
    torch.set_num_threads(config.run.threads or 1)
    return config


def _new_folder(config: TrainConfig, dataset: Dataset, path: Path | None) -> str:
    """The path of the run's folder, with the configuration in it."""
    source = Path(config.run.dataset or "")
    name = source.name if source.is_dir() and source.name else dataset.name.partition(":")[0]
    folder = RunFolder.create(path, f"{name}-{config.model.kind.value}")
    write_json(folder.config, config_to_dict(config))
    return str(folder.path)


def _train(trainer: Trainer) -> tuple[RunOutcome, RunResult | None]:
    if trainer.fit() is RunOutcome.INTERRUPTED:
        return RunOutcome.INTERRUPTED, None
    result = trainer.test()
    return (RunOutcome.INTERRUPTED if result is None else RunOutcome.FINISHED), result


def _conclude(
    outcome: RunOutcome,
    result: RunResult | None,
    folder: RunFolder,
    dataset: Dataset,
    console: Console,
    ranks: Ranks,
) -> RunOutcome:
    if not ranks.is_first:
        return outcome
    records = read_records(folder.metrics)
    if result is not None:  # before the plots: a plot that fails must not cost the result
        write_json(folder.result, asdict(result))
        console.print(final_table(result, records), highlight=False)
        plot_phases(result.phases, f"Wall time by phase: {folder.path.name}", folder.path / "phases.png")
    if records:
        best = max(records, key=lambda r: -1.0 if r.val_accuracy is None else r.val_accuracy).epoch
        plot_learning(records, f"{dataset.name}: {folder.path.name}", best, folder.path / "learning.png")
    ending = "written to" if result is not None else "stopped; go on with: batchgnn train --resume"
    console.print(f"{ending} {folder.path}", highlight=False, soft_wrap=True)
    return outcome


def _print_opening(
    console: Console,
    job: TrainingJob,
    dataset: Dataset,
    folder: RunFolder,
    choice: ProductChoice | None,
    ranks: Ranks,
) -> None:
    config = job.config
    lines = opening(config, dataset, folder, ranks)
    if (products := product_line(config, choice)) is not None:
        lines.append(f"        {products}")
    for line in [*lines, *(f"note    {note}" for note in job.notes)]:
        console.print(line, highlight=False, markup=False, soft_wrap=True)
