"""Sampling the minibatches of a macrobatch together (BatchGNN, section 3 and appendix D.1)."""

from __future__ import annotations

import enum
from collections.abc import Sequence

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.data import HOMOGENEOUS
from pyg_batchgnn.sample.plan import SamplingPlan
from pyg_batchgnn.sample.sampled import SampledEdges, SampledMinibatch, SampledNodes
from pyg_batchgnn.sample.sampler import MacrobatchSeeds
from pyg_batchgnn.store import CscGraph


class Layout(enum.Enum):
    """The form of a minibatch's edges."""

    CSC = "csc"  # int32 sources by destination: what native layers read
    COO = "coo"  # int64 sources and destinations as well: what PyG's edge_index is


class MacrobatchSampler:
    """Samples minibatches, each a pure function of (graph, plan, seed, epoch, its seed nodes).

    Args:
        graph: the whole graph by destination.
        plan: fanouts, replacement and whether edge ids are wanted.
        seed: any integer, taken modulo 2**64.
        threads: at most this many threads work, on different minibatches; torch's number if None.
        layout: form of the edges.
    """

    def __init__(
        self,
        graph: CscGraph,
        plan: SamplingPlan,
        seed: int = 0,
        threads: int | None = None,
        layout: Layout = Layout.COO,
    ) -> None:
        if threads is not None and threads < 1:
            raise ValueError(f"threads must be at least 1, got {threads}")
        self.graph = graph
        self.plan = plan
        self.seed = seed
        self.threads = threads
        self.layout = layout

    def with_plan(self, plan: SamplingPlan, layout: Layout) -> MacrobatchSampler:
        """Returns a sampler of the same graph with another plan and layout."""
        return MacrobatchSampler(self.graph, plan, self.seed, self.threads, layout)

    def sample(
        self, seed_lists: Sequence[Tensor], epoch: int, threads: int | None = None
    ) -> list[SampledMinibatch]:
        """Samples one minibatch for each list of seed nodes.

        Args:
            seed_lists: [S_b] int64 node ids each; duplicates and empty lists are allowed.
            epoch: any integer, taken modulo 2**64.
            threads: overrides the sampler's own number for this call.

        Raises:
            TypeError, ValueError, IndexError: seeds of another dtype or shape, or outside the
                graph.
        """
        seed_lists = [seeds.contiguous() if isinstance(seeds, Tensor) else seeds for seeds in seed_lists]
        for number, seeds in enumerate(seed_lists):
            ops.check_vector(f"seeds of minibatch {number}", seeds, (torch.int64,))
            ops.check_range(f"seeds of minibatch {number}", seeds, self.graph.num_nodes)
        if not seed_lists:
            return []
        sizes = torch.tensor([0, *(seeds.numel() for seeds in seed_lists)])
        arrays, counts = torch.ops.pyg_batchgnn.sample(
            self.graph.indptr,
            self.graph.indices,
            self.graph.edge_ids,
            torch.cat(list(seed_lists)),
            sizes.cumsum(0),
            list(self.plan.fanouts),
            self.plan.replacement.value == "with",
            self.plan.edge_ids,
            self.layout is Layout.COO,
            ops.to_signed(self.seed),
            ops.to_signed(epoch),
            threads or self.threads or torch.get_num_threads(),
        )
        keys = [ops.minibatch_key(seeds) for seeds in seed_lists]
        return as_minibatches(arrays, counts, keys, self.plan, self.layout, self.seed, epoch)

    def sample_macrobatch(self, seeds: MacrobatchSeeds, threads: int | None = None) -> list[SampledMinibatch]:
        """Samples one minibatch for each list of seed nodes; see `Sampler`."""
        return self.sample(seeds.original, seeds.epoch, threads)


def as_minibatches(
    arrays: Sequence[Tensor],
    counts: Tensor,
    keys: Sequence[int],
    plan: SamplingPlan,
    layout: Layout,
    seed: int,
    epoch: int,
) -> list[SampledMinibatch]:
    """Returns what a sampling operator returned as minibatches.

    Args:
        arrays: the four arrays of each minibatch: nodes, indptr, edges and edge ids.
        counts: [B, 2 * hops + 1] int64, the nodes and then the edges of each minibatch by hop.
        keys: the digest of each minibatch's seeds.
        plan: the plan that they were sampled by.
        layout: the form of the edges.
        seed: the seed that they were sampled with.
        epoch: the epoch that they were sampled in.
    """
    split = plan.num_hops + 1
    minibatches = []
    for number, (key, per_hop) in enumerate(zip(keys, counts.tolist(), strict=True)):
        node, indptr, edges, edge = arrays[4 * number : 4 * number + 4]
        coo = edges if layout is Layout.COO else None
        minibatches.append(
            SampledMinibatch(
                HOMOGENEOUS,
                (SampledNodes(node, per_hop[:split]),),
                (
                    SampledEdges(
                        indptr,
                        edges if coo is None else coo[0],
                        edge if plan.edge_ids else None,
                        per_hop[split:],
                        coo,
                    ),
                ),
                key,
                seed=seed,
                epoch=epoch,
            )
        )
    return minibatches
