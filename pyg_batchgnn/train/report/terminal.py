"""What a run shows on the terminal: a progress bar, a line an epoch, a table at the end."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType

from rich.console import Console
from rich.filesize import decimal
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from pyg_batchgnn.comm import describe_backend
from pyg_batchgnn.data import SPLITS, Dataset
from pyg_batchgnn.train.config import CacheKind, RanksConfig, TrainConfig
from pyg_batchgnn.train.loop import RunResult
from pyg_batchgnn.train.measure import PHASE_LABELS, Phase
from pyg_batchgnn.train.ranks import Ranks
from pyg_batchgnn.train.run_folder import EpochRecord, RunFolder


class TerminalReport:
    """An `RunObserver` that prints; the bar shows only on a terminal and leaves nothing behind."""

    def __init__(self, console: Console, epochs: int) -> None:
        self._console = console
        self._epochs = epochs
        self._bar = Progress(
            TextColumn("epoch {task.fields[epoch]}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("minibatches  loss {task.fields[loss]}"),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("", epoch="", loss="-", visible=False)

    def __enter__(self) -> TerminalReport:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def epoch_begins(self, epoch: int, step: int, steps: int) -> None:
        """Start the bar."""
        shown = f"{epoch}/{self._epochs}"
        self._bar.reset(self._task, total=steps, completed=step, epoch=shown, loss="-", visible=True)

    def step_done(self, loss: float) -> None:
        """Move the bar."""
        self._bar.update(self._task, advance=1, loss=f"{loss:.4f}")

    def epoch_done(self, record: EpochRecord, is_best: bool) -> None:
        """Print the epoch's line."""
        width = len(str(self._epochs))
        val = "     -" if record.val_accuracy is None else f"{record.val_accuracy:.4f}"
        self._console.print(
            f"epoch {record.epoch:>{width}}/{self._epochs}  loss {record.loss:7.4f}  "
            f"train acc {record.train_accuracy:.4f}  val acc {val}  {record.seconds:6.2f} s"
            f"{'  best' if is_best else ''}",
            highlight=False,
        )


def opening(config: TrainConfig, dataset: Dataset, folder: RunFolder, ranks: Ranks) -> list[str]:
    """The lines that a run starts with."""
    model, sampling, threads = config.model, config.sampling, config.run.threads or 1
    heads = f", {model.heads} heads" if model.kind.value == "gat" else ""
    sizes = "/".join(f"{len(dataset.split(name)):,}" for name in SPLITS)
    lines = [
        f"data    {dataset.name}: {dataset.num_nodes:,} nodes, {dataset.num_edges:,} edges, "
        f"{dataset.num_features:,} features, {dataset.num_classes} classes, "
        f"{sizes} train/val/test nodes",
        f"        {dataset.source}",
        f"model   {model.kind.value}, {model.num_layers} {model.layers.value} layers, "
        f"hidden {model.hidden}{heads}, {config.run.precision.value}",
        f"sample  fanout {_commas(sampling.fanout)} {sampling.replacement.value} replacement, "
        f"batch {sampling.batch_size}; evaluation fanout {_commas(config.test_fanout)}",
        *_cache_line(config),
        f"run     {folder.path}, {config.run.epochs} epochs, seed {config.run.seed}, {threads} thread(s)",
    ]
    return lines if ranks.is_alone else [*lines, _ranks_line(config.ranks, ranks)]


def _cache_line(config: TrainConfig) -> list[str]:
    if config.sampling.cache is CacheKind.OFF:
        return []
    evaluation = "with them" if config.evaluates_with_cache else "without"
    hop = config.sampling.fanout[-1]
    return [f"        aggregates of all neighbours instead of the last hop's {hop}; evaluation {evaluation}"]


def _ranks_line(config: RanksConfig, ranks: Ranks) -> str:
    hosts = len(set(ranks.training.hosts))
    topology = ", topology on every rank" if config.hybrid else ""
    backend = describe_backend(config.backend)
    cache = "" if config.feature_cache is None else f", {decimal(config.feature_cache)} of remote rows kept"
    return (
        f"ranks   {ranks.size} on {hosts} host{'s' if hosts > 1 else ''}, {backend}; partition "
        f"{config.partition}{topology}{cache}; {config.schedule.value} schedule"
    )


def final_table(result: RunResult, records: Sequence[EpochRecord]) -> Table:
    """Accuracy at the best validation epoch, and seconds by phase with their share; over several ranks the
    mean, the range, and how uneven their work was."""
    table = Table(title="Result", title_justify="left")
    several = result.ranks > 1
    table.add_column("what")
    table.add_column(f"mean of {result.ranks} ranks" if several else "value", justify="right")
    table.add_column("share", justify="right")
    if several:
        table.add_column("range over ranks", justify="right")
    table.add_row("test accuracy", _share(result.test_accuracy))
    table.add_row(f"validation accuracy (best, epoch {result.best_epoch})", _share(result.val_accuracy))
    table.add_section()
    total = sum(result.phases.values())
    for phase in Phase:
        if phase is Phase.EXCHANGE and not several:
            continue
        seconds = result.phases.get(phase.value, 0.0)
        ends = " - ".join(f"{end:.2f}" for end in result.phase_ranges.get(phase.value, []))
        table.add_row(
            PHASE_LABELS[phase], f"{seconds:.2f} s", f"{seconds / total:.1%}" if total else "", ends
        )
    table.add_section()
    table.add_row("all phases", f"{total:.2f} s")
    table.add_row("wall time of the epochs", f"{result.seconds:.2f} s")
    if several:
        table.add_section()
        for what in ("edges", "seconds"):
            ratios = [record.imbalance[what] for record in records if what in record.imbalance]
            mean = f"{sum(ratios) / len(ratios):.3f}" if ratios else "-"
            table.add_row(f"imbalance of {what}, most / mean", mean)
    return table


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def _commas(numbers: tuple[int, ...]) -> str:
    return ",".join(map(str, numbers))
