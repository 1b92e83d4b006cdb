"""The command ``batchgnn plan``."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from pyg_batchgnn.train.cli import plan_options as options
from pyg_batchgnn.train.cli.choices import ModelName, ReplacementName, ScheduleOption
from pyg_batchgnn.train.cli.fields import assignments
from pyg_batchgnn.train.cli.options.task import Reverse
from pyg_batchgnn.train.cli.quantities import parse_fanout, parse_macrobatch, parse_rate, parse_size
from pyg_batchgnn.train.errors import TrainError, as_train_error

if TYPE_CHECKING:
    from pyg_batchgnn.cache import Aggregation
    from pyg_batchgnn.data import Dataset
    from pyg_batchgnn.planner import PlannerMachine


def plan_command(
    dataset: options.DatasetName,
    ranks: options.Ranks,
    bandwidth: options.Bandwidth = "10gbit",
    latency: options.Latency = 100.0,
    ranks_per_host: options.RanksPerHost = 1,
    cores: options.Cores = 1.0,
    memory: options.Memory = None,
    machine: options.Machine = None,
    fanout: options.Fanout = "15,10,5",
    batch_size: options.BatchSize = 1024,
    replacement: options.Replacement = ReplacementName.WITH,
    model: options.Model = ModelName.SAGE,
    hidden: options.Hidden = 256,
    schedule: options.Schedule = ScheduleOption.LOCAL,
    node_type: options.NodeType = None,
    reverse: Reverse = None,
    partition: options.Partitions = None,
    macrobatch: options.Macrobatches = None,
    feature_cache: options.FeatureCaches = None,
    samples: options.Samples = 32,
    out: options.Out = None,
) -> None:
    """Predicts what training on several machines takes, and recommends a setting.

    Samples some minibatches of the graph, and measures for a few seconds what
    a core of this machine does. Then predicts for each macrobatch size, fetch
    size, partition, with and without all edges on every rank and with and
    without caches: rounds, rows and bytes that travel, memory of each rank,
    and seconds per epoch and phase.

    [bold]Examples[/bold]

      batchgnn plan cora --ranks 2 --batch-size 64 --out plans/cora

      batchgnn plan ogbn-products --ranks 8 --cores 16 --memory 64GiB

      batchgnn plan graphs/large --ranks 4 --partition random --partition ldg
    """
    from pyg_batchgnn.data.files import writing
    from pyg_batchgnn.planner import Choices, PlannerNetwork, plan
    from pyg_batchgnn.sample import Replacement
    from pyg_batchgnn.train.run import open_dataset

    _check_hosts(ranks, ranks_per_host)
    console = Console()
    caches = (0, *(parse_size(text) for text in feature_cache or ()))
    tried = Choices(feature_caches=caches, aggregation=(None, _aggregation(model)))
    if macrobatch:
        tried = dataclasses.replace(tried, macrobatches=[parse_macrobatch(text) for text in macrobatch])
    fanouts = parse_fanout(fanout)
    speeds = None if machine is None else _read_machine(machine)
    network = PlannerNetwork(parse_rate(bandwidth), latency * 1e-6)
    if out is not None:
        with writing(out):
            out.mkdir(parents=True, exist_ok=True)
    status = console.status("reading") if console.is_terminal else contextlib.nullcontext()
    with status as shown, as_train_error(ValueError):
        graph = open_dataset(dataset, bool(reverse))
        _check_trainable(graph, node_type, model=model.value, fanout=fanout, hidden=hidden or None)
        found = plan(
            graph,
            ranks=ranks,
            network=network,
            ranks_per_host=ranks_per_host,
            cores=cores,
            memory=parse_size(memory) if memory else 0.0,
            machine=speeds,
            fanouts=fanouts,
            batch_size=batch_size,
            replacement=Replacement(replacement.value),
            schedule=schedule.value,
            node_type=node_type,
            hidden=hidden,
            policies=partition or ("random",),
            choices=tried,
            samples=samples,
            progress=shown.update if shown is not None else None,
        )
    console.print(found.table())
    command = [*launch_words(ranks, ranks_per_host), "train", dataset, "--model", model.value]
    command += ["--fanout", fanout, "--replacement", replacement.value, "--batch-size", str(batch_size)]
    command += ["--hidden", str(hidden)] if hidden else []
    command += ["--threads", str(int(cores))] if cores >= 1 else []
    command += ["--reverse"] if reverse else []
    for line in found.advice(command):
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    if out is not None:
        console.print("wrote " + ", ".join(map(str, found.write(out))))


def _check_hosts(ranks: int, ranks_per_host: int) -> None:
    """Refuses numbers with which one host has fewer ranks: a launcher starts as many on each."""
    if ranks > ranks_per_host and ranks % ranks_per_host:
        fewer = ranks - ranks % ranks_per_host
        raise TrainError(
            f"--ranks is {ranks}, which is no multiple of the {ranks_per_host} ranks on each host; choose "
            f"{fewer} or {fewer + ranks_per_host}"
        )


def _check_trainable(graph: Dataset, node_type: str | None, **given: object) -> None:
    """Refuses a graph as ``train`` with the same options would.

    Args:
        graph: the data set.
        node_type: the type of the training nodes; not needed if one type has some.
        given: options of ``train`` by name; None where it takes its default.
    """
    from pyg_batchgnn.planner import seed_type_of
    from pyg_batchgnn.train.config import TrainConfig, assign
    from pyg_batchgnn.train.run import check_trainable

    name = graph.schema.node_types[seed_type_of(graph, node_type)]
    options = {**given, "node_type": name if graph.has_names else None}
    check_trainable(assign(TrainConfig(), assignments(options, [])), graph)


def launch_words(ranks: int, ranks_per_host: int) -> list[str]:
    """Returns the words of a command line that start a number of ranks, on every host alike."""
    if ranks == 1:
        return ["batchgnn"]
    module = ["-m", "pyg_batchgnn"]
    each = f"--nproc-per-node={min(ranks, ranks_per_host)}"
    hosts = -(-ranks // ranks_per_host)
    if hosts == 1:
        return ["torchrun", each, *module]
    meet = ["--rdzv-backend=c10d", "--rdzv-endpoint=FIRST_HOST:29500"]
    return ["torchrun", f"--nnodes={hosts}", each, *meet, *module]


def _aggregation(model: ModelName) -> Aggregation:
    from pyg_batchgnn.train.config import ModelKind
    from pyg_batchgnn.train.graph import AGGREGATION_OF_MODEL

    kind = ModelKind(model.value)
    if kind not in AGGREGATION_OF_MODEL:
        raise TrainError(f"--model is {model.value}, which cannot be planned; choose sage, gcn or gin")
    return AGGREGATION_OF_MODEL[kind]


def _read_machine(path: Path) -> PlannerMachine:
    from pyg_batchgnn.planner import PlannerMachine

    try:
        values = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        cause = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise TrainError(f"--machine {path}: cannot be read as JSON: {cause}; give a plan.json") from None
    values = values.get("machine", values) if isinstance(values, dict) else values
    known = [field.name for field in dataclasses.fields(PlannerMachine)]
    if not isinstance(values, dict) or not set(values) <= set(known):
        raise TrainError(f"{path}: must be an object of numbers named {', '.join(known)}")
    if not all(isinstance(value, (int, float)) and value >= 0 for value in values.values()):
        raise TrainError(f"{path}: every speed must be a number, at least 0")
    return PlannerMachine(**values)
