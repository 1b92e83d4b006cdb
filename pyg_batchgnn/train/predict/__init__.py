"""Predictions, embeddings and metrics from the best weights of a run."""

from pyg_batchgnn.train.predict.embeddings import EmbedRequest, EmbedSummary, embed_nodes
from pyg_batchgnn.train.predict.evaluation import EvaluateRequest, EvaluateSummary, evaluate_run
from pyg_batchgnn.train.predict.link_prediction import (
    LinkPredictRequest,
    LinkPredictSummary,
    predict_links,
)
from pyg_batchgnn.train.predict.prediction import PredictRequest, PredictSummary, predict_nodes

__all__ = [
    "EmbedRequest",
    "EmbedSummary",
    "EvaluateRequest",
    "EvaluateSummary",
    "LinkPredictRequest",
    "LinkPredictSummary",
    "PredictRequest",
    "PredictSummary",
    "embed_nodes",
    "evaluate_run",
    "predict_links",
    "predict_nodes",
]
