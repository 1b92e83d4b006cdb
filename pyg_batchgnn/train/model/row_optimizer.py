"""The optimizer of a run's learned rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pyg_batchgnn.embed import SGD, Adagrad, Embedding, EmbeddingOptimizer, SparseAdam, UpdateRule
from pyg_batchgnn.train.config import EmbeddingRule, TrainConfig

_RULES: Mapping[EmbeddingRule, Callable[[float], UpdateRule]] = {
    EmbeddingRule.ADAM: SparseAdam,
    EmbeddingRule.ADAGRAD: Adagrad,
    EmbeddingRule.SGD: SGD,
}


def row_optimizer(config: TrainConfig, embedding: Embedding) -> EmbeddingOptimizer:
    """Returns the optimizer of learned rows, with the rule and the step size of a run."""
    chosen = config.embedding
    rate = config.optimiser.learning_rate if chosen.learning_rate is None else chosen.learning_rate
    return EmbeddingOptimizer(embedding, _RULES[chosen.rule](rate))
