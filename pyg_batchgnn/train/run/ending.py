"""The end of a run: its result, its plots and its last lines on the terminal."""

from __future__ import annotations

from dataclasses import asdict

from rich.console import Console

from pyg_batchgnn.train.report import final_table, plot_learning, plot_phases
from pyg_batchgnn.train.run_folder import EpochRecord, RunFolder, RunResult, read_records, write_json
from pyg_batchgnn.train.task import Task


def write_ending(
    folder: RunFolder, result: RunResult | None, task: Task, dataset: str, console: Console
) -> None:
    """Writes the result and the plots to the run folder, and prints the table of results.

    Args:
        folder: of the run.
        result: None if the run was interrupted.
        task: of the run.
        dataset: the name of the data set.
        console: receives the lines.
    """
    records = read_records(folder.metrics)
    if result is not None:  # before the plots: a failing plot must not cost the result
        write_json(folder.result, asdict(result))
        console.print(final_table(result, records), highlight=False)
        plot_phases(result.phases, f"Wall time by phase: {folder.path.name}", folder.path / "phases.png")
    if records:
        best = _best_epoch(records, task)
        plot_learning(records, task, f"{dataset}: {folder.path.name}", best, folder.path / "learning.png")
    ending = "written to" if result is not None else "stopped; continue with: batchgnn train --resume"
    console.print(f"{ending} {folder.path}", highlight=False, soft_wrap=True)


def _best_epoch(records: list[EpochRecord], task: Task) -> int:
    """Returns the epoch with the best validation; the last one if there was none."""
    name, best, epoch = task.metric.value, None, records[-1].epoch
    for record in records:
        if record.val is not None and task.improves(record.val[name], best):
            best, epoch = record.val[name], record.epoch
    return epoch
