"""The optimizer of embedding tables."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from pyg_batchgnn.embed.embedding import Embedding
from pyg_batchgnn.embed.rules import UpdateRule


class EmbeddingOptimizer:
    """Updates the rows that were read, by the gradients of all ranks.

    A rank's gradients of one row are added first, then those of all ranks in the order of ranks;
    where several batches were read since the last step, batch by batch. So the bits of a run
    repeat. The update runs on a thread beside what follows, and the next read
    waits for it.

    Args:
        embedding: the tables.
        rule: `SGD`, `Adagrad` or `SparseAdam`.

    Attributes:
        rule: may be replaced between steps by one of the same kind (`set`).
    """

    def __init__(self, embedding: Embedding, rule: UpdateRule) -> None:
        self.embedding, self.rule = embedding, rule
        embedding.prepare(rule)

    def set(self, **numbers: Any) -> None:
        """Changes numbers of the rule, such as ``lr``; the same on all ranks."""
        self.rule = replace(self.rule, **numbers)  # type: ignore[type-var]

    def zero_grad(self) -> None:
        """Drops the gradients since the last step, for instance of a loss that is not finite.

        Call it on all ranks, as a step that is left out.
        """
        self.embedding.clear_gradients()

    def step(self, weight: float = 1.0) -> None:
        """Starts the update by the gradients of all batches that were read since the last step.

        Collective: one round, or one for each batch and one more where several were read. Then the
        rows of a batch whose backward pass comes later wait for a later step. A single batch is
        always taken, so its backward pass comes first.

        Args:
            weight: of this rank's gradients, which count weight / (the sum of all ranks' weights).
                With 1 on every rank that is the mean over ranks, as DistributedDataParallel takes
                it, a rank whose minibatch has no gradients included. A rank of weight 0 is left
                out.

        Raises:
            RuntimeError: no rows were read since the last step.
            ValueError: the weight is negative or not finite.
        """
        if not (math.isfinite(weight) and weight >= 0):
            raise ValueError(f"weight must be finite and not negative, got {weight}")
        self.embedding.update(self.rule, weight)
