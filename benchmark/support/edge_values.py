"""Times and weights of a graph's edges, and links to predict, the same in every process.

They are drawn when they are asked for: a graph folder does not hold them.
"""

from __future__ import annotations

import torch
from torch import Tensor

from benchmark.support.graphs import GraphFolder

#: Times are below this.
LATEST = 1_000_000_000


def edge_times(graph: GraphFolder, seed: int) -> Tensor:
    """Returns a time for each edge, [E] int64, uniform in [0, `LATEST`).

    They ascend in each adjacency list, so that every loader can take the edges as sorted. Sums of
    exponential gaps, divided by the last sum, are uniform numbers in ascending order.
    """
    generator = torch.Generator().manual_seed(seed)
    degree = graph.colptr.diff()
    gaps = torch.empty(graph.row.numel(), dtype=torch.float64).exponential_(generator=generator)
    last = torch.empty(degree.numel(), dtype=torch.float64).exponential_(generator=generator)
    sums = gaps.cumsum_(0)
    ends = torch.cat([sums.new_zeros(1), sums])[graph.colptr]
    whole = (ends[1:] - ends[:-1] + last).repeat_interleave(degree, output_size=sums.numel())
    sums -= ends[:-1].repeat_interleave(degree, output_size=sums.numel())
    return sums.div_(whole).mul_(LATEST).long()


def edge_weights(graph: GraphFolder, seed: int) -> Tensor:
    """Returns a weight for each edge, [E] float32, uniform in (0, 1]."""
    generator = torch.Generator().manual_seed(seed + 1)
    return 1 - torch.rand(graph.row.numel(), generator=generator)


def seed_times(count: int, seed: int) -> Tensor:
    """Returns a time for each seed, [count] int64, uniform in the later half of all times."""
    generator = torch.Generator().manual_seed(seed + 2)
    return torch.randint(LATEST // 2, LATEST, (count,), generator=generator)


def links(graph: GraphFolder, count: int, seed: int) -> Tensor:
    """Returns edges of the graph to predict, [2, count] int64, sources above targets."""
    generator = torch.Generator().manual_seed(seed + 3)
    chosen = torch.randint(graph.row.numel(), (count,), generator=generator)
    return torch.stack([graph.row[chosen], torch.searchsorted(graph.colptr, chosen, right=True) - 1])
