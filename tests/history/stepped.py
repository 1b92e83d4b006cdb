"""Minibatches of the historical mode, made step by step without a loader."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch_geometric.data import Data

from pyg_batchgnn.comm import Communicator
from pyg_batchgnn.data import NODES
from pyg_batchgnn.fetch import FetchGroup
from pyg_batchgnn.history import (
    HaloSampler,
    HistoricalCaches,
    HistoricalMinibatch,
    HistoricalSettings,
    OwnRowFetcher,
)
from pyg_batchgnn.sample import (
    Layout,
    MacrobatchSampler,
    MacrobatchSeeds,
    Minibatch,
    SamplingPlan,
)
from pyg_batchgnn.store import DistFeatureStore, DistGraphStore, graph_from_pyg
from tests.support.partitioned_graphs import Case, part_of, whole

UNBOUNDED = HistoricalSettings(lines=None, life_span=None, push=None, delay=1)


@dataclass
class Rank:
    """A rank that makes historical minibatches.

    Attributes:
        case: the graph.
        plan: the plan of its minibatches.
        comm: the communicator of the graph.
        pushes: that of the caches.
        settings: of the caches.
        steps: the steps of an epoch.
    """

    case: Case
    plan: SamplingPlan
    comm: Communicator
    pushes: Communicator
    settings: HistoricalSettings = UNBOUNDED
    steps: int = 4

    def __post_init__(self) -> None:
        part = part_of(self.case, self.comm.size, self.comm.rank, edge_attributes=False)
        features, graph = DistFeatureStore(part, self.comm), DistGraphStore(part, self.comm)
        self.part, self.data = part, whole(self.case)
        self.caches = HistoricalCaches(graph, self.pushes, self.settings)
        self._sampler = HaloSampler(part, self.caches.halo, self.plan, seed=3)
        self._fetcher = OwnRowFetcher(features, list(features.fields[NODES]), self.caches)

    def epoch(self, epoch: int) -> Iterator[HistoricalMinibatch]:
        """Yields an epoch in which every node of the part is a seed."""
        order = torch.randperm(self.part.num_nodes, generator=torch.Generator().manual_seed(epoch))
        for step, rows in enumerate(order.tensor_split(self.steps)):
            yield self.step(epoch, step, rows)
        self.caches.end_epoch()

    def step(self, epoch: int, step: int, rows: Tensor) -> HistoricalMinibatch:
        """Begins a step with the minibatch of some rows of the part."""
        made = self.minibatch(rows, epoch)
        self.caches.begin_step(epoch, step, made.key)
        return made

    def minibatch(self, rows: Tensor, epoch: int) -> HistoricalMinibatch:
        """Returns the minibatch of some rows of the part."""
        seeds = MacrobatchSeeds(epoch, 0, [self.part.node[rows]], [rows + self.part.first])
        (made,) = self._fetcher.fetch(FetchGroup(self._sampler.sample_macrobatch(seeds))).minibatches
        assert isinstance(made, HistoricalMinibatch)
        return made

    def exact(self, minibatch: Minibatch) -> Minibatch:
        """Returns the minibatch of the same seeds in the exact mode."""
        return exact_minibatch(self.data, self.plan, minibatch)


def exact_minibatch(data: Data, plan: SamplingPlan, like: Minibatch) -> Minibatch:
    """Returns the minibatch of the whole graph that has the seeds of another."""
    sampler = MacrobatchSampler(graph_from_pyg(data), plan, like.seed, layout=Layout.CSC)
    (sampled,) = sampler.sample([like.node[: like.batch_size]], like.epoch)
    return Minibatch.in_place(sampled, {"x": data.x, "y": data.y})
