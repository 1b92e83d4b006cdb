"""The options of the model and its optimiser."""

from __future__ import annotations

from typing import Annotated

import typer

_PANEL = "Model and optimiser"

Model = Annotated[
    str | None,
    typer.Option(help="Kind of model: sage, gcn, gin or gat. Default: sage.", rich_help_panel=_PANEL),
]
NumLayers = Annotated[
    int | None,
    typer.Option(
        help="Number of layers; each needs one number in --fanout. Default: as many as --fanout has, else 3.",
        rich_help_panel=_PANEL,
    ),
]
Hidden = Annotated[
    int | None,
    typer.Option(
        help="Columns between two layers. Default: 256. Fewer train faster and need less memory.",
        rich_help_panel=_PANEL,
    ),
]
Dropout = Annotated[
    float | None,
    typer.Option(
        help="Probability of setting an element between layers to zero. Default: 0.5. Raise it against "
        "overfitting. GIN has none.",
        rich_help_panel=_PANEL,
    ),
]
Heads = Annotated[
    int | None,
    typer.Option(
        help="Attention heads per layer of GAT; they share the hidden columns. Default: 4.",
        rich_help_panel=_PANEL,
    ),
]
LearningRate = Annotated[
    float | None,
    typer.Option(
        "--lr",
        help="Learning rate of Adam. Default: 0.003. Lower it if the loss jumps.",
        rich_help_panel=_PANEL,
    ),
]
WeightDecay = Annotated[
    float | None,
    typer.Option(
        help="Factor of Adam's L2 penalty. Default: 0. Raise it, as to 0.0005, against overfitting.",
        rich_help_panel=_PANEL,
    ),
]
