"""Predictions, embeddings and metrics from the best weights of a run."""

from pyg_batchgnn.train.predict.evaluation import EvaluateRequest, EvaluateSummary, evaluate_run
from pyg_batchgnn.train.predict.link_prediction import (
    LinkPredictRequest,
    LinkPredictSummary,
    predict_links,
)
from pyg_batchgnn.train.predict.prediction import PredictRequest, PredictSummary, predict_nodes

__all__ = [
    "EvaluateRequest",
    "EvaluateSummary",
    "LinkPredictRequest",
    "LinkPredictSummary",
    "PredictRequest",
    "PredictSummary",
    "evaluate_run",
    "predict_links",
    "predict_nodes",
]
