"""Starting, resuming and ending a run."""

from __future__ import annotations

import textwrap
from dataclasses import asdict
from pathlib import Path

import torch
from rich.console import Console

from pyg_batchgnn.data import EDGE_FEATURES
from pyg_batchgnn.nn import ProductChoice
from pyg_batchgnn.train.checkpoint import Checkpoint
from pyg_batchgnn.train.config.train_config import (
    TrainConfig,
    agreed_fields,
    assign,
    config_from_dict,
    config_to_dict,
    edges_unread,
    read_config,
    refuse_changes,
    with_decided_fields,
)
from pyg_batchgnn.train.decisions import (
    apply_product,
    configure_malloc,
    decide_fields,
    decide_level,
    open_on_all_ranks,
    product_line,
)
from pyg_batchgnn.train.graphs import check_partition
from pyg_batchgnn.train.job import TrainingJob, build_job, check_optimiser
from pyg_batchgnn.train.progress import Phase
from pyg_batchgnn.train.ranks import Ranks
from pyg_batchgnn.train.report import (
    TerminalReport,
    final_table,
    larger_budgets,
    opening_lines,
    plot_learning,
    plot_phases,
)
from pyg_batchgnn.train.run_folder import RunFolder, RunResult, read_records, write_json
from pyg_batchgnn.train.run_log import RunLog, check_log
from pyg_batchgnn.train.trainer import RunOutcome, StopRequest, Trainer

_HEADER = textwrap.TextWrapper(80, subsequent_indent=" " * 8, break_long_words=False, break_on_hyphens=False)


def start_run(config: TrainConfig, path: Path | None, console: Console) -> RunOutcome:
    """Trains a model from the beginning, in a new run folder.

    >>> config = assign(preset("p3"), ["run.dataset=cora", "run.epochs=2"])  # doctest: +SKIP
    >>> start_run(config, Path("runs/first"), Console())  # doctest: +SKIP
    <RunOutcome.FINISHED: 'finished'>

    ``path``: the new folder; None chooses ``runs/<dataset>-<model>-<n>``. ``console``: a rich
    console, for the lines of the run. Returns how the run ended: Ctrl-C and SIGTERM interrupt it,
    with a checkpoint. Call it in every process of a launcher such as torchrun, on the main thread.

    Raises:
        TrainError: the configuration or the run folder cannot be used.
        DatasetError: the data set or the saved partition cannot be used.
        CommError: another rank failed, or was given other arguments.
    """
    with Ranks.join(config.ranks) as ranks:
        return _start(ranks, config, path, _first_console(ranks, console))


def resume_run(path: Path, changes: list[str], console: Console) -> RunOutcome:
    """Continues the run in the folder `path` from its checkpoint, in the middle of an epoch too. It
    ends with the weights of a run that was never interrupted. ``changes``: fields to change, as
    `assign` takes them. Only the first rank need see the folder, so the other ranks find how to
    join in the "ranks." fields of ``changes`` alone. Raises errors like `start_run`."""
    joining = [change for change in changes if change.startswith("ranks.")]
    with Ranks.join(assign(TrainConfig(), joining).ranks) as ranks:
        written = _read_written(ranks, path)
        return _resume(ranks, path, written, assign(written, changes), _first_console(ranks, console))


def start_or_resume_run(config: TrainConfig, path: Path, console: Console) -> RunOutcome:
    """Continues the run at `path` if it has a checkpoint, else starts it, as a restarted job does.
    The configuration must equal the first start's. Raises errors like `start_run`."""
    with Ranks.join(config.ranks) as ranks:
        console = _first_console(ranks, console)
        if ranks.from_first(lambda: RunFolder(path).checkpoint.exists()):
            written = _read_written(ranks, path)
            return _resume(ranks, path, written, with_decided_fields(config, written), console)
        ranks.from_first(RunFolder(path).clear)
        return _start(ranks, config, path, console)


def _start(ranks: Ranks, config: TrainConfig, path: Path | None, console: Console) -> RunOutcome:
    ranks.agree({"command": "start a run", **agreed_fields(config)})
    check_partition(config.ranks.partition)
    with ranks.any_error():
        check_log(config.run.log)
        check_optimiser(config)
    configure_malloc(config.run.malloc)
    dataset, fingerprint = open_on_all_ranks(config, ranks)
    config, choice = decide_fields(config, dataset, ranks)
    job = build_job(config, dataset, ranks)

    def make() -> str:
        source = Path(config.run.dataset or "")
        name = source.name if source.is_dir() and source.name else dataset.name.partition(":")[0]
        made = RunFolder.create(path, f"{name}-{config.model.kind.value}")
        write_json(made.config, config_to_dict(config))
        return str(made.path)

    folder = RunFolder(Path(ranks.from_first(make)))
    _print_opening(console, job, folder, choice, ranks)
    return _run(ranks, job, fingerprint, folder, console)


def _resume(
    ranks: Ranks, path: Path, written: TrainConfig, config: TrainConfig, console: Console
) -> RunOutcome:
    folder = RunFolder(path)
    data = ranks.bytes_from_first(folder.checkpoint.read_bytes() if ranks.is_first else b"")
    checkpoint = Checkpoint.load(folder.checkpoint, data)
    refuse_changes(written, config, "a run cannot be resumed with another")
    ranks.agree({"command": f"resume {path}", **agreed_fields(config)})
    configure_malloc(config.run.malloc)
    dataset, fingerprint = open_on_all_ranks(config, ranks)
    torch.set_num_threads(config.run.threads or 1)
    config = decide_level(config, ranks)
    apply_product(config)
    job = build_job(config, dataset, ranks)
    _print_opening(console, job, folder, None, ranks)
    before, now = (one.run.bfloat16_products.value for one in (written, config))
    if now not in (before, "auto") and before != "auto":
        goes_on = "the run goes on with other bits"
        _note(console, f"products of bfloat16 were {before} and are {now} now: {goes_on}")
    rate, new = (one.optimiser.learning_rate for one in (checkpoint.config, config))
    if rate != new:
        _note(console, f"the learning rate was {rate:g} and is {new:g} from here on")
    return _run(ranks, job, fingerprint, folder, console, checkpoint)


def _run(
    ranks: Ranks,
    job: TrainingJob,
    fingerprint: dict[str, int],
    folder: RunFolder,
    console: Console,
    checkpoint: Checkpoint | None = None,
) -> RunOutcome:
    """Trains and tests, from the checkpoint if one is given."""
    kept = 0 if checkpoint is None else checkpoint.progress.epoch
    with ranks.any_error():  # other ranks than the first have a log that receives nothing
        kind = job.config.run.log if ranks.is_first else None
        opened = RunLog(kind, folder.path, config_to_dict(job.config), kept)
    report = TerminalReport(
        console,
        job.config.run.epochs,
        job.task,
        ahead=lambda: job.train_loader.stats().total.minibatches_ahead,
    )
    with StopRequest() as stop, report, opened as log:
        trainer = Trainer(job, ranks, folder, fingerprint, stop, report, log)
        if checkpoint is not None:
            trainer.resume(checkpoint)
            ranks.from_first(lambda: write_json(folder.config, config_to_dict(job.config)))
            step = f", minibatch {checkpoint.progress.step}" if checkpoint.progress.step else ""
            console.print(f"resumed after {kept} epochs{step}", highlight=False)
        result = None if trainer.fit() is RunOutcome.INTERRUPTED else trainer.test()
        if result is not None and result.test is not None:
            log.write({f"test/{name}": value for name, value in result.test.items()}, result.best_epoch)
    return _end(ranks, folder, result, job, console)


def _note(console: Console, text: str) -> None:
    console.print(f"note    {text}", highlight=False, soft_wrap=True)


def _first_console(ranks: Ranks, console: Console) -> Console:
    return console if ranks.is_first else Console(quiet=True, force_terminal=False)


def _read_written(ranks: Ranks, path: Path) -> TrainConfig:
    def read() -> dict[str, dict[str, object]]:
        folder = RunFolder.open(path)
        folder.remove_leftovers()
        written = read_config(folder.config)
        checkpoint = Checkpoint.load(folder.checkpoint)
        refuse_changes(checkpoint.config, written, f"{folder.config} was changed since the checkpoint:")
        return config_to_dict(written)

    return config_from_dict(ranks.from_first(read))


def _print_opening(
    console: Console, job: TrainingJob, folder: RunFolder, choice: ProductChoice | None, ranks: Ranks
) -> None:
    lines, dataset = opening_lines(job, folder, ranks), job.dataset
    lines.append(f"        {product_line(job.config, choice)}")
    unread = [one for one in dataset.edge_sets if EDGE_FEATURES in one.tables]
    because = edges_unread(job.config)
    if unread and because is not None:
        names = " of " + ", ".join("-".join(one.relation) for one in unread) if dataset.has_names else ""
        job.notes.append(f"no layer reads the features of edges{names}: {because}")
    for line in [*lines, *(f"note    {note}" for note in job.notes)]:
        console.print(_HEADER.fill(line), highlight=False, markup=False, soft_wrap=True)


def _end(
    ranks: Ranks, folder: RunFolder, result: RunResult | None, job: TrainingJob, console: Console
) -> RunOutcome:
    outcome = RunOutcome.INTERRUPTED if result is None else RunOutcome.FINISHED
    if not ranks.is_first:
        return outcome
    records = read_records(folder.metrics)
    if result is not None:  # before the plots: a failing plot must not cost the result
        write_json(folder.result, asdict(result))
        larger = larger_budgets(job.dataset) if result.ranks == 1 else (0, 0)
        console.print(final_table(result, records, larger), highlight=False)
        several = result.ranks > 1
        phases = {name: one for name, one in result.phases.items() if several or name != Phase.EXCHANGE}
        plot_phases(phases, f"Wall time by phase: {folder.path.name}", folder.path / "phases.png")
    if records:
        name, best, epoch = job.task.metric.value, None, records[-1].epoch
        for record in records:  # the epoch with the best validation; the last one if there was none
            if (found := (record.val or {}).get(name)) is not None and job.task.improves(found, best):
                best, epoch = found, record.epoch
        title = f"{job.dataset.name}: {folder.path.name}"
        plot_learning(records, job.task, title, epoch, folder.path / "learning.png")
    ending = "written to" if result is not None else "stopped; continue with: batchgnn train --resume"
    console.print(f"{ending} {folder.path}", highlight=False, soft_wrap=True)
    return outcome
