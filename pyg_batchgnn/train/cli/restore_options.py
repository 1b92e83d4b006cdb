"""The options by which commands restore a run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from pyg_batchgnn.train.run import RestoreRequest

_RANKS = "Several ranks (with torchrun)"

Run = Annotated[Path, typer.Argument(help="Run folder with a checkpoint, as train writes it.")]
Exact = Annotated[
    bool | None,
    typer.Option(
        "--exact/--sampled",
        help="Compute every node from all its neighbours, layer by layer, or sample neighbours as "
        "the run does. Default: as the run evaluates.",
    ),
]
DatasetName = Annotated[
    str | None,
    typer.Option("--dataset", help="Name or folder of the data set, if it has moved since the run."),
]
Threads = Annotated[
    int | None, typer.Option(help="Threads of torch and the loader. Default: those of the run.")
]
Layers = Annotated[
    str | None,
    typer.Option(
        help="native or pyg; both read the same weights. Default: those of the run; native if exact."
    ),
]
Partition = Annotated[
    str | None,
    typer.Option(
        help="Which rank owns which node, as for train. Default: as in the run.", rich_help_panel=_RANKS
    ),
]
Backend = Annotated[
    str | None, typer.Option(help="Backend of torch.distributed. Default: gloo.", rich_help_panel=_RANKS)
]
Timeout = Annotated[
    float | None,
    typer.Option(
        help="Seconds that a rank waits for the others before it ends with an error. Default: 600.",
        rich_help_panel=_RANKS,
    ),
]


def restore_request(
    run: Path,
    exact: bool | None,
    dataset: str | None,
    threads: int | None,
    layers: str | None,
    partition: str | None,
    backend: str | None,
    timeout: float | None,
) -> RestoreRequest:
    """Returns the request that the options make."""
    from pyg_batchgnn.train.config import EvaluationKind
    from pyg_batchgnn.train.run import RestoreRequest

    evaluation = None
    if exact is not None:
        evaluation = EvaluationKind.EXACT if exact else EvaluationKind.SAMPLED
    given = {"partition": partition, "backend": backend, "timeout": timeout}
    changes = tuple(f"ranks.{name}={value}" for name, value in given.items() if value is not None)
    return RestoreRequest(run, dataset, threads, layers, evaluation, changes)
