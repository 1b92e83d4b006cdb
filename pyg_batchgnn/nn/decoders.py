"""Decoders: scores of pairs of nodes from the rows that a model computed for them."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from pyg_batchgnn import ops
from pyg_batchgnn.nn.modules import Linear

#: Numbers that the products of the rows of a block of pairs take together.
_NUMBERS = 1 << 22
#: A score below all others, and a share of a softmax or a factor of a gradient that counts as zero:
#: to work with the least numbers that there are takes many times as long.
_LOWEST, _LEAST = -1e30, 1e-18
#: The most links that are told from each other: with 1,024 products take eight times as long.
_CHUNK = 128


class _LogOdds(torch.autograd.Function):
    """Maps scores [n, C, C] to [n, C], the log odds of the diagonal in the softmax of each row."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, log_q: Tensor, left_out: Tensor) -> Tensor:
        others = scores - log_q.unsqueeze(1)
        own = others.diagonal(dim1=1, dim2=2).clone()
        others.diagonal(dim1=1, dim2=2).fill_(_LOWEST)
        others[tuple(left_out)] = _LOWEST
        highest = others.amax(dim=2)
        others.sub_(highest.unsqueeze(2)).clamp_(min=2 * math.log(_LEAST)).exp_()
        total = torch.threshold_(others, _LEAST, 0.0).sum(dim=2)
        ctx.save_for_backward(others, total)
        return own - highest - total.log()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        others, total = ctx.saved_tensors
        found = others * -F.hardshrink(grad / total, _LEAST).unsqueeze(2)
        found.diagonal(dim1=1, dim2=2).copy_(grad)
        return found, None, None


def in_batch_log_odds(
    source: Tensor, target: Tensor, log_q: Tensor, hits: Tensor, chunk_size: int = _CHUNK
) -> Tensor:
    """Returns [P], the log odds of each link's own target in the softmax of `in_batch_loss`."""
    ops.check_type("chunk_size", chunk_size, int, "give int(chunk_size)")
    if chunk_size < 1:
        raise ValueError(f"chunk_size is {chunk_size}; give the links that are told apart, at least 2")
    if source.dim() != 2 or source.shape != target.shape or log_q.shape != source.shape[:1]:
        shapes = ", ".join(str(list(one.shape)) for one in (source, target, log_q))
        raise ValueError(f"source, target and log_q must be [P, H], [P, H] and [P], got {shapes}")
    if hits.dim() != 2 or hits.size(0) != 2:
        raise ValueError(f"hits must be [2, H], got {list(hits.shape)}; give batch.edge_label_hits")
    ops.check_range("hits", hits.reshape(-1), len(source), "links")
    count = max(1, -(-len(source) // chunk_size))

    def chunks(rows: Tensor, fill: float = 0.0) -> Tensor:
        if missing := -len(rows) % count:
            rows = F.pad(rows, (0, 0) * (rows.dim() - 1) + (0, missing), value=fill)
        return rows.unflatten(0, (-1, count)).transpose(0, 1)

    with torch.autocast(source.device.type, enabled=False):
        rows = [chunks(end.to(torch.promote_types(end.dtype, torch.float32))) for end in (source, target)]
        scores = torch.bmm(rows[0], rows[1].mT)
    same = hits[:, (hits[0] - hits[1]) % count == 0]
    left_out = torch.stack([same[0] % count, *same // count])
    odds: Tensor = _LogOdds.apply(scores, chunks(log_q, -_LOWEST), left_out)
    return odds.t().reshape(-1)[: len(source)]


def in_batch_loss(
    source: Tensor, target: Tensor, log_q: Tensor, hits: Tensor, chunk_size: int = _CHUNK
) -> Tensor:
    """Returns the mean cross entropy of picking each link's own target among the targets of its
    chunk of a minibatch. Dot products are corrected for how frequent a target is (Yi et al. 2019,
    section 3).

    >>> batch = next(iter(MacrobatchLinkNeighborLoader(data, [5], neg_sampling="in-batch")))
    >>> source, target = batch.x[batch.edge_label_index]
    >>> loss = in_batch_loss(source, target, batch.edge_label_log_q, batch.edge_label_hits)

    Args:
        source, target: [P, H], the rows of each link's ends.
        log_q: [P], the log of the share of all links that have each link's target.
        hits: [2, H] int64, links (i, j) to leave out: j's target is a target of i's source, too.
        chunk_size: C, the most links of a chunk. Of n = ceil(P / C) chunks link i is in i modulo n.

    Raises:
        TypeError, ValueError, IndexError: an argument has another type, shape or range.
    """
    return -F.logsigmoid(in_batch_log_odds(source, target, log_q, hits, chunk_size)).mean()


class DotProductDecoder(torch.nn.Module):
    """Scores a pair of rows by their dot product. It has no parameters.

    >>> decoder, rows = DotProductDecoder(), torch.rand(5, 8)
    >>> decoder(rows[:3], rows[2:]).shape, decoder.all_pairs(rows[:2], rows).shape
    (torch.Size([3]), torch.Size([2, 5]))
    """

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Returns [...], the scores of source and target rows [..., H], whose shapes broadcast."""
        return (source * target).sum(dim=-1)

    def all_pairs(self, source: Tensor, target: Tensor) -> Tensor:
        """Returns [n, m], the scores of all sources [n, H] with all targets [m, H] of the same
        dtype, by one matrix product. The package's own products score equal targets equally."""
        return ops.linear([source], [target], out_dtype=target.dtype)


class MLPDecoder(torch.nn.Module):
    """Scores a pair by a perceptron with one hidden layer on the elementwise product of its rows.
    It is called as `DotProductDecoder`. ``columns``: H, of the rows and of the hidden layer."""

    def __init__(self, columns: int) -> None:
        super().__init__()
        self.hidden = Linear(columns, columns)
        self.score = Linear(columns, 1)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        product = source * target
        rows = self.hidden(product.reshape(-1, product.size(-1))).relu()
        scores: Tensor = self.score(rows)
        return scores.view(product.shape[:-1])

    def all_pairs(self, source: Tensor, target: Tensor) -> Tensor:
        """As `DotProductDecoder.all_pairs`, in blocks of sources, which do not change scores."""
        found = []
        for some in source.split(max(1, _NUMBERS // max(1, target.numel()))):
            rows = self.hidden.with_relu((some.unsqueeze(1) * target).view(-1, source.size(-1)))
            # A product with one output would add in another order in blocks of many rows.
            scores = (rows * self.score.weight[0]).sum(dim=-1) + self.score.bias
            found.append(scores.view(len(some), len(target)))
        return torch.cat(found)
