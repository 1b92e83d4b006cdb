"""Sampling minibatches by budgets (HGSampling; Hu, Dong, Wang and Sun 2020, section 4.1)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.sample.gather_seeds import checked_seeds, gather_seeds
from pyg_batchgnn.sample.hgt_plan import HGTPlan
from pyg_batchgnn.sample.kernel_graph import kernel_graph, typed_of
from pyg_batchgnn.sample.sampled import SampledMinibatch
from pyg_batchgnn.sample.sampled_parts import Layout
from pyg_batchgnn.sample.sampler import MacrobatchSeeds
from pyg_batchgnn.sample.seeds import Seeds
from pyg_batchgnn.sample.unpack import Unpacker
from pyg_batchgnn.store import CscGraph, TypedGraph


class HGTSampler:
    """Samples minibatches, each a pure function of (graph, plan, seed, epoch, its seeds).

    Every hop samples a number of nodes of each type among the neighbours of those that are sampled,
    with a probability that grows with their connections. A minibatch has all edges between its
    nodes. docs/concepts/sampling-contract.md has the law.

    Args:
        graph: the whole graph by destination.
        plan: the number of nodes by type and hop.
        seed: any integer, taken modulo 2**64.
        threads: at most this many threads work, on different minibatches; torch's number if None.
        layout: form of the edges.

    Raises:
        TypeError: the graph or the plan is of another type.
        ValueError: the number of threads is wrong, or the plan is for other node types.
    """

    def __init__(
        self,
        graph: CscGraph | TypedGraph,
        plan: HGTPlan,
        seed: int = 0,
        threads: int | None = None,
        layout: Layout = Layout.COO,
    ) -> None:
        typed = typed_of(graph)
        ops.check_type("plan", plan, HGTPlan, "make one with HGTPlan.from_pyg(num_samples, node_types)")
        if threads is not None and threads < 1:
            raise ValueError(f"threads must be at least 1, got {threads}")
        self.graph, self.plan = graph, plan
        self.seed, self.threads, self.layout = seed, threads, layout
        self.typed, self.schema = typed, typed.schema
        self._arrays = kernel_graph(typed)
        self._rules = plan.rules(typed.schema, layout is Layout.COO)
        self._unpacker = Unpacker(typed.schema, plan, layout, disjoint=False)

    def with_plan(self, plan: HGTPlan, layout: Layout) -> HGTSampler:
        """Returns a sampler of the same graph with another plan and layout."""
        return HGTSampler(self.graph, plan, self.seed, self.threads, layout)

    def sample(
        self, seed_lists: Sequence[Tensor | Seeds], epoch: int, threads: int | None = None
    ) -> list[SampledMinibatch]:
        """Samples one minibatch for each list of seeds; see `MacrobatchSampler.sample`.

        Raises:
            TypeError, ValueError, IndexError: seeds of another dtype or shape, outside the graph,
                or with pairs to be excluded.
        """
        seeds = [checked_seeds(self.typed, number, one) for number, one in enumerate(seed_lists)]
        if any(one.excluded for one in seeds):
            raise ValueError("sampling by budgets does not exclude pairs of nodes; use MacrobatchSampler")
        if not seeds:
            return []
        arrays, counts = ops.sample_by_budgets(
            self._arrays,
            gather_seeds(seeds, disjoint=False, timed=False),
            self._rules,
            self.seed,
            epoch,
            threads or self.threads or torch.get_num_threads(),
        )
        return self._unpacker.minibatches(arrays, counts, seeds, self.seed, epoch)

    def sample_macrobatch(self, seeds: MacrobatchSeeds, threads: int | None = None) -> list[SampledMinibatch]:
        """Samples one minibatch for each list of seeds; see `Sampler`."""
        return self.sample(seeds.original, seeds.epoch, threads)
