"""The end of a run: its result, its plots and its last lines on the terminal."""

from __future__ import annotations

from dataclasses import asdict

from rich.console import Console

from pyg_batchgnn.train.report import final_table, plot_learning, plot_phases
from pyg_batchgnn.train.run_folder import RunFolder, RunResult, read_records, write_json


def write_ending(folder: RunFolder, result: RunResult | None, dataset: str, console: Console) -> None:
    """Writes the result and the plots to the run folder, and prints the table of results.

    Args:
        folder: of the run.
        result: None if the run was interrupted.
        dataset: the name of the data set.
        console: receives the lines.
    """
    records = read_records(folder.metrics)
    if result is not None:  # before the plots: a failing plot must not cost the result
        write_json(folder.result, asdict(result))
        console.print(final_table(result, records), highlight=False)
        plot_phases(result.phases, f"Wall time by phase: {folder.path.name}", folder.path / "phases.png")
    if records:
        best = max(records, key=lambda r: -1.0 if r.val_accuracy is None else r.val_accuracy).epoch
        plot_learning(records, f"{dataset}: {folder.path.name}", best, folder.path / "learning.png")
    ending = "written to" if result is not None else "stopped; continue with: batchgnn train --resume"
    console.print(f"{ending} {folder.path}", highlight=False, soft_wrap=True)
