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
        help="Add the reverse of every relation of named types. A saved partition needs --reverse too. Every "
        "process copies all edges; write the folder of a large graph with its reverse relations instead.",
        rich_help_panel=_PANEL,
    ),
]
Task = Annotated[
    str | None,
    typer.Option(
        help="What is predicted for each node: classes (one of several), labels (any number of them), values "
        "(numbers), or auto: integers [N] are classes, integers or booleans [N, C] labels, floats values. "
        "With link the links of a relation are predicted. Default: auto.",
        rich_help_panel=_PANEL,
    ),
]
Loss = Annotated[
    str | None,
    typer.Option(
        help="Loss of values: mse or mae; of links: bce or bpr. Default: the first.", rich_help_panel=_PANEL
    ),
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
        "roc_auc, average_precision, micro_f1 or macro_f1 for labels; mae or rmse for values; mrr, "
        "hits@1, 3, 10, 20, 50 or 100 for links. Default: the first; for values that of the loss.",
        rich_help_panel=_PANEL,
    ),
]
EdgeType = Annotated[
    str | None,
    typer.Option(
        help="Relation whose links are predicted, as in user,buys,item. Default: the only one.",
        rich_help_panel=_PANEL,
    ),
]
ReverseEdgeType = Annotated[
    str | None,
    typer.Option(
        help="Relation that holds the same edges the other way, as in item,sold_to,user. A minibatch sees "
        "the edges of its own links in neither. Default: the relation itself in a homogeneous graph; else "
        "that of the same name with rev_ in front, or without it, if there is one.",
        rich_help_panel=_PANEL,
    ),
]
Decoder = Annotated[
    str | None,
    typer.Option(
        help="Score of a link: dot (dot product) or mlp (perceptron on the product). Default: dot.",
        rich_help_panel=_PANEL,
    ),
]
Negatives = Annotated[
    int | None,
    typer.Option(help="Other pairs drawn for each link in training. Default: 1.", rich_help_panel=_PANEL),
]
