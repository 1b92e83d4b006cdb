"""Embedding tables: learned rows of nodes, which lie with the owners of the nodes."""

from typing import TYPE_CHECKING

from pyg_batchgnn.late_imports import late_names

if TYPE_CHECKING:
    from pyg_batchgnn.embed.embedding import Embedding as Embedding
    from pyg_batchgnn.embed.embedding import EmbeddingOptimizer as EmbeddingOptimizer
    from pyg_batchgnn.embed.rules import SGD as SGD
    from pyg_batchgnn.embed.rules import Adagrad as Adagrad
    from pyg_batchgnn.embed.rules import SparseAdam as SparseAdam
    from pyg_batchgnn.embed.rules import UpdateRule as UpdateRule
    from pyg_batchgnn.embed.steps import Step as Step
    from pyg_batchgnn.embed.tables import EmbeddingTable as EmbeddingTable
else:
    __getattr__ = late_names(__name__)
