"""Many draws of neighbours from the package's sampler, over seeds, epochs and nodes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from pyg_batchgnn.sample import MacrobatchSampler, Replacement, SamplingPlan
from pyg_batchgnn.store import CscGraph
from tests.support.chi_square import Ints

MARKS = 8192  # isolated nodes, one of which in a seed list makes it a minibatch of its own


@dataclass(frozen=True)
class Hubs:
    """A graph of `count` nodes of in-degree `degree`, MARKS isolated nodes and the sources."""

    degree: int
    count: int

    def graph(self) -> CscGraph:
        num_nodes = self.count + MARKS + self.degree
        indptr = torch.full((num_nodes + 1,), self.count * self.degree)
        indptr[: self.count] = torch.arange(self.count) * self.degree
        sources = torch.arange(self.count + MARKS, num_nodes, dtype=torch.int32)
        return CscGraph.from_csc(indptr, sources.repeat(self.count))

    def seeds(self, mark: int) -> torch.Tensor:
        """All hubs, closed by one isolated node: [count + 1]."""
        return torch.cat([torch.arange(self.count), torch.tensor([self.count + mark])])


def picks_table(
    hubs: Hubs, fanout: int, replacement: Replacement, seeds: range, epochs: range, marks: range
) -> Ints:
    """Positions picked at one hop: [seeds, epochs, marks, hubs, picks]."""
    graph = hubs.graph()
    plan = SamplingPlan((fanout,), replacement)
    seed_lists = [hubs.seeds(mark) for mark in marks]
    edges = []
    for seed in seeds:
        sampler = MacrobatchSampler(graph, plan, seed=seed)
        for epoch in epochs:
            for batch in sampler.sample(seed_lists, epoch):
                assert batch.edge is not None
                edges.append(batch.edge)
    shape = (len(seeds), len(epochs), len(marks), hubs.count, -1)
    table: Ints = torch.stack(edges).numpy().reshape(shape) - np.arange(hubs.count)[:, None] * hubs.degree
    assert table.min() >= 0 and table.max() < hubs.degree
    return table


def draw_picks(degree: int, fanout: int, replacement: Replacement, draws: int) -> Ints:
    """Returns about `draws` draws of a node's neighbours [draws, picks], over all key parts."""
    count = 4 if degree > 100_000 else 16
    marks = max(1, round(draws / (count * 5 * 4)))
    table = picks_table(Hubs(degree, count), fanout, replacement, range(100, 105), range(4), range(marks))
    return table.reshape(-1, table.shape[-1])
