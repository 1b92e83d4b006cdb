"""The main job: models, trainer, evaluation, checkpoints, reports and the command line.

Each name imports its part of the room when it is first used, so that the command line shows help
without waiting for torch.
"""

from typing import TYPE_CHECKING

from pyg_batchgnn.late_imports import late_names

if TYPE_CHECKING:
    from pyg_batchgnn.train.config.train_config import TrainConfig as TrainConfig
    from pyg_batchgnn.train.config.train_config import assign as assign
    from pyg_batchgnn.train.config.train_config import preset as preset
    from pyg_batchgnn.train.config.train_config import read_config as read_config
    from pyg_batchgnn.train.errors import TrainError as TrainError
    from pyg_batchgnn.train.link_prediction import LinkPredictRequest as LinkPredictRequest
    from pyg_batchgnn.train.link_prediction import LinkPredictSummary as LinkPredictSummary
    from pyg_batchgnn.train.link_prediction import predict_links as predict_links
    from pyg_batchgnn.train.prediction import EmbedRequest as EmbedRequest
    from pyg_batchgnn.train.prediction import EmbedSummary as EmbedSummary
    from pyg_batchgnn.train.prediction import PredictRequest as PredictRequest
    from pyg_batchgnn.train.prediction import PredictSummary as PredictSummary
    from pyg_batchgnn.train.prediction import embed_nodes as embed_nodes
    from pyg_batchgnn.train.prediction import predict_nodes as predict_nodes
    from pyg_batchgnn.train.restored import EvaluateRequest as EvaluateRequest
    from pyg_batchgnn.train.restored import EvaluateSummary as EvaluateSummary
    from pyg_batchgnn.train.restored import RestoreRequest as RestoreRequest
    from pyg_batchgnn.train.restored import evaluate_run as evaluate_run
    from pyg_batchgnn.train.run_folder import RunLog as RunLog
    from pyg_batchgnn.train.start import resume_run as resume_run
    from pyg_batchgnn.train.start import start_or_resume_run as start_or_resume_run
    from pyg_batchgnn.train.start import start_run as start_run
    from pyg_batchgnn.train.tasks import average_precision as average_precision
    from pyg_batchgnn.train.tasks import f1_score as f1_score
    from pyg_batchgnn.train.tasks import roc_auc as roc_auc
    from pyg_batchgnn.train.trainer import RunOutcome as RunOutcome
else:
    __getattr__ = late_names(__name__)
