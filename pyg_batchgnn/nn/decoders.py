"""Decoders: scores of pairs of nodes from the rows that a model computed for them."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from pyg_batchgnn import ops
from pyg_batchgnn.nn.linear import Linear

#: Numbers that the products of the rows of a block of pairs take together.
_NUMBERS = 1 << 22
#: A score below all others, and a share of a softmax or a factor of a gradient that counts as zero:
#: to work with the least numbers that there are takes many times as long.
_LOWEST, _LEAST = -1e30, 1e-18


class _LogOdds(torch.autograd.Function):
    """Of each row of a softmax [P, P], the log odds of the diagonal's number."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, log_q: Tensor, hits: Tensor) -> Tensor:
        others = scores - log_q
        own = others.diagonal().clone()
        others.diagonal().fill_(_LOWEST)
        others[hits[0], hits[1]] = _LOWEST
        highest = others.amax(dim=1)
        others.sub_(highest.unsqueeze(1)).clamp_(min=2 * math.log(_LEAST)).exp_()
        total = torch.threshold_(others, _LEAST, 0.0).sum(dim=1)
        ctx.save_for_backward(others, total)
        return own - highest - total.log()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        others, total = ctx.saved_tensors
        found = others * -F.hardshrink(grad / total, _LEAST).unsqueeze(1)
        found.diagonal().copy_(grad)
        return found, None, None


def in_batch_log_odds(scores: Tensor, log_q: Tensor, hits: Tensor) -> Tensor:
    """Returns [P], the log odds of the target of each link in the softmax of `in_batch_loss`."""
    odds: Tensor = _LogOdds.apply(scores, log_q, hits)
    return odds


def in_batch_loss(scores: Tensor, log_q: Tensor, hits: Tensor) -> Tensor:
    """Returns the mean cross entropy of finding the target of each link among those of all links of
    a minibatch, by scores corrected for how often a target is there (Yi et al. 2019, section 3).

    >>> batch = next(iter(MacrobatchLinkNeighborLoader(data, [5], neg_sampling="in-batch")))
    >>> source, target = batch.x[batch.edge_label_index]
    >>> loss = in_batch_loss(source @ target.t(), batch.edge_label_log_q, batch.edge_label_hits)

    Args:
        scores: [P, P], row i has those of link i's source with the target of each link.
        log_q: [P], the log of the share of all links that have each link's target.
        hits: [2, H] int64, links (i, j), left out: j's target belongs to i's source, too.
    """
    return F.softplus(-in_batch_log_odds(scores, log_q, hits)).mean()


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
        found = []
        for some in source.split(max(1, _NUMBERS // max(1, target.numel()))):
            rows = self.hidden.with_relu((some.unsqueeze(1) * target).view(-1, source.size(-1)))
            # A product with one output would add in another order in blocks of many rows.
            scores = (rows * self.score.weight[0]).sum(dim=-1) + self.score.bias
            found.append(scores.view(len(some), len(target)))
        return torch.cat(found)
