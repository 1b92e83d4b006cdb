"""The options of learned rows of nodes."""

from __future__ import annotations

from typing import Annotated

import typer

_PANEL = "Learned rows of nodes"

Embed = Annotated[
    str | None,
    typer.Option(
        help="Node types that have a learned row per node: names with commas, all, none, or auto: the types "
        "without features. Default: auto.",
        rich_help_panel=_PANEL,
    ),
]
EmbedColumns = Annotated[
    int | None,
    typer.Option(help="Columns of learned rows. Default: those of --hidden.", rich_help_panel=_PANEL),
]
EmbedRule = Annotated[
    str | None,
    typer.Option(help="Rule of their updates: adam, adagrad or sgd. Default: adam.", rich_help_panel=_PANEL),
]
EmbedLearningRate = Annotated[
    float | None,
    typer.Option("--embed-lr", help="Their learning rate. Default: that of --lr.", rich_help_panel=_PANEL),
]
