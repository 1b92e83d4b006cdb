"""The main job: models, trainer, evaluation, checkpoints, reports and the command line.

Each name imports its part of the room when it is first used, so that the command line shows help
without waiting for torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyg_batchgnn.late_imports import late_names

if TYPE_CHECKING:
    from pyg_batchgnn.train.config.train_config import TrainConfig, assign, preset, read_config
    from pyg_batchgnn.train.errors import TrainError
    from pyg_batchgnn.train.link_prediction import LinkPredictRequest, LinkPredictSummary, predict_links
    from pyg_batchgnn.train.prediction import (
        EmbedRequest,
        EmbedSummary,
        PredictRequest,
        PredictSummary,
        embed_nodes,
        predict_nodes,
    )
    from pyg_batchgnn.train.restored import RestoreRequest
    from pyg_batchgnn.train.run_log import RunLog
    from pyg_batchgnn.train.run_metrics import EvaluateRequest, EvaluateSummary, evaluate_run
    from pyg_batchgnn.train.start import resume_run, start_or_resume_run, start_run
    from pyg_batchgnn.train.tasks import average_precision, f1_score, roc_auc
    from pyg_batchgnn.train.trainer import RunOutcome
else:
    __getattr__ = late_names(__name__)

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
    "RunLog",
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


def __dir__() -> list[str]:
    return sorted(__all__)
