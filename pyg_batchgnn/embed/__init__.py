"""Embedding tables: learned rows of nodes, which lie with the owners of the nodes."""

from pyg_batchgnn.embed.embedding import Embedding, EmbeddingOptimizer
from pyg_batchgnn.embed.rules import SGD, Adagrad, SparseAdam, UpdateRule
from pyg_batchgnn.embed.steps import Step
from pyg_batchgnn.embed.tables import EmbeddingTable

__all__ = [
    "SGD",
    "Adagrad",
    "Embedding",
    "EmbeddingOptimizer",
    "EmbeddingTable",
    "SparseAdam",
    "Step",
    "UpdateRule",
]
