"""``batchgnn plan``."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from pyg_batchgnn.cache import Aggregation
from pyg_batchgnn.data import load_dataset
from pyg_batchgnn.planner import SAMPLES, Choices, PlannerMachine, PlannerNetwork, plan
from pyg_batchgnn.sample import Replacement
from pyg_batchgnn.train.cli.options import parse_bytes
from pyg_batchgnn.train.config import ModelKind
from pyg_batchgnn.train.errors import TrainError
from pyg_batchgnn.train.graph import AGGREGATION_OF_MODEL

_CLUSTER, _TRAINING, _TRIED = "The cluster", "What is trained", "What is tried"


def plan_command(
    dataset: Annotated[str, typer.Argument(help="A name or folder, as for train.")],
    ranks: Annotated[int, typer.Option(help="Ranks that will train.", min=1, rich_help_panel=_CLUSTER)],
    bandwidth: Annotated[
        str,
        typer.Option(help="Rate of a host's link, such as 1gbit or 12.5GB.", rich_help_panel=_CLUSTER),
    ] = "10gbit",
    latency: Annotated[
        float, typer.Option(help="Microseconds between hosts.", min=0, rich_help_panel=_CLUSTER)
    ] = 100.0,
    ranks_per_host: Annotated[
        int, typer.Option(help="Ranks that share a host's memory.", min=1, rich_help_panel=_CLUSTER)
    ] = 1,
    cores: Annotated[
        float, typer.Option(help="Cores per rank, 0.5 where two share a core.", rich_help_panel=_CLUSTER)
    ] = 1.0,
    memory: Annotated[
        str | None, typer.Option(help="Memory that a rank may take, such as 32GiB.", rich_help_panel=_CLUSTER)
    ] = None,
    machine: Annotated[
        Path | None,
        typer.Option(
            help='JSON with the speeds of other cores, as "machine" in plan.json. Default: measured here.',
            rich_help_panel=_CLUSTER,
        ),
    ] = None,
    fanout: Annotated[str, typer.Option(help="Neighbours per hop.", rich_help_panel=_TRAINING)] = "15,10,5",
    batch_size: Annotated[
        int,
        typer.Option(help="Training nodes per minibatch, on each rank.", min=1, rich_help_panel=_TRAINING),
    ] = 1024,
    replacement: Annotated[
        Replacement, typer.Option(help="Whether sampling is with replacement.", rich_help_panel=_TRAINING)
    ] = (Replacement.WITH),
    model: Annotated[
        ModelKind, typer.Option(help="The model whose layers are timed; not gat.", rich_help_panel=_TRAINING)
    ] = ModelKind.SAGE,
    hidden: Annotated[
        int, typer.Option(help="Width of the layers. 0 does not time them.", min=0, rich_help_panel=_TRAINING)
    ] = 256,
    global_schedule: Annotated[
        bool, typer.Option("--global", help="Plan for --schedule global.", rich_help_panel=_TRAINING)
    ] = False,
    partition: Annotated[
        list[str] | None,
        typer.Option(help="Policy or saved partition. May be repeated.", rich_help_panel=_TRIED),
    ] = None,
    macrobatch: Annotated[
        list[int] | None,
        typer.Option(help="B, 0 for all. May be repeated.", min=0, rich_help_panel=_TRIED),
    ] = None,
    feature_cache: Annotated[
        list[str] | None,
        typer.Option(
            help="Size to try as well as none, such as 512MiB. May be repeated.", rich_help_panel=_TRIED
        ),
    ] = None,
    samples: Annotated[
        int, typer.Option(help="Minibatches to sample.", min=1, rich_help_panel=_TRIED)
    ] = SAMPLES,
    out: Annotated[Path | None, typer.Option("--out", help="Folder for plan.json and plan.png.")] = None,
) -> None:
    """Predict what training on several machines takes, and recommend a setting.

    Predicts the number of rounds for each macrobatch size and reports
    whether a cache pays off. Samples some minibatches of the graph and
    measures one core of this machine for a few seconds. Then computes, for
    each B, F, partition and cache, the rounds, the rows and bytes that
    travel, the memory of a rank, and the seconds of an epoch by phase.

    [bold]Examples[/bold]

      batchgnn plan cora --ranks 2 --batch-size 64 --out plans/cora

      batchgnn plan ogbn-products --ranks 8 --bandwidth 10gbit --cores 16 --memory 64GiB

      batchgnn plan graphs/large --ranks 4 --partition random --partition ldg --feature-cache 1GiB
    """
    console = Console()
    caches = (0, *(parse_bytes(text) for text in feature_cache or ()))
    tried = Choices(feature_caches=caches, aggregation=(None, _aggregation(model)))
    if macrobatch:
        tried = dataclasses.replace(tried, macrobatches=macrobatch)
    fanouts = _fanouts(fanout)
    speeds = None if machine is None else _read_machine(machine)
    network = PlannerNetwork(parse_rate(bandwidth), latency * 1e-6)
    status = console.status("reading") if console.is_terminal else contextlib.nullcontext()
    with status as shown:
        try:
            found = plan(
                load_dataset(dataset),
                ranks=ranks,
                network=network,
                ranks_per_host=ranks_per_host,
                cores=cores,
                memory=parse_bytes(memory) if memory else 0.0,
                machine=speeds,
                fanouts=fanouts,
                batch_size=batch_size,
                replacement=replacement,
                own_seeds=not global_schedule,
                hidden=hidden,
                policies=partition or ("random",),
                choices=tried,
                samples=samples,
                progress=shown.update if shown is not None else None,
            )
        except ValueError as error:
            raise TrainError(str(error)) from error
    console.print(found.table())
    for line in found.advice():
        console.print(line, highlight=False)
    if out is not None:
        console.print("wrote " + ", ".join(map(str, found.write(out))))


def parse_rate(text: str) -> float:
    """Returns the bytes per second of a text like 1gbit, 100mbit, 12.5GB or 1000000.

    Raises:
        TrainError: it is none of those, or is not positive.
    """
    match = re.fullmatch(r"\s*(.*?)(bit)?(/s)?\s*", text.lower())
    assert match is not None
    try:
        rate = parse_bytes(match[1]) / (8 if match[2] else 1)
    except TrainError:
        rate = 0.0
    if not rate > 0:
        raise TrainError(f"{text!r} is not a rate; write it like 10gbit, 100mbit or 1.25GB")
    return rate


def _aggregation(model: ModelKind) -> Aggregation:
    if model not in AGGREGATION_OF_MODEL:
        raise TrainError(f"--model is {model.value}, but only sage, gcn and gin can be planned")
    return AGGREGATION_OF_MODEL[model]


def _fanouts(text: str) -> tuple[int, ...]:
    try:
        numbers = tuple(int(word) for word in text.split(","))
    except ValueError:
        raise TrainError(f"--fanout is {text!r}; write numbers like 15,10,5") from None
    if any(number < -1 for number in numbers):
        raise TrainError(f"--fanout is {text!r}; numbers must be 0 or more, or -1 for all")
    return numbers


def _read_machine(path: Path) -> PlannerMachine:
    try:
        values = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise TrainError(f"{path}: cannot be read as JSON: {error}") from None
    values = values.get("machine", values) if isinstance(values, dict) else values
    known = [field.name for field in dataclasses.fields(PlannerMachine)]
    if not isinstance(values, dict) or not set(values) <= set(known):
        raise TrainError(f"{path}: must be an object of numbers named {', '.join(known)}")
    if not all(isinstance(value, (int, float)) and value >= 0 for value in values.values()):
        raise TrainError(f"{path}: every speed must be a number, at least 0")
    return PlannerMachine(**values)
