"""The macrobatch sampler as a PyG `BaseSampler`."""

from __future__ import annotations

import dataclasses
from typing import Any

from torch import Tensor
from torch_geometric.sampler import BaseSampler, NodeSamplerInput, SamplerOutput

from pyg_batchgnn.sample.macrobatch import MacrobatchSampler
from pyg_batchgnn.sample.plan import Fanout, SamplingPlan
from pyg_batchgnn.sample.pyg_output import PygForm, PygOutput
from pyg_batchgnn.sample.sampled import Layout
from pyg_batchgnn.store import CscGraph


class PygNeighborSampler(BaseSampler):
    """Samples for ``NodeLoader(node_sampler=...)`` and ``NeighborLoader(neighbor_sampler=...)``.

    Args:
        graph: the whole graph by destination; the loader's ``data`` must be the same graph.
        num_neighbors: fanouts, one per hop; -1 picks all neighbours.
        replace: True if a neighbour may be picked more than once.
        seed: the key of every random choice.
        threads: at most this many threads work; torch's number if None.

    Samples also depend on ``epoch``, which PyG's loaders do not know of. Assign it between epochs,
    or the same seed nodes get the same neighbours again.
    """

    def __init__(
        self,
        graph: CscGraph,
        num_neighbors: Any,
        replace: bool = False,
        seed: int = 0,
        threads: int | None = None,
    ) -> None:
        self.epoch = 0
        plan = SamplingPlan.from_pyg(num_neighbors, replace)
        self.macrobatch = MacrobatchSampler(graph, plan, seed, threads, Layout.COO)

    @property
    def num_neighbors(self) -> list[Fanout]:
        """The fanouts by hop. They do not change: make another sampler for other fanouts."""
        return list(self.macrobatch.plan.fanouts)

    def sample_from_nodes(self, inputs: NodeSamplerInput, **_kwargs: Any) -> PygOutput:
        """Samples one minibatch around ``inputs.node``."""
        if inputs.time is not None:
            raise NotImplementedError("temporal sampling (input_time) is not supported yet")
        (minibatch,) = self.macrobatch.sample([inputs.node.long().contiguous()], self.epoch)
        return PygForm().output(dataclasses.replace(minibatch, input_id=inputs.input_id))

    def sample_from_edges(self, *_args: Any, **_kwargs: Any) -> SamplerOutput:
        """Raises NotImplementedError: link sampling is not supported yet."""
        raise NotImplementedError("sampling around edges (LinkLoader) is not supported yet; use a NodeLoader")

    @property
    def edge_permutation(self) -> Tensor | None:
        """The permutation of edge ids: None, as a sample carries input edge ids already."""
        return None
