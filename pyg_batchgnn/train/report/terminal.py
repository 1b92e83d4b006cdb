"""The report of a run on the terminal: a progress bar, and one line per epoch."""

from __future__ import annotations

from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from pyg_batchgnn.train.config import Metric
from pyg_batchgnn.train.run_folder import EpochRecord
from pyg_batchgnn.train.task import Task

#: The columns of an ordinary terminal.
_COLUMNS = 80


class TerminalReport:
    """A `RunObserver` that prints. The bar shows only on a terminal, and disappears at the end."""

    def __init__(self, console: Console, epochs: int, task: Task) -> None:
        self._console = console
        self._task = task
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
        self._bar_task = self._bar.add_task("", epoch="", loss="-", visible=False)

    def __enter__(self) -> TerminalReport:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def epoch_begins(self, epoch: int, step: int, steps: int) -> None:
        """Starts the bar."""
        shown = f"{epoch}/{self._epochs}"
        self._bar.reset(self._bar_task, total=steps, completed=step, epoch=shown, loss="-", visible=True)

    def step_done(self, loss: float) -> None:
        """Moves the bar."""
        self._bar.update(self._bar_task, advance=1, loss=f"{loss:.4f}")

    def epoch_done(self, record: EpochRecord, is_best: bool) -> None:
        """Prints the epoch's line."""
        self._console.print(
            epoch_line(record, self._epochs, self._task, is_best), highlight=False, soft_wrap=True
        )

    def stopped_early(self, validations: int) -> None:
        """Prints why no more epochs follow."""
        metric = self._task.metric.label
        self._console.print(
            f"stopped early: the last {validations} validations had no better {metric}",
            highlight=False,
            soft_wrap=True,
        )


def epoch_line(record: EpochRecord, epochs: int, task: Task, is_best: bool) -> str:
    """Returns the line of an epoch, which fits 80 columns.

    The metric of training minibatches is left out if there is no room for it.
    """
    train, metric = task.train_metric, task.metric
    what = "" if train is metric else f" {train.label}"  # the name is said once
    val = "     -" if record.val is None else f"{record.val[metric.value]:.4f}"
    seconds = f"{record.seconds:.2f}" if record.seconds < 1000 else f"{record.seconds:.0f}"
    best = "  best"
    parts = [
        f"epoch {record.epoch:>{len(str(epochs))}}/{epochs}  loss {record.train['loss']:.4f}",
        f"train{what} {record.train[train.value]:.4f}",
        f"val {_short(metric)} {val}  {seconds} s",
    ]
    if len("  ".join(parts) + best) > _COLUMNS:
        del parts[1]
    return "  ".join(parts) + (best if is_best else "")


def _short(metric: Metric) -> str:
    return "AP" if metric is Metric.AVERAGE_PRECISION else metric.label
