"""Predictions, embeddings and metrics of nodes from the best weights of a run."""

from pyg_batchgnn.train.predict.evaluation import EvaluateRequest, EvaluateSummary, evaluate_run
from pyg_batchgnn.train.predict.prediction import PredictRequest, PredictSummary, predict_nodes

__all__ = [
    "EvaluateRequest",
    "EvaluateSummary",
    "PredictRequest",
    "PredictSummary",
    "evaluate_run",
    "predict_nodes",
]
