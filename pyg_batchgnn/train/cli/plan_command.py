"""The command ``batchgnn plan``."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from pyg_batchgnn.train.cli.options import assignments, option, parse_size
from pyg_batchgnn.train.config.choices import LaborKind, ModelKind, ReplacementKind, ScheduleKind
from pyg_batchgnn.train.config.train_config import TrainConfig, assign
from pyg_batchgnn.train.errors import TrainError, as_train_error

if TYPE_CHECKING:
    from pyg_batchgnn.data import Dataset
    from pyg_batchgnn.planner import PlannerMachine


_DISK_SAMPLES = 128  # the least minibatches to sample, to predict reading from files


def _panel(title: str) -> Callable[..., Any]:
    return lambda text, **more: typer.Option(help=text, rich_help_panel=title, **more)


_cluster, _training = _panel("The cluster"), _panel("The training")
_tried = _panel("The settings to compare")


def plan_command(
    dataset: Annotated[str, typer.Argument(help="Name or folder of a data set, as for train.")],
    ranks: Annotated[int, _cluster("Number of ranks that will train.", min=1)],
    bandwidth: Annotated[str, _cluster("Bandwidth of each host's link, as in 1gbit or 1.25GB.")] = "10gbit",
    latency: Annotated[float, _cluster("Microseconds between two hosts.", min=0)] = 100.0,
    ranks_per_host: Annotated[int, _cluster("Ranks on each host; they share its memory.", min=1)] = 1,
    cores: Annotated[float, _cluster("Cores of each rank; 0.5 if two ranks share one.")] = 1.0,
    memory: Annotated[
        str | None, _cluster("Memory that each rank may use, as in 32GiB. Default: no limit.")
    ] = None,
    memory_budget: Annotated[
        str | None,
        _cluster(
            "Memory budget of training in one process, as for train: it decides which features are "
            "read from their files."
        ),
    ] = None,
    machine: Annotated[
        Path | None,
        _cluster(
            'JSON file with the speeds of the cluster\'s cores, as "machine" in a plan.json that was '
            "written there. Default: measure this machine."
        ),
    ] = None,
    fanout: Annotated[str, _training("Neighbours to sample per node at each hop.")] = "15,10,5",
    batch_size: Annotated[int, _training("Training nodes per minibatch on each rank.", min=1)] = 1024,
    replacement: Annotated[
        ReplacementKind, _training("Sample neighbours with or without replacement.")
    ] = ReplacementKind.WITH,
    labor: Annotated[
        LaborKind | None, _training("Let nodes pick the same neighbours where they can, as for train.")
    ] = None,
    model: Annotated[ModelKind, _training("Kind of model; gat cannot be planned.")] = ModelKind.SAGE,
    hidden: Annotated[
        int, _training("Columns between two layers; 0 leaves the layers out of the prediction.", min=0)
    ] = 256,
    schedule: Annotated[
        ScheduleKind,
        _training(
            "Rule by which ranks share training nodes, as for train. Historical embeddings are "
            "predicted for local only."
        ),
    ] = ScheduleKind.LOCAL,
    node_type: Annotated[
        str | None, _training("Type of the training nodes, where several types have some.")
    ] = None,
    reverse: Annotated[bool | None, option("reverse")] = None,
    partition: Annotated[
        list[str] | None, _tried("Policy, or folder of a saved partition; may be repeated. Default: random.")
    ] = None,
    macrobatch: Annotated[
        list[str] | None,
        _tried(
            "Macrobatch size B, or all for a whole epoch; may be repeated. Default: 1, 8, 32, 128 and all."
        ),
    ] = None,
    feature_cache: Annotated[
        list[str] | None,
        _tried("Size of the feature cache, as in 512MiB, compared with none; may be repeated."),
    ] = None,
    samples: Annotated[
        int, _tried("Minibatches to sample for the prediction; more are slower and more exact.", min=1)
    ] = 32,
    out: Annotated[Path | None, typer.Option("--out", help="New folder for plan.json and plan.png.")] = None,
) -> None:
    """Predicts what training on several machines takes, and recommends a setting.

    Features that do not fit the memory budget are read from their files where
    one process trains: bytes and seconds of reading are predicted, too.

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
    from pyg_batchgnn.train.decisions import open_dataset
    from pyg_batchgnn.train.disk_plan import DiskPrediction
    from pyg_batchgnn.train.graphs import AGGREGATION_OF_MODEL

    if ranks > ranks_per_host and ranks % ranks_per_host:
        fewer = ranks - ranks % ranks_per_host
        raise TrainError(
            f"--ranks is {ranks}, which is no multiple of the {ranks_per_host} ranks on each host; choose "
            f"{fewer} or {fewer + ranks_per_host}"
        )
    if memory_budget is not None and ranks > 1:
        raise TrainError(
            f"--memory-budget is for training in one process, and --ranks is {ranks}; leave it out, or give "
            f"--ranks 1"
        )
    console = Console()
    caches = (0, *(parse_size(text) for text in feature_cache or ()))
    if model not in AGGREGATION_OF_MODEL:
        raise TrainError(f"--model is {model.value}, which cannot be planned; choose sage, gcn or gin")
    tried = Choices(feature_caches=caches, aggregation=(None, AGGREGATION_OF_MODEL[model]))
    if macrobatch:
        for text in macrobatch:
            if text != "all" and not text.isdecimal():
                raise TrainError(f"--macrobatch is {text!r}; write a number like 8, or all")
        sizes = [0 if text == "all" else int(text) for text in macrobatch]
        tried = dataclasses.replace(tried, macrobatches=sizes)
    speeds = None if machine is None else _read_machine(machine)
    network = PlannerNetwork(parse_rate(bandwidth), latency * 1e-6)
    if out is not None:
        with writing(out):
            out.mkdir(parents=True, exist_ok=True)
    status = console.status("reading") if console.is_terminal else contextlib.nullcontext()
    with status as shown, as_train_error(ValueError):
        graph = open_dataset(dataset, bool(reverse))
        config = _check_trainable(
            *(graph, node_type),
            model=model.value,
            fanout=fanout,
            hidden=hidden or None,
            batch_size=batch_size,
            replacement=replacement.value,
            labor=None if labor is None else labor.value,
            memory_budget=memory_budget,
            threads=max(1, int(cores)),
            prefetch=1,
        )
        disk = None
        if ranks == 1:
            if shown is not None:
                shown.update("looking at what is read from files")
            disk = DiskPrediction.of(graph, config, max(samples, _DISK_SAMPLES))
        if disk is not None:
            size = disk.forecast.sizes.macrobatch
            tried = Choices([size], [1.0], [False], tried.aggregation[:1])
        found = plan(
            graph,
            ranks=ranks,
            network=network,
            ranks_per_host=ranks_per_host,
            cores=cores,
            memory=parse_size(memory) if memory and disk is None else 0.0,
            machine=speeds,
            fanouts=config.sampling.fanout,
            batch_size=batch_size,
            replacement=Replacement(replacement.value),
            labor=None if labor is None else labor.value,
            schedule=schedule.value,
            node_type=node_type,
            hidden=hidden,
            policies=partition or ("random",),
            choices=tried,
            samples=samples,
            progress=shown.update if shown is not None else None,
        )
    found = found if disk is None else dataclasses.replace(found, disk=disk.forecast)
    console.print(found.table())
    for line in _code_lines(graph):
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    command = [*launch_words(ranks, ranks_per_host), "train", dataset, "--model", model.value]
    command += ["--fanout", fanout, "--replacement", replacement.value, "--batch-size", str(batch_size)]
    command += ["--labor", labor.value] if labor is not None else []
    command += ["--hidden", str(hidden)] if hidden else []
    command += ["--threads", str(int(cores))] if cores >= 1 else []
    command += ["--reverse"] if reverse else []
    command += ["--prefetch", "1"] if disk is not None else []
    command += ["--memory-budget", memory_budget] if memory_budget is not None else []
    advice = found.advice(command)
    if disk is not None:  # the memory of the first line is that of features in memory
        advice = [*disk.lines(found.best), "Train with:", *advice[1:]]
    for line in advice:
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    if out is not None:
        console.print("wrote " + ", ".join(map(str, found.write(out))))


def _code_lines(graph: Dataset) -> list[str]:
    from rich.filesize import decimal

    from pyg_batchgnn.data import FEATURES
    from pyg_batchgnn.ops import QuantizedTensor

    tables = {one.name: one.tables.get(FEATURES) for one in graph.node_sets}
    return [
        f"Features{f' of {name}' if graph.has_names else ''}: {len(table):,} x {table.shape[1]} int8 codes, "
        f"{decimal(table.nbytes)}."
        for name, table in tables.items()
        if isinstance(table, QuantizedTensor)
    ]


def _check_trainable(graph: Dataset, node_type: str | None, **given: object) -> TrainConfig:
    """Returns the configuration of ``train`` with these options. Raises `TrainError` like it."""
    from pyg_batchgnn.planner import seed_type_of
    from pyg_batchgnn.train.network import build_network
    from pyg_batchgnn.train.node_tasks import task_of
    from pyg_batchgnn.train.training_data import TrainingData

    name = graph.schema.node_types[seed_type_of(graph, node_type)]
    options = {**given, "node_type": name if graph.has_names else None}
    config = assign(TrainConfig(), assignments(options))
    task = task_of(graph, config.task, config.model.hidden)
    build_network(config, TrainingData.of(graph, config).inputs, task.columns)  # which is thrown away
    return config


def launch_words(ranks: int, ranks_per_host: int) -> list[str]:
    if ranks == 1:
        return ["batchgnn"]
    module = ["-m", "pyg_batchgnn"]
    each = f"--nproc-per-node={min(ranks, ranks_per_host)}"
    hosts = -(-ranks // ranks_per_host)
    if hosts == 1:
        return ["torchrun", each, *module]
    meet = ["--rdzv-backend=c10d", "--rdzv-endpoint=FIRST_HOST:29500"]
    return ["torchrun", f"--nnodes={hosts}", each, *meet, *module]


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


def parse_rate(text: str) -> float:
    """Returns bytes per second of a text such as 1gbit, 100mbit or 12.5GB. Raises `TrainError` if
    the text is no positive rate with a unit."""
    from pyg_batchgnn.ops import parse_bytes

    match = re.fullmatch(r"\s*(.*?)(bit)?(/s)?\s*", text.lower())
    assert match is not None
    if re.fullmatch(r"[\d.]+", match[1]) and not match[2]:
        raise TrainError(f"{text!r} is a rate without a unit; write it like 10gbit, 100mbit or 1.25GB")
    try:
        rate = parse_bytes(f"{match[1]}b") / 8 if match[2] else parse_bytes(match[1])
    except ValueError:
        rate = 0.0
    if not rate > 0:
        raise TrainError(f"{text!r} is not a rate; write it like 10gbit, 100mbit or 1.25GB")
    return rate
