"""The table at the end of a run."""

from __future__ import annotations

from collections.abc import Sequence

from rich.filesize import decimal
from rich.table import Table

from pyg_batchgnn.train.config import Metric
from pyg_batchgnn.train.measure import PHASE_LABELS, Phase
from pyg_batchgnn.train.run_folder import EpochRecord, RunResult


def final_table(result: RunResult, records: Sequence[EpochRecord]) -> Table:
    """Returns the table of results.

    It has the metrics of the best epoch, and the seconds of each phase with their share. With
    several ranks the seconds are the mean over ranks, with their range and the imbalance of the
    work.

    Args:
        result: the final figures.
        records: of all epochs, for the imbalance.
    """
    table = Table(title="Result", title_justify="left")
    several = result.ranks > 1
    table.add_column("what")
    table.add_column(f"mean of {result.ranks} ranks" if several else "value", justify="right")
    table.add_column("share", justify="right")
    if several:
        table.add_column("range over ranks", justify="right")
    for metric in _in_order(result):
        table.add_row(f"test {metric.label}", _shown(result.test, metric))
    best = Metric(result.metric)
    table.add_row(f"validation {best.label} (best, epoch {result.best_epoch})", _shown(result.val, best))
    table.add_section()
    total = sum(result.phases.values())
    for phase in Phase:
        if phase is Phase.EXCHANGE and not several:
            continue
        seconds = result.phases.get(phase.value, 0.0)
        row = [PHASE_LABELS[phase], f"{seconds:.2f} s", f"{seconds / total:.1%}" if total else ""]
        if several:
            row.append(" - ".join(f"{end:.2f}" for end in result.phase_ranges.get(phase.value, [])))
        table.add_row(*row)
    table.add_section()
    table.add_row("all phases", f"{total:.2f} s")
    table.add_row("wall time of the epochs", f"{result.seconds:.2f} s")
    if several:
        table.add_section()
        for what in ("edges", "seconds"):
            ratios = [record.imbalance[what] for record in records if what in record.imbalance]
            mean = f"{sum(ratios) / len(ratios):.3f}" if ratios else "-"
            table.add_row(f"imbalance of {what}, most / mean", mean)
    _add_historical(table, result)
    return table


def _add_historical(table: Table, result: RunResult) -> None:
    """Adds the rows about historical embeddings, if there are any."""
    figures = result.historical
    if figures is None:
        return
    table.add_section()
    for name, values in (
        ("halo rows found", figures["hit_rates"]),
        ("edges left out", figures["edges_left_out"]),
    ):
        for layer, value in enumerate(values, 1):
            table.add_row(f"{name}, layer {layer}", f"{value:.1%}")
    table.add_row(
        "features fetched once", f"{figures['features_fetched']:,}", decimal(figures["feature_bytes"])
    )
    table.add_row("rows pushed", f"{figures['rows_pushed']:,}", decimal(figures["bytes_pushed"]))
    table.add_row("exchange of pushed rows", f"{figures['exchange_seconds']:.2f} s")
    table.add_row("waited for pushed rows", f"{figures['waited_seconds']:.2f} s")


def _in_order(result: RunResult) -> list[Metric]:
    """Returns the metrics of the test nodes, the one that chose the epoch first."""
    best = Metric(result.metric)
    return [
        best,
        *(metric for metric in Metric if metric.value in (result.test or {}) and metric is not best),
    ]


def _shown(scores: dict[str, float] | None, metric: Metric) -> str:
    return f"{scores[metric.value]:.4f}" if scores and metric.value in scores else "-"
