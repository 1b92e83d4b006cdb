"""The options of what is predicted."""

from __future__ import annotations

from typing import Annotated

import typer

_PANEL = "Task"

NodeType = Annotated[
    str | None,
    typer.Option(
        help="Node type whose nodes are predicted, in a graph with named types. Default: the only type.",
        rich_help_panel=_PANEL,
    ),
]
Reverse = Annotated[
    bool | None,
    typer.Option(
        "--reverse",
        help="Add the reverse of every relation of named types. A saved partition needs --reverse too.",
        rich_help_panel=_PANEL,
    ),
]
Task = Annotated[
    str | None,
    typer.Option(
        help="What is predicted for each node: classes (one of several), labels (any number of them), values "
        "(numbers), or auto: integers [N] are classes, integers or booleans [N, C] labels, floats values. "
        "Default: auto.",
        rich_help_panel=_PANEL,
    ),
]
Loss = Annotated[
    str | None,
    typer.Option(help="Loss of values: mse or mae. Default: mse.", rich_help_panel=_PANEL),
]
ClassWeights = Annotated[
    str | None,
    typer.Option(
        help="Weights in the loss: one number per class, as in 1,1,5, or per label for the nodes that have "
        "it; balanced makes rare classes weigh as much as frequent ones. Default: all weigh the same.",
        rich_help_panel=_PANEL,
    ),
]
MetricOption = Annotated[
    str | None,
    typer.Option(
        "--metric",
        help="Metric of validation nodes that chooses the best epoch: accuracy or macro_f1 for classes; "
        "roc_auc, average_precision, micro_f1 or macro_f1 for labels; mae or rmse for values. Default: the "
        "first; for values that of the loss.",
        rich_help_panel=_PANEL,
    ),
]
