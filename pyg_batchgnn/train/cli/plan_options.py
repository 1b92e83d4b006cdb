"""The options of ``batchgnn plan``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pyg_batchgnn.train.cli.choices import ModelName, ReplacementName, ScheduleOption

_CLUSTER, _TRAINING, _TRIED = "The cluster", "The training", "The settings to compare"

DatasetName = Annotated[str, typer.Argument(help="Name or folder of a data set, as for train.")]
Ranks = Annotated[int, typer.Option(help="Number of ranks that will train.", min=1, rich_help_panel=_CLUSTER)]
Bandwidth = Annotated[
    str,
    typer.Option(help="Bandwidth of each host's link, as in 1gbit or 1.25GB.", rich_help_panel=_CLUSTER),
]
Latency = Annotated[
    float, typer.Option(help="Microseconds between two hosts.", min=0, rich_help_panel=_CLUSTER)
]
RanksPerHost = Annotated[
    int, typer.Option(help="Ranks on each host; they share its memory.", min=1, rich_help_panel=_CLUSTER)
]
Cores = Annotated[
    float,
    typer.Option(help="Cores of each rank; 0.5 if two ranks share one.", rich_help_panel=_CLUSTER),
]
Memory = Annotated[
    str | None,
    typer.Option(
        help="Memory that each rank may use, as in 32GiB. Default: no limit.", rich_help_panel=_CLUSTER
    ),
]
Machine = Annotated[
    Path | None,
    typer.Option(
        help='JSON file with the speeds of the cluster\'s cores, as "machine" in a plan.json that was '
        "written there. Default: measure this machine.",
        rich_help_panel=_CLUSTER,
    ),
]
Fanout = Annotated[
    str,
    typer.Option(help="Neighbours to sample per node at each hop.", rich_help_panel=_TRAINING),
]
BatchSize = Annotated[
    int,
    typer.Option(help="Training nodes per minibatch on each rank.", min=1, rich_help_panel=_TRAINING),
]
Replacement = Annotated[
    ReplacementName,
    typer.Option(help="Sample neighbours with or without replacement.", rich_help_panel=_TRAINING),
]
Model = Annotated[
    ModelName, typer.Option(help="Kind of model; gat cannot be planned.", rich_help_panel=_TRAINING)
]
Hidden = Annotated[
    int,
    typer.Option(
        help="Columns between two layers; 0 leaves the layers out of the prediction.",
        min=0,
        rich_help_panel=_TRAINING,
    ),
]
Schedule = Annotated[
    ScheduleOption,
    typer.Option(
        help="Rule by which ranks share training nodes, as for train. Historical embeddings are predicted "
        "for local only.",
        rich_help_panel=_TRAINING,
    ),
]
NodeType = Annotated[
    str | None,
    typer.Option(
        help="Type of the training nodes, where several types have some.", rich_help_panel=_TRAINING
    ),
]
Partitions = Annotated[
    list[str] | None,
    typer.Option(
        help="Policy, or folder of a saved partition; may be repeated. Default: random.",
        rich_help_panel=_TRIED,
    ),
]
Macrobatches = Annotated[
    list[str] | None,
    typer.Option(
        help="Macrobatch size B, or all for a whole epoch; may be repeated. Default: 1, 8, 32, 128 and all.",
        rich_help_panel=_TRIED,
    ),
]
FeatureCaches = Annotated[
    list[str] | None,
    typer.Option(
        help="Size of the feature cache, as in 512MiB, compared with none; may be repeated.",
        rich_help_panel=_TRIED,
    ),
]
Samples = Annotated[
    int,
    typer.Option(
        help="Minibatches to sample for the prediction; more are slower and more exact.",
        min=1,
        rich_help_panel=_TRIED,
    ),
]
Out = Annotated[Path | None, typer.Option("--out", help="New folder for plan.json and plan.png.")]
