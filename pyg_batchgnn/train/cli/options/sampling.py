"""The options of minibatches and macrobatches."""

from __future__ import annotations

from typing import Annotated

import typer

_PANEL = "Sampling"

Fanout = Annotated[
    str | None,
    typer.Option(
        help="Neighbours to sample per node at each hop, as in 15,10,5; -1 takes all. Default: 15,10,5. "
        "Smaller numbers are faster and less accurate.",
        rich_help_panel=_PANEL,
    ),
]
TestFanout = Annotated[
    str | None,
    typer.Option(
        help="The same for evaluation. Default: 20 at each hop; for gin, --fanout.",
        rich_help_panel=_PANEL,
    ),
]
Evaluation = Annotated[
    str | None,
    typer.Option(
        help="How nodes are evaluated: sampled, by --test-fanout, or exact, from all their neighbours, "
        "layer by layer over all nodes (native layers). Default: sampled.",
        rich_help_panel=_PANEL,
    ),
]
ReplacementOption = Annotated[
    str | None,
    typer.Option(
        "--replacement",
        help="Sample neighbours with or without replacement. Default: with, as BatchGNN; PyG's default "
        "is without.",
        rich_help_panel=_PANEL,
    ),
]
BatchSize = Annotated[
    int | None,
    typer.Option(
        help="Training nodes per minibatch on each rank. Default: 1024. Lower it for small graphs.",
        rich_help_panel=_PANEL,
    ),
]
LastBatch = Annotated[
    str | None,
    typer.Option(
        help="drop or keep an epoch's last, smaller minibatch. Default: drop.", rich_help_panel=_PANEL
    ),
]
Macrobatch = Annotated[
    str | None,
    typer.Option(
        "--macrobatch",
        "--macrobatch-size",
        help="Minibatches that are sampled together: a number, all of an epoch, or auto. Default: auto. More "
        "need more memory and fewer exchanges between ranks. Results do not change.",
        rich_help_panel=_PANEL,
    ),
]
Fetch = Annotated[
    str | None,
    typer.Option(
        "--fetch",
        "--fetch-size",
        help="Minibatches that have their features fetched together: a number, all of a macrobatch, or auto. "
        "Default: auto. Fewer need less memory. Results do not change.",
        rich_help_panel=_PANEL,
    ),
]
MemoryBudget = Annotated[
    str | None,
    typer.Option(
        help="Memory that the loader may use on each rank, as in 2GiB or 500MB; auto sizes fit into it. "
        "Default: an eighth of the free memory.",
        rich_help_panel=_PANEL,
    ),
]
Prefetch = Annotated[
    int | None,
    typer.Option(
        help="Macrobatches to prepare during training. Default: 0. Set 1 if cores or the network are idle; "
        "it needs more memory.",
        rich_help_panel=_PANEL,
    ),
]
