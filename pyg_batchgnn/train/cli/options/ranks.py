"""The options of several ranks."""

from __future__ import annotations

from typing import Annotated

import typer

_PANEL = "Several ranks (with torchrun)"

Partition = Annotated[
    str | None,
    typer.Option(
        help="Which rank owns which node: random, contiguous, ldg, fennel, or the folder of a saved "
        "partition. Default: random; for a saved run its own. ldg and fennel take longer to make and send "
        "less in training.",
        rich_help_panel=_PANEL,
    ),
]
Hybrid = Annotated[
    bool | None,
    typer.Option(
        "--hybrid/--no-hybrid",
        help="Keep all edges on every rank, so that only features travel. Default: no. Use it if the edges "
        "fit the memory of each rank.",
        rich_help_panel=_PANEL,
    ),
]
FeatureCache = Annotated[
    str | None,
    typer.Option(
        help="Memory per rank for the features of other hosts that are needed most, as in 2GiB. Default: "
        "none.",
        rich_help_panel=_PANEL,
    ),
]
ScheduleOption = Annotated[
    str | None,
    typer.Option(
        "--schedule",
        help="local: each rank trains on the nodes that it owns, which sends least. balanced: each rank "
        "trains on equally many nodes, most of them its own; use it if the training nodes are spread "
        "unevenly. global: the ranks share the minibatches of one process, whatever their number. Default: "
        "local.",
        rich_help_panel=_PANEL,
    ),
]
Remote = Annotated[
    str | None,
    typer.Option(
        help="What layers read of other ranks' nodes. exact: their sampled neighbours. historical: rows that "
        "their owners pushed some steps ago, if they did; faster on slow networks, and less exact. "
        "Evaluation is always exact. Default: exact.",
        rich_help_panel=_PANEL,
    ),
]
CacheLines = Annotated[
    str | None,
    typer.Option(
        help="Rows in each layer's cache of historical embeddings; none: one per halo node. Default: "
        "1000000.",
        rich_help_panel=_PANEL,
    ),
]
LifeSpan = Annotated[
    str | None,
    typer.Option(
        help="Steps for which a cached row can be read; none: without end. Default: 2.",
        rich_help_panel=_PANEL,
    ),
]
Push = Annotated[
    str | None,
    typer.Option(
        help="Rows that a rank pushes at most per step, layer and peer; none: all. Default: 2000.",
        rich_help_panel=_PANEL,
    ),
]
Delay = Annotated[
    int | None,
    typer.Option(
        help="Steps after which pushed rows are received. Default: 1.",
        rich_help_panel=_PANEL,
    ),
]
Backend = Annotated[
    str | None,
    typer.Option(
        help="Backend of torch.distributed, as in gloo or ccl; batchgnn doctor shows which work here. "
        "Default: gloo.",
        rich_help_panel=_PANEL,
    ),
]
Timeout = Annotated[
    float | None,
    typer.Option(
        help="Seconds that a rank waits for the others before it ends with an error. Default: 600.",
        rich_help_panel=_PANEL,
    ),
]

#: The options that mean nothing in one process.
OF_RANKS = ("partition", "hybrid", "feature_cache", "backend", "timeout")
