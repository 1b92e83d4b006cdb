"""Plans: the settings that are tried, and their predictions as a table and as files."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from rich.box import SIMPLE
from rich.filesize import decimal
from rich.table import Table

from pyg_batchgnn import ops
from pyg_batchgnn.cache import Aggregation
from pyg_batchgnn.comm import Communicator
from pyg_batchgnn.data import Dataset, NodeSet
from pyg_batchgnn.history import HistoricalSettings
from pyg_batchgnn.loader import DiskForecast, ScheduleName
from pyg_batchgnn.planner.machine import NETWORKS, PlannerMachine, PlannerNetwork, measure_machine
from pyg_batchgnn.planner.prediction import HistoricalPrediction, predict, predict_historical
from pyg_batchgnn.planner.probe import SAMPLES, owners_of, probe_graph
from pyg_batchgnn.planner.workload import PlannerProbe, PlannerSetting, Prediction, TypeRows, Workload
from pyg_batchgnn.sample import Replacement
from pyg_batchgnn.store import TypedGraph
from pyg_batchgnn.types import FEATURES, LABELS

#: The share by which a more complicated setting must be faster.
_WORTH = 0.03


@dataclass(frozen=True)
class Choices:
    """The settings that `plan` tries. The aggregation should be the trained model's: mean for SAGE,
    symmetric for GCN, sum for GIN."""

    macrobatches: Sequence[int] = (1, 8, 32, 128, 0)  # B, 0 for all minibatches of an epoch
    fetches: Sequence[float] = (1.0, 0.25)  # F as a share of B
    hybrid: Sequence[bool] = (False, True)  # whether every host has the whole topology
    aggregation: Sequence[Aggregation | None] = (None, Aggregation.MEAN)
    feature_caches: Sequence[int] = (0,)  # bytes

    def settings(self, policy: str, minibatches: int) -> list[PlannerSetting]:
        """Returns all combinations that differ in an epoch of ``minibatches`` minibatches."""
        found: dict[PlannerSetting, None] = {}
        for size, share, hybrid, aggregation, cache in itertools.product(
            self.macrobatches, self.fetches, self.hybrid, self.aggregation, self.feature_caches
        ):
            macrobatch = 0 if size >= minibatches else size
            fetch = 0 if share >= 1 else max(1, round(share * (macrobatch or minibatches)))
            fetch = 0 if fetch >= (macrobatch or minibatches) else fetch
            found[PlannerSetting(macrobatch, fetch, policy, hybrid, aggregation, cache)] = None
        return list(found)


def search(
    workload: Workload,
    probes: Mapping[str, PlannerProbe],
    machine: PlannerMachine,
    network: PlannerNetwork,
    choices: Choices,
) -> list[Prediction]:
    """Predicts every choice for every policy in ``probes``, the fastest first. Those that do not
    fit memory come last."""
    found = [
        predict(workload, probe, machine, network, setting)
        for policy, probe in probes.items()
        for setting in choices.settings(policy, workload.minibatches(probe.seeds))
        if setting.aggregation is None or len(workload.fanouts) > 1  # a hop must be left to sample
    ]
    return sorted(found, key=lambda one: (not one.fits, one.epoch))


def best(predictions: Iterable[Prediction]) -> Prediction | None:
    """Returns the prediction to recommend, or None if none fits memory."""
    able = [one for one in predictions if one.fits and one.setting.aggregation is None]
    if not able:
        return None
    limit = min(one.epoch for one in able) * (1 + _WORTH)
    return min(
        (one for one in able if one.epoch <= limit),
        key=lambda one: (one.setting.hybrid, one.setting.feature_cache > 0, one.epoch, one.memory),
    )


def describe(setting: PlannerSetting) -> str:
    size = "all" if setting.macrobatch == 0 else str(setting.macrobatch)
    words = [f"B = {size}"]
    words += [f"F = {setting.fetch}"] if setting.fetch else []
    words += [setting.policy]
    words += ["hybrid"] if setting.hybrid else []
    words += ["aggregation cache"] if setting.aggregation else []
    words += [f"feature cache {decimal(setting.feature_cache)}"] if setting.feature_cache else []
    return ", ".join(words)


def plot_predictions(predictions: Sequence[Prediction], title: str, path: Path) -> None:
    """Draws the seconds by phase of the first predictions."""
    # Importing Matplotlib takes a second, which only this needs.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 5.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes, shown = figure.subplots(), predictions[:14][::-1]  # the most that are drawn
    names, start = [describe(one.setting) for one in shown], [0.0] * len(shown)
    for phase in shown[0].seconds if shown else ():
        seconds = [one.seconds[phase] for one in shown]
        axes.barh(names, seconds, left=start, label=phase)
        start = [begin + more for begin, more in zip(start, seconds, strict=True)]
    axes.set_xlabel("seconds per epoch")
    axes.legend(fontsize=8, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=4, frameon=False)
    axes.tick_params(axis="y", labelsize=7)
    figure.suptitle(title)
    figure.savefig(path, dpi=110)


@dataclass(frozen=True, eq=False)
class Plan:
    """Predictions for many settings; `advice` recommends one of them."""

    workload: Workload
    ranks: int
    machine: PlannerMachine
    network: PlannerNetwork
    probes: dict[str, PlannerProbe]  # what was found out about minibatches, by policy
    predictions: list[Prediction]  # the fastest first
    #: an epoch with historical embeddings, by policy; empty where they are not possible
    historical: dict[str, HistoricalPrediction] = field(default_factory=dict)
    disk: DiskForecast | None = None  # what one process reads from files, if somebody predicted it

    @property
    def best(self) -> Prediction | None:
        """The prediction of the recommended setting, or None if none fits memory."""
        return best(self.predictions)

    def advice(self, command: Sequence[str] = ("batchgnn", "train")) -> list[str]:
        """Returns a sentence that recommends a setting, and the command that trains with it.
        ``command``: the first words of the command."""
        if (found := self.best) is None:
            least = min(self.predictions, key=lambda one: one.memory)
            return [
                f"Nothing fits: {describe(least.setting)} needs {decimal(int(least.memory))} per rank; "
                f"use more ranks, a smaller batch or smaller fanouts."
            ]
        work = self.workload
        node_type = ["--node-type", work.types[work.seed_type].name] if work.has_names else []
        setting = found.setting
        words = [*command, *node_type, "--macrobatch", str(setting.macrobatch or "all")]
        words += ["--fetch", str(setting.fetch or "all")]
        if self.ranks > 1:
            words += ["--partition", setting.policy, "--schedule", work.schedule.value]
            words += ["--hybrid"] if setting.hybrid else []
            words += ["--feature-cache", str(setting.feature_cache)] if setting.feature_cache else []
        return [
            f"Recommended: {describe(setting)}: {found.epoch:.2f} s per epoch, of which "
            f"{found.preparation:.2f} s prepare minibatches; {decimal(int(found.memory))} per rank.",
            f"  {shlex.join(words)}",
        ]

    def table(self) -> Table:
        """Returns a table of the fastest settings, and of epochs with historical embeddings."""
        table = Table(
            title=f"{self.workload.name} on {self.ranks} ranks: one epoch of one rank",
            title_justify="left",
            box=SIMPLE,
            padding=(0, 1, 0, 0),
            caption="+h: hybrid; agg: aggregation cache; hist: historical embeddings, rows pushed",
        )
        for name in ("B", "F", "partition", "cache"):
            table.add_column(name, no_wrap=True)
        for name in ("rounds", "rows", "MB", "memory", "prep s", "epoch s"):
            table.add_column(name, justify="right", no_wrap=True)
        for one in self.predictions[:16]:  # the most lines of the table
            setting = one.setting
            caches = ["agg"] if setting.aggregation else []
            caches += [decimal(setting.feature_cache)] if setting.feature_cache else []
            table.add_row(
                str(setting.macrobatch or "all"),
                str(setting.fetch or "B"),
                Path(setting.policy).name + ("+h" if setting.hybrid else ""),
                " ".join(caches),
                f"{one.rounds.topology + one.rounds.features + one.rounds.lookup}",
                f"{one.rows:,.0f}",
                f"{(one.topology_bytes + one.feature_bytes) / 1e6:,.1f}",
                decimal(int(one.memory)) + ("" if one.fits else " !"),
                f"{one.preparation:.2f}",
                f"{one.epoch:.2f}",
            )
        for policy, found in self.historical.items():
            table.add_row(
                *("1", "B", Path(policy).name, "hist", f"{found.minibatches}", f"{found.pushed_rows:,.0f}"),
                *(f"{found.pushed_bytes / 1e6:,.1f}", "", f"{found.preparation:.2f}", f"{found.epoch:.2f}"),
            )
        return table

    def as_dict(self) -> dict[str, Any]:
        recommended = self.best
        return {
            "workload": asdict(self.workload),
            "ranks": self.ranks,
            "machine": asdict(self.machine),
            "network": asdict(self.network),
            "minibatches": {
                policy: {
                    "nodes": probe.full.nodes,
                    "edges": probe.full.edges,
                    "remote_nodes": probe.full.remote.distinct(1),
                    "without_last_hop": probe.inner.nodes,
                }
                for policy, probe in self.probes.items()
            },
            "recommended": None if recommended is None else recommended.as_dict(),
            "predictions": [one.as_dict() for one in self.predictions],
            "historical": {policy: one.as_dict() for policy, one in self.historical.items()},
            "disk": None if self.disk is None else asdict(self.disk),
        }

    def write(self, folder: Path) -> list[Path]:
        """Writes ``plan.json`` and ``plan.png`` to a folder. Returns both paths."""
        folder.mkdir(parents=True, exist_ok=True)
        numbers, picture = folder / "plan.json", folder / "plan.png"
        numbers.write_text(json.dumps(self.as_dict(), indent=1) + "\n")
        title = f"{self.workload.name} on {self.ranks} ranks"
        plot_predictions(self.predictions, title, picture)
        return [numbers, picture]


def plan(
    dataset: Dataset,
    *,
    ranks: int,
    network: PlannerNetwork,
    ranks_per_host: int = 1,
    cores: float = 1.0,
    memory: float = 0.0,
    machine: PlannerMachine | None = None,
    fanouts: Sequence[int] = (15, 10, 5),
    batch_size: int = 1024,
    replacement: Replacement = Replacement.WITH,
    labor: str | None = None,
    drop_last: bool = True,
    schedule: Literal["local", "balanced", "global"] = "local",
    node_type: str | None = None,
    hidden: int = 256,
    policies: Sequence[str] = ("random",),
    choices: Choices | None = None,
    samples: int = SAMPLES,
    progress: Callable[[str], object] | None = None,
) -> Plan:
    """Predicts an epoch of training for many settings, from sampled minibatches and short
    measurements of this machine.

    >>> machine, network = PlannerMachine(), PlannerNetwork(bandwidth=1e9)  # or machine=None
    >>> given = {"network": network, "machine": machine, "fanouts": (5, 5), "hidden": 0}
    >>> plan(dataset, ranks=2, choices=Choices(macrobatches=(1, 8)), **given).best.fits
    True

    Args:
        dataset: the whole graph. With named node types or without features, only the preparation of
            minibatches is predicted. All relations have the same fanouts.
        ranks, network: the number of ranks, and the network between hosts.
        ranks_per_host: the number of ranks that share a host's memory.
        cores: cores per rank, 0.5 if two ranks share a core.
        memory: bytes that a rank may take, 0 for no limit.
        machine: the speeds of another machine's cores; None measures this machine.
        fanouts: neighbours per hop, nearest to the seeds first.
        batch_size: seed nodes per minibatch of a rank.
        replacement: whether neighbours may be picked more than once.
        labor: "hop", "layers" or "epoch" with `Replacement.WITHOUT`, as in the loader.
        drop_last: leaves out a last, smaller minibatch, if each rank has a whole one.
        schedule: how ranks share the training nodes, as in the loader.
        node_type: the type of the training nodes; not needed if only one type has some.
        hidden: the columns of the layers that are timed. 0 predicts only the preparation of
            minibatches.
        policies: the partitioning policies, or folders of saved partitions, to try.
        choices: other settings to try. The aggregation among them says which layers are timed, by
            default GraphSAGE's.
        samples: the number of minibatches to sample for each policy.
        progress: called with a few words as each stage begins.

    Raises:
        ValueError: a number is impossible, the data set has no training nodes, or a saved partition
            has another number of parts.
    """
    tell = progress or (lambda _: None)
    given = {"ranks": ranks, "ranks_per_host": ranks_per_host, "cores": cores, "batch_size": batch_size}
    for name, value in given.items():
        if not value > 0:
            raise ValueError(f"{name} must be positive, got {value}")
    rule = ScheduleName.of(schedule) or ScheduleName.LOCAL
    seed_type_of(dataset, node_type)
    if not fanouts:
        raise ValueError("there is nothing to plan without hops: give a fanout for each, such as (15, 10, 5)")
    choices = choices or Choices()
    if dataset.has_names or FEATURES not in dataset.nodes.tables:
        hidden, choices = 0, dataclasses.replace(choices, aggregation=(None,))
    kind = next((one for one in choices.aggregation if one is not None), Aggregation.MEAN)
    tell("sorting edges by destination")
    graph = TypedGraph.of_dataset(dataset)
    workload = workload_of(
        *(dataset, tuple(fanouts), batch_size, hidden),
        ranks=ranks,
        drop_last=drop_last,
        schedule=rule,
        kind=kind,
        node_type=node_type,
    )
    workload = dataclasses.replace(workload, labor=labor)
    seeds = dataset.node_sets[workload.seed_type]
    training, probes = seeds.splits["train"], dict[str, PlannerProbe]()
    with Communicator.create("plan") as comm:
        for policy in policies:
            tell(f"sampling minibatches, partition {policy}")
            owner = owners_of(dataset, policy, ranks, comm)
            probes[policy] = probe_graph(
                *(workload, graph, training, owner),
                policy=policy,
                ranks=ranks,
                ranks_per_host=ranks_per_host,
                replacement=replacement,
                samples=samples,
            )
        if machine is None:
            tell("measuring this machine")
            machine = measure_machine(
                *(workload, graph, training, comm if ranks > 1 else None),
                replacement=replacement,
                hidden=hidden,
                classes=seeds.num_classes,
                kind=kind,
            )
    machine = machine.on(cores, memory)
    found = search(workload, probes, machine, network, choices)
    historical = {}
    if hidden and rule is ScheduleName.LOCAL and ranks > 1 and kind is not Aggregation.SYMMETRIC:
        settings = HistoricalSettings()
        historical = {
            policy: predict_historical(workload, probe, machine, network, settings, hidden)
            for policy, probe in probes.items()
        }
    return Plan(workload, ranks, machine, network, probes, found, historical)


def workload_of(
    dataset: Dataset,
    fanouts: tuple[int, ...],
    batch_size: int,
    hidden: int = 0,
    *,
    ranks: int = 1,
    drop_last: bool = True,
    schedule: ScheduleName = ScheduleName.LOCAL,
    kind: Aggregation = Aggregation.MEAN,
    node_type: str | None = None,
) -> Workload:
    """Returns the `Workload` of training on a data set with these settings. ``hidden``: columns of
    the network's layers, to count its parameters; 0 counts none. ``kind``: the network's
    aggregation, mean for SAGE. ``node_type``: as in `seed_type_of`."""
    seed_type = seed_type_of(dataset, node_type)
    seeds = dataset.node_sets[seed_type]
    training = len(seeds.splits["train"])
    parameters = 0
    if hidden:
        model = NETWORKS[kind](dataset.num_features, hidden, len(fanouts), dataset.num_classes)
        parameters = sum(one.numel() for one in model.parameters())
    return Workload(
        name=dataset.name,
        types=tuple(map(_rows_of, dataset.node_sets)),
        edges=dataset.num_edges,
        training=training,
        fanouts=fanouts,
        batch_size=batch_size,
        drop_last=drop_last and training >= batch_size * ranks,
        schedule=schedule,
        parameters=parameters,
        seed_type=seed_type,
        has_names=dataset.schema.has_names,
    )


def _rows_of(nodes: NodeSet) -> TypeRows:
    """Returns a type's number of nodes, and the bytes of their features and labels."""
    tables = {name: table for name, table in nodes.tables.items() if name in (FEATURES, LABELS)}
    columns = {name: math.prod(table.shape[1:]) for name, table in tables.items()}
    bytes_of = {name: ops.as_stored(table).dtype.itemsize for name, table in tables.items()}
    x, y = (columns.get(name, 0) * bytes_of.get(name, 0) for name in (FEATURES, LABELS))
    widest = max(bytes_of.values(), default=1)
    return TypeRows(nodes.name, nodes.num_nodes, x, y, widest, columns.get(FEATURES, 0))


def seed_type_of(dataset: Dataset, node_type: str | None) -> int:
    """Returns the index of the node type with training nodes. ``node_type``: its name; None if only
    one type has some. Raises `ValueError` if none or, without a name, several types have some."""
    found = [nodes.name for nodes in dataset.node_sets if len(nodes.splits.get("train", ()))]
    wanted = found if node_type is None else [name for name in found if name == node_type]
    if len(wanted) > 1:
        raise ValueError(f"{dataset.name} has training nodes of the types {found}; name one as node_type")
    if not wanted:
        of = "" if node_type is None else f" of type {node_type!r}"
        raise ValueError(f"{dataset.name} has no training nodes{of}, so there is nothing to plan")
    return dataset.schema.type_number(wanted[0])
