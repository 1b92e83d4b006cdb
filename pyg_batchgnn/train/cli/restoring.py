"""The request that the options of a saved run make."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyg_batchgnn.train.run import RestoreRequest


def restore_request(
    run: Path,
    exact: bool | None,
    dataset: str | None,
    threads: int | None,
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
    return RestoreRequest(run, dataset, threads, evaluation, changes)
