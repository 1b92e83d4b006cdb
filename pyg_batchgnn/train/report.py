"""The output of a run for people: lines and tables on the terminal, and plots."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from rich.console import Console
from rich.filesize import decimal
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.progress import Task as ProgressTask
from rich.table import Table
from rich.text import Text

from pyg_batchgnn import ops
from pyg_batchgnn.comm import describe_backend
from pyg_batchgnn.data import Dataset
from pyg_batchgnn.train.checkpoint import DISK_FIGURES, Phase
from pyg_batchgnn.train.config.choices import (
    CacheKind,
    EvaluationKind,
    Metric,
    ModelKind,
    RemoteKind,
    TaskKind,
    TimeStrategy,
    shown,
)
from pyg_batchgnn.train.config.train_config import TrainConfig
from pyg_batchgnn.train.job import TrainingJob
from pyg_batchgnn.train.ranks import Ranks
from pyg_batchgnn.train.run_folder import EpochRecord, RunFolder, RunResult, replacing
from pyg_batchgnn.train.tasks import Task
from pyg_batchgnn.types import FEATURES

_COLUMNS = 80  # The columns of an ordinary terminal.


class _AheadColumn(ProgressColumn):
    def __init__(self, ahead: Callable[[], int]) -> None:
        super().__init__()
        self._ahead = ahead

    def render(self, task: ProgressTask) -> Text:
        step, before = task.fields["begun"]
        done, left = self._ahead() - before, (task.total or 0) - step
        if task.completed > step or done <= 0:
            return Text()
        return Text(f"looking ahead {done}/{left:.0f}" if done < left else "reading the first rows")


class TerminalReport:
    """Prints what the trainer does. The bar shows only on a terminal, and disappears at the end.
    Epochs count from 1. ``ahead``: returns the minibatches sampled ahead so far."""

    def __init__(self, console: Console, epochs: int, task: Task, ahead: Callable[[], int]) -> None:
        self._console = console
        self._task = task
        self._epochs = epochs
        self._ahead = ahead
        self._bar = Progress(
            TextColumn("epoch {task.fields[epoch]}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("minibatches  loss {task.fields[loss]}"),
            TimeRemainingColumn(),
            _AheadColumn(ahead),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._bar_task = self._bar.add_task("", epoch="", loss="-", begun=(0, 0), visible=False)

    def __enter__(self) -> TerminalReport:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def epoch_begins(self, epoch: int, step: int, steps: int) -> None:
        fields: dict[str, Any] = {"epoch": f"{epoch}/{self._epochs}", "begun": (step, self._ahead())}
        self._bar.reset(self._bar_task, total=steps, completed=step, visible=True, loss="-", **fields)

    def step_done(self, loss: float) -> None:
        self._bar.update(self._bar_task, advance=1, loss=f"{loss:.4f}")

    def epoch_done(self, record: EpochRecord, is_best: bool) -> None:
        train, metric, epochs = self._task.train_metric, self._task.metric, self._epochs
        what = "" if train is metric else f" {train.label}"  # the name is said once
        val = "     -" if record.val is None else f"{record.val[metric.value]:.4f}"
        seconds = f"{record.seconds:.2f}" if record.seconds < 1000 else f"{record.seconds:.0f}"
        parts = [
            f"epoch {record.epoch:>{len(str(epochs))}}/{epochs}  loss {record.train['loss']:.4f}",
            f"train{what} {record.train[train.value]:.4f}",
            f"val {'AP' if metric is Metric.AVERAGE_PRECISION else metric.label} {val}  {seconds} s",
        ]
        if len("  ".join(parts)) + len("  best") > _COLUMNS:
            del parts[1]
        self._console.print("  ".join(parts) + "  best" * is_best, highlight=False, soft_wrap=True)

    def stopped_early(self, validations: int) -> None:
        line = f"stopped early: the last {validations} validations had no better {self._task.metric.label}"
        self._console.print(line, highlight=False, soft_wrap=True)


def final_table(result: RunResult, records: Sequence[EpochRecord], larger: tuple[int, int] = (0, 0)) -> Table:
    """Returns the table of results: metrics of the best epoch, then seconds by phase. ``larger``:
    the result of `larger_budgets`, printed where files were read."""
    table = Table(title="Result", title_justify="left")
    several = result.ranks > 1
    table.add_column("what")
    table.add_column(f"mean of {result.ranks} ranks" if several else "value", justify="right")
    table.add_column("share", justify="right")
    if several:
        table.add_column("range over ranks", justify="right")
    best, test, val = Metric(result.metric), result.test or {}, result.val or {}
    for metric in [best, *(one for one in Metric if one.value in test and one is not best)]:
        table.add_row(f"test {metric.label}", f"{test[metric.value]:.4f}" if metric.value in test else "-")
    value = f"{val[best.value]:.4f}" if best.value in val else "-"
    table.add_row(f"validation {best.label} (best, epoch {result.best_epoch})", value)
    table.add_section()
    total = sum(result.phases.values())
    for phase in Phase:
        if phase is Phase.EXCHANGE and not several:
            continue
        seconds = result.phases.get(phase.value, 0.0)
        row = [phase.label, f"{seconds:.2f} s", f"{seconds / total:.1%}" if total else ""]
        if several:
            row.append(" - ".join(f"{end:.2f}" for end in result.phase_ranges.get(phase.value, [])))
        table.add_row(*row)
    table.add_section()
    table.add_row("all phases, the test among them", f"{total:.2f} s")
    table.add_row("wall time of the epochs", f"{result.seconds:.2f} s")
    if several:
        table.add_section()
        for what in ("edges", "seconds"):
            ratios = [record.imbalance[what] for record in records if what in record.imbalance]
            mean = f"{sum(ratios) / len(ratios):.3f}" if ratios else "-"
            table.add_row(f"imbalance of {what}, most / mean", mean)
    _add_disk(table, records, larger)
    _add_historical(table, result)
    return table


def _add_disk(table: Table, records: Sequence[EpochRecord], larger: tuple[int, int]) -> None:
    found = {name: sum(record.disk.get(name, 0.0) for record in records) for name in DISK_FIGURES}
    read = {name: decimal(int(found[name])) for name in ("edge_bytes", "bytes", "useful_bytes")}
    if found["edge_bytes"]:
        table.add_section()
        table.add_row("edges read from files", read["edge_bytes"])
        table.add_row("  edges that were picked", f"{found['edges']:,.0f}")
        table.add_row("  operations", f"{found['edge_operations']:,.0f}")
        table.add_row("  seconds of reading", f"{found['edge_reading_seconds']:.2f} s")
    if found["bytes"]:
        share = f"{found['useful_bytes'] / found['bytes']:.1%}"
        table.add_section()
        table.add_row("features read from files", read["bytes"])
        table.add_row("  of which rows that were wanted", read["useful_bytes"], share)
        table.add_row("  rows read", f"{found['rows']:,.0f}")
        table.add_row("  rows found in memory", f"{found['needed_rows']:,.0f}")
        table.add_row("  operations", f"{found['operations']:,.0f}")
        table.add_row("  seconds of reading", f"{found['reading_seconds']:.2f} s")
        table.add_row("  seconds of looking ahead", f"{found['ahead_seconds']:.2f} s")
    if found["edge_bytes"] and larger[0]:
        table.add_row("a --memory-budget that holds the edges", decimal(larger[0]))
    if (found["edge_bytes"] or found["bytes"]) and larger[1]:
        table.add_row("a --memory-budget that holds everything", decimal(larger[1]))


def larger_budgets(dataset: Dataset) -> tuple[int, int]:
    """Returns two memory budgets in bytes: that hold all edges, and all edges and features."""
    known = [one.csc for one in dataset.edge_sets if one.csc is not None]
    arrays = [array for one in known for array in (one.indptr, one.indices, one.edge_ids)]
    edges = sum(array.nbytes for array in arrays if array is not None)
    features = sum(one.tables[FEATURES].nbytes for one in dataset.node_sets if FEATURES in one.tables)
    return edges, max(2 * features, features + edges)


def _add_historical(table: Table, result: RunResult) -> None:
    figures = result.historical
    if figures is None:
        return
    table.add_section()
    for name, key in (("halo rows found", "hit_rates"), ("edges left out", "edges_left_out")):
        for layer, value in enumerate(figures[key], 1):
            table.add_row(f"{name}, layer {layer}", f"{value:.1%}")
    size = decimal(figures["feature_bytes"])
    table.add_row("features fetched once", f"{figures['features_fetched']:,}", size)
    table.add_row("rows pushed", f"{figures['rows_pushed']:,}", decimal(figures["bytes_pushed"]))
    table.add_row("exchange of pushed rows", f"{figures['exchange_seconds']:.2f} s")
    table.add_row("waited for pushed rows", f"{figures['waited_seconds']:.2f} s")


def opening_lines(job: TrainingJob, folder: RunFolder, ranks: Ranks) -> list[str]:
    config, dataset, inputs = job.config, job.dataset, job.graph.inputs
    model, sampling, chosen = config.model, config.sampling, config.ranks
    heads = f", {model.heads} heads" if model.kind is ModelKind.GAT else ""
    lines = [
        *_data_lines(job),
        f"        {dataset.source}",
        f"model   {model.kind.value}, {model.num_layers} layers, "
        f"hidden {model.hidden}{heads}, {config.run.precision.value}",
    ]
    if inputs.learned:
        columns = next(iter(inputs.learned.values()))
        of = f" of {', '.join(inputs.learned)}" if inputs.schema.has_names else ""
        rule = config.embedding.rule.value
        lines.append(f"        learned rows of {columns} columns for the nodes{of}, {rule}")
    shares = "" if sampling.labor is None else f", LABOR ({sampling.labor.value})"
    lines.append(
        f"sample  fanout {shown(sampling.fanout)} {sampling.replacement.value} replacement{shares}, "
        f"batch {sampling.batch_size}; {_evaluation(config)}"
    )
    if config.is_timed:
        is_last = sampling.temporal_strategy is TimeStrategy.LAST
        which = "the latest that are" if is_last else "those that are"
        latest = "" if sampling.freeze is None else f" or than {sampling.freeze}"
        bound = f"their seed{latest}, by {sampling.time_attr!r}"
        lines.append(f"        of neighbours {which} not later than {bound}")
    if sampling.cache is not CacheKind.OFF:
        hop, used = sampling.fanout[-1], "with them" if config.evaluates_with_cache else "without"
        lines.append(f"        aggregates of all neighbours replace the last hop's {hop}; evaluation {used}")
    epochs, seed, threads = config.run.epochs, config.run.seed, config.run.threads or 1
    lines.append(f"run     {folder.path}, {epochs} epochs, seed {seed}, {threads} thread(s)")
    if not ranks.is_alone:
        topology = ", topology on every rank" if chosen.hybrid else ""
        is_remote, kept = chosen.remote is not RemoteKind.EXACT, chosen.feature_cache
        remote = f"; {chosen.remote.value} rows of other ranks" if is_remote else ""
        cache = "" if kept is None else f", {decimal(kept)} of remote rows kept"
        hosts, backend = _count(len(set(ranks.training.hosts)), "host"), describe_backend(chosen.backend)
        lines.append(
            f"ranks   {ranks.size} on {hosts}, {backend}; partition {chosen.partition}{topology}{cache}; "
            f"{chosen.schedule.value} schedule{remote}"
        )
    return lines


def _data_lines(job: TrainingJob) -> list[str]:
    dataset, inputs, schema = job.dataset, job.graph.inputs, job.dataset.schema
    counts = "/".join(f"{count:,}" for count in job.sizes.values())
    predicted = f"{job.task.described}, {counts} {'/'.join(job.sizes)} {job.task.unit}"
    if not dataset.has_names:
        columns = inputs.features.get(inputs.node_type, 0)
        return [
            f"data    {dataset.name}: {dataset.num_nodes:,} nodes, {dataset.num_edges:,} edges, "
            f"{columns:,} features{_storage(dataset, inputs.node_type)}, {predicted}"
        ]
    what = inputs.node_type if inputs.link is None else "-".join(inputs.link)
    features = [f"{count:,} of {name}{_storage(dataset, name)}" for name, count in inputs.features.items()]
    return [
        f"data    {dataset.name}: {dataset.num_nodes:,} nodes of {_count(schema.num_types, 'type')}, "
        f"{dataset.num_edges:,} edges of {_count(schema.num_relations, 'relation')}",
        f"        features: {', '.join(features) or 'none'}; predicts {what}: {predicted}",
    ]


def _storage(dataset: Dataset, node_type: str) -> str:
    x = dataset.nodes_of(node_type).tables.get(FEATURES)
    return " as int8 codes" if isinstance(x, ops.QuantizedTensor) else ""


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _evaluation(config: TrainConfig) -> str:
    is_link = config.task.kind is TaskKind.LINKS and not config.is_timed
    if config.sampling.evaluation is EvaluationKind.EXACT or is_link:
        return "evaluation from all neighbours"
    return f"evaluation fanout {shown(config.test_fanout)}"


#: The horizontal axes: label, and the value of a record.
_AXES: dict[str, Callable[[EpochRecord], float]] = {
    "epoch": lambda record: record.epoch,
    "wall time since the start (s)": lambda record: record.elapsed_seconds,
}


def plot_learning(
    records: Sequence[EpochRecord], task: Task, title: str, best_epoch: int, path: Path
) -> None:
    shown = list(dict.fromkeys([task.train_metric, task.metric]))
    panels = [("loss", "Loss", task.loss_label), *((m.value, *_metric_labels(m)) for m in shown)]
    figure = _figure(1.6 + 4.2 * len(panels), 7.4)
    grid = figure.subplots(len(_AXES), len(panels), squeeze=False)
    for row, abscissa in zip(grid, _AXES, strict=True):
        for axes, (name, heading, unit) in zip(row, panels, strict=True):
            _plot_curves(axes, records, name, abscissa, best_epoch)
            axes.set_title(heading if abscissa == "epoch" else "")
            axes.set_ylabel(unit)
    legends = [axes.get_legend_handles_labels() for axes in grid.flat]
    handles = {label: handle for legend in legends for handle, label in zip(*legend, strict=True)}
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=3, fontsize=9)
    figure.suptitle(title)
    _save(figure, path)


def plot_phases(phases: Mapping[str, float], title: str, path: Path) -> None:
    shown = [phase for phase in Phase if phases.get(phase.value, 0.0) > 0.0]
    seconds = [phases[phase.value] for phase in shown]
    total = sum(seconds) or 1.0
    figure = _figure(8, 1.4 + 0.42 * max(3, len(shown)))
    axes = figure.subplots()
    bars = axes.barh([phase.label for phase in shown], seconds, color="tab:blue")
    axes.bar_label(bars, [f"{value:.2f} s ({value / total:.0%})" for value in seconds], padding=4, fontsize=9)
    axes.invert_yaxis()
    axes.set_xlim(0, 1.25 * max(seconds, default=1.0))
    axes.set_xlabel("wall time (s)")
    axes.set_title(title)
    axes.spines[["top", "right"]].set_visible(False)
    _save(figure, path)


def _plot_curves(
    axes: Axes, records: Sequence[EpochRecord], name: str, abscissa: str, best_epoch: int
) -> None:
    marker = "o" if len(records) <= 60 else None  # with more, curves have no markers
    sources = (
        ("training minibatches", "tab:blue", [(record, record.train) for record in records]),
        ("validation", "tab:orange", [(r, r.val) for r in records if r.val is not None]),
    )
    for label, color, found in sources:
        points = [(_AXES[abscissa](record), values[name]) for record, values in found if name in values]
        if points:
            axes.plot(*zip(*points, strict=True), marker=marker, markersize=4, label=label, color=color)
    for record in records:
        if record.epoch == best_epoch and record.val is not None:
            x = _AXES[abscissa](record)
            axes.axvline(x, color="0.5", linestyle="--", linewidth=1, label=f"best epoch ({best_epoch})")
    axes.set_xlabel(abscissa)
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=abscissa == "epoch", min_n_ticks=1))
    if abscissa == "epoch":
        axes.set_xlim(0.5, max(record.epoch for record in records) + 0.5)
    else:
        axes.set_xlim(left=0)
    axes.grid(alpha=0.3)


def _metric_labels(metric: Metric) -> tuple[str, str]:
    heading = metric.label[0].upper() + metric.label[1:]
    unit = {Metric.ACCURACY: "share of nodes classified right"}.get(metric)
    return heading, unit or f"{metric.label}{', in units of the values' if metric.is_error else ' (0 to 1)'}"


def _figure(width: float, height: float) -> Figure:
    figure = Figure(figsize=(width, height), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _save(figure: Figure, path: Path) -> None:
    with replacing(path) as temporary:
        figure.savefig(temporary, format="png")
