"""Decoders: scores of pairs of nodes from the rows that a model computed for them."""

from __future__ import annotations

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.nn.linear import Linear

#: Numbers that the products of the rows of a block of pairs take together.
_NUMBERS = 1 << 22


class DotProductDecoder(torch.nn.Module):
    """Scores a pair by the dot product of its rows. It has no parameters."""

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Returns [...], the scores of pairs of rows [..., H], whose shapes broadcast."""
        return (source * target).sum(dim=-1)

    def all_pairs(self, source: Tensor, target: Tensor) -> Tensor:
        """Returns [n, m], the score of each source [n, H] with each target [m, H] of the same
        dtype, from one matrix product. With the package's own products, equal targets score
        equally."""
        return ops.linear([source], [target], out_dtype=target.dtype)


class MLPDecoder(torch.nn.Module):
    """Scores a pair by a perceptron with one hidden layer on the product of its rows. ``columns``:
    H, of the rows and of the hidden layer."""

    def __init__(self, columns: int) -> None:
        super().__init__()
        self.hidden = Linear(columns, columns)
        self.score = Linear(columns, 1)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Returns [...], the score of each pair, as `DotProductDecoder.forward` does."""
        product = source * target
        rows = self.hidden(product.reshape(-1, product.size(-1))).relu()
        scores: Tensor = self.score(rows)
        return scores.view(product.shape[:-1])

    def all_pairs(self, source: Tensor, target: Tensor) -> Tensor:
        """Returns [n, m], the score of each source with each target, in blocks of sources that
        bound the memory. Scores do not depend on the blocks."""
        size = max(1, _NUMBERS // max(1, target.numel()))
        return torch.cat([self._block(rows, target) for rows in source.split(size)])

    def _block(self, source: Tensor, target: Tensor) -> Tensor:
        """Returns the scores of a block of sources. The product with one output would add in
        another order in blocks of many rows."""
        product = (source.unsqueeze(1) * target).view(-1, source.size(-1))
        rows = self.hidden.with_relu(product) * self.score.weight[0]
        return (rows.sum(dim=-1) + self.score.bias).view(len(source), len(target))
