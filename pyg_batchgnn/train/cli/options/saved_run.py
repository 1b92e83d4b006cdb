"""The options of a saved run that evaluates or predicts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Run = Annotated[Path, typer.Argument(help="Run folder with a checkpoint, as train writes it.")]
Exact = Annotated[
    bool | None,
    typer.Option(
        "--exact/--sampled",
        help="Compute every node from all its neighbours, layer by layer and with native layers, or sample "
        "neighbours as the run does. Default: as the run evaluates.",
    ),
]
DatasetName = Annotated[
    str | None,
    typer.Option("--dataset", help="Name or folder of the data set, if it has moved since the run."),
]
