"""Decoders: scores of pairs of nodes from the rows that a model computed for them."""

from __future__ import annotations

import torch
from torch import Tensor

from pyg_batchgnn.nn.linear import Linear


class DotProductDecoder(torch.nn.Module):
    """Scores a pair by the dot product of its rows. It has no parameters."""

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Returns [...], the score of each pair.

        Args:
            source: [..., H], the rows of the sources.
            target: [..., H], the rows of the targets, of a shape that fits by broadcasting.
        """
        return (source * target).sum(dim=-1)


class MLPDecoder(torch.nn.Module):
    """Scores a pair by a perceptron with one hidden layer on the product of its rows.

    Args:
        columns: the columns H of the rows and of the hidden layer.
    """

    def __init__(self, columns: int) -> None:
        super().__init__()
        self.hidden = Linear(columns, columns)
        self.score = Linear(columns, 1)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Returns [...], the score of each pair; see `DotProductDecoder`."""
        product = source * target
        rows = self.hidden(product.reshape(-1, product.size(-1))).relu()
        scores: Tensor = self.score(rows)
        return scores.view(product.shape[:-1])
