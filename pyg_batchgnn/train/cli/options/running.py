"""The options of how long and how exactly a run computes."""

from __future__ import annotations

from typing import Annotated

import typer

_PANEL = "Running"

Epochs = Annotated[
    int | None,
    typer.Option(help="Passes over the training nodes. Default: 20.", rich_help_panel=_PANEL),
]
EvaluateEvery = Annotated[
    int | None,
    typer.Option(
        help="Epochs between two validations; the last epoch is always validated. Default: 1.",
        rich_help_panel=_PANEL,
    ),
]
Patience = Annotated[
    int | None,
    typer.Option(
        help="Stop after this many validations in a row without a better metric. Default: train all epochs.",
        rich_help_panel=_PANEL,
    ),
]
Seed = Annotated[
    int | None,
    typer.Option(
        help="Determines initial weights, order of nodes, samples and dropout. Default: 0. The same seed "
        "repeats a run.",
        rich_help_panel=_PANEL,
    ),
]
Threads = Annotated[
    int | None,
    typer.Option(
        help="Threads of torch and the loader on each rank. Default: one per core, shared by the ranks of "
        "a host; for a saved run its own.",
        rich_help_panel=_PANEL,
    ),
]
MatrixProduct = Annotated[
    str | None,
    typer.Option(
        help="Matrix product of native layers: native, torch, or probe: the faster one, which takes a second "
        "to find out. The two round differently, so of two runs with probe one may choose the other and end "
        "with other weights. Default: native on processors with AVX2 or AVX-512, else torch.",
        rich_help_panel=_PANEL,
    ),
]
Precision = Annotated[
    str | None,
    typer.Option(
        help="float32, or bfloat16 for features, activations and products: half the memory, and faster on "
        "CPUs with AMX or AVX-512 BF16. Default: float32.",
        rich_help_panel=_PANEL,
    ),
]
