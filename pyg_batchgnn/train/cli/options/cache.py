"""The options of the aggregation cache."""

from __future__ import annotations

from typing import Annotated

import typer

_PANEL = "Aggregation cache"

Cache = Annotated[
    str | None,
    typer.Option(
        help="aggregation replaces the last hop by aggregates of all neighbours, built before training "
        "(native sage, gcn and gin); off samples every hop. Default: off. It is faster and changes the "
        "trained model.",
        rich_help_panel=_PANEL,
    ),
]
CacheFolder = Annotated[
    str | None,
    typer.Option(
        help="Folder of the aggregates: read if it exists, else written. Default: build them in every run.",
        rich_help_panel=_PANEL,
    ),
]
EvaluateWithCache = Annotated[
    bool | None,
    typer.Option(
        "--evaluate-with-cache/--evaluate-without-cache",
        help="Evaluate with the aggregates too. Default: with them for gin, without for sage and gcn.",
        rich_help_panel=_PANEL,
    ),
]
