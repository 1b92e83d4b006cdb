"""Predictions and embeddings of nodes from the best weights of a run."""

from pyg_batchgnn.train.predict.prediction import PredictRequest, PredictSummary, predict_nodes

__all__ = ["PredictRequest", "PredictSummary", "predict_nodes"]
