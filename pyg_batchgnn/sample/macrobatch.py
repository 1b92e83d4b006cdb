"""Sampling the minibatches of a macrobatch together (BatchGNN, section 3 and appendix D.1)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.sample.gather_seeds import checked_seeds, gather_seeds
from pyg_batchgnn.sample.kernel_graph import kernel_graph, typed_of
from pyg_batchgnn.sample.plan import SamplingPlan
from pyg_batchgnn.sample.sampled import SampledMinibatch
from pyg_batchgnn.sample.sampled_parts import Layout
from pyg_batchgnn.sample.sampler import MacrobatchSeeds
from pyg_batchgnn.sample.seeds import Seeds
from pyg_batchgnn.sample.unpack import Unpacker
from pyg_batchgnn.store import CscGraph, TimeOrder, TypedGraph, WeightSums


class MacrobatchSampler:
    """Samples minibatches, each a pure function of (graph, plan, seed, epoch, its seeds).

    Args:
        graph: the whole graph by destination.
        plan: fanouts and the rules of picking.
        seed: any integer, taken modulo 2**64.
        threads: at most this many threads work, on different minibatches; torch's number if None.
        layout: form of the edges.
        times: by relation, the order of its edges by time, or None where times do not matter. With
            any times, sampling is disjoint and every seed needs a time.
        weights: by relation, the weights of its edges, or None where sampling is uniform. They must
            follow the time order of the relation if it has one.

    Raises:
        TypeError: the graph or the plan is of another type.
        ValueError: the number of threads, times or weights is wrong, or the plan names unknown
            relations.
    """

    def __init__(
        self,
        graph: CscGraph | TypedGraph,
        plan: SamplingPlan,
        seed: int = 0,
        threads: int | None = None,
        layout: Layout = Layout.COO,
        *,
        times: Sequence[TimeOrder | None] = (),
        weights: Sequence[WeightSums | None] = (),
    ) -> None:
        typed = typed_of(graph)
        ops.check_type("plan", plan, SamplingPlan, "make one with SamplingPlan(fanouts)")
        if threads is not None and threads < 1:
            raise ValueError(f"threads must be at least 1, got {threads}")
        self.graph = graph
        self.plan = plan
        self.seed = seed
        self.threads = threads
        self.layout = layout
        self.times = times
        self.weights = weights
        self.typed = typed
        self.schema = typed.schema
        self._timed = any(one is not None for one in times)
        self._disjoint = plan.disjoint or self._timed
        self._arrays = kernel_graph(typed, times, weights)
        self._rules = plan.rules(typed.schema, layout is Layout.COO)
        self._unpacker = Unpacker(typed.schema, plan, layout, self._disjoint)

    def with_plan(self, plan: SamplingPlan, layout: Layout) -> MacrobatchSampler:
        """Returns a sampler of the same graph with another plan and layout."""
        return MacrobatchSampler(
            self.graph, plan, self.seed, self.threads, layout, times=self.times, weights=self.weights
        )

    def sample(
        self, seed_lists: Sequence[Tensor | Seeds], epoch: int, threads: int | None = None
    ) -> list[SampledMinibatch]:
        """Samples one minibatch for each list of seeds.

        Args:
            seed_lists: the seeds of each minibatch; in a graph of one node type [S_b] int64 node
                ids do. Duplicates and empty lists are allowed.
            epoch: any integer, taken modulo 2**64.
            threads: overrides the sampler's own number for this call.

        Raises:
            TypeError, ValueError, IndexError: seeds of another dtype or shape, or outside the
                graph.
        """
        seeds = [checked_seeds(self.typed, number, one) for number, one in enumerate(seed_lists)]
        if not seeds:
            return []
        arrays, counts = ops.sample(
            self._arrays,
            gather_seeds(seeds, self._disjoint, self._timed),
            self._rules,
            self.seed,
            epoch,
            threads or self.threads or torch.get_num_threads(),
        )
        return self._unpacker.minibatches(arrays, counts, seeds, self.seed, epoch)

    def sample_macrobatch(self, seeds: MacrobatchSeeds, threads: int | None = None) -> list[SampledMinibatch]:
        """Samples one minibatch for each list of seeds; see `Sampler`."""
        return self.sample(seeds.original, seeds.epoch, threads)
