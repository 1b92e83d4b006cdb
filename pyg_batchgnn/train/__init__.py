"""The main job: models, trainer, evaluation, checkpoints, reports and the command line.

Each name imports its part of the room when it is first used, so that the command line shows help
without waiting for torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyg_batchgnn.train.config import TrainConfig, assign, preset, read_config
    from pyg_batchgnn.train.errors import TrainError
    from pyg_batchgnn.train.loop import RunOutcome
    from pyg_batchgnn.train.predict import (
        EmbedRequest,
        EmbedSummary,
        EvaluateRequest,
        EvaluateSummary,
        LinkPredictRequest,
        LinkPredictSummary,
        PredictRequest,
        PredictSummary,
        embed_nodes,
        evaluate_run,
        predict_links,
        predict_nodes,
    )
    from pyg_batchgnn.train.run import RestoreRequest, resume_run, start_or_resume_run, start_run
    from pyg_batchgnn.train.task import average_precision, f1_score, roc_auc

__all__ = [
    "EmbedRequest",
    "EmbedSummary",
    "EvaluateRequest",
    "EvaluateSummary",
    "LinkPredictRequest",
    "LinkPredictSummary",
    "PredictRequest",
    "PredictSummary",
    "RestoreRequest",
    "RunOutcome",
    "TrainConfig",
    "TrainError",
    "assign",
    "average_precision",
    "embed_nodes",
    "evaluate_run",
    "f1_score",
    "predict_links",
    "predict_nodes",
    "preset",
    "read_config",
    "resume_run",
    "roc_auc",
    "start_or_resume_run",
    "start_run",
]

_PARTS = {
    "EmbedRequest": "predict",
    "EmbedSummary": "predict",
    "EvaluateRequest": "predict",
    "EvaluateSummary": "predict",
    "LinkPredictRequest": "predict",
    "LinkPredictSummary": "predict",
    "PredictRequest": "predict",
    "PredictSummary": "predict",
    "RestoreRequest": "run",
    "RunOutcome": "loop",
    "TrainConfig": "config",
    "TrainError": "errors",
    "assign": "config",
    "average_precision": "task",
    "embed_nodes": "predict",
    "evaluate_run": "predict",
    "f1_score": "task",
    "predict_links": "predict",
    "predict_nodes": "predict",
    "preset": "config",
    "read_config": "config",
    "resume_run": "run",
    "roc_auc": "task",
    "start_or_resume_run": "run",
    "start_run": "run",
}


def __getattr__(name: str) -> Any:
    """Imports a part of the room when it is first used."""
    if name not in _PARTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_PARTS[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
