"""Embedding tables: learned rows of nodes, which lie with the owners of the nodes."""

from typing import TYPE_CHECKING

from pyg_batchgnn.late_imports import late_names

if TYPE_CHECKING:
    from pyg_batchgnn.embed.embedding import Embedding, EmbeddingOptimizer
    from pyg_batchgnn.embed.rules import SGD, Adagrad, SparseAdam, UpdateRule
    from pyg_batchgnn.embed.steps import Step
    from pyg_batchgnn.embed.tables import EmbeddingTable
else:
    __getattr__ = late_names(__name__)

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
