"""Sampling the minibatches of a macrobatch together (BatchGNN, section 3 and appendix D.1)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.sample.gather_seeds import gather_seeds
from pyg_batchgnn.sample.plan import SamplingPlan
from pyg_batchgnn.sample.sampled import Layout, SampledMinibatch
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
        ops.check_type(
            "graph",
            graph,
            (CscGraph, TypedGraph),
            "graph_from_pyg(data) makes one of a Data, typed_graph_from_pyg(data) one of a HeteroData",
        )
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
        typed = graph.typed if isinstance(graph, CscGraph) else graph
        self.typed = typed
        self.schema = typed.schema
        self._timed = any(one is not None for one in times)
        self._disjoint = plan.disjoint or self._timed
        self._arrays = _arrays(typed, times, weights)
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
        seeds = [self._checked(number, one) for number, one in enumerate(seed_lists)]
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

    def _checked(self, number: int, seeds: Tensor | Seeds) -> Seeds:
        name = f"seeds of minibatch {number}"
        if not isinstance(seeds, Seeds):
            if self.schema.num_types != 1:
                raise TypeError(
                    f"{name}: the graph has the node types {list(self.schema.node_types)}; give Seeds, for "
                    f"instance Seeds.of(schema, {{{self.schema.node_types[0]!r}: ids}})"
                )
            ids = seeds.contiguous() if isinstance(seeds, Tensor) else seeds
            ops.check_vector(name, ids, (torch.int64,))
            seeds = Seeds((ids,), (0,), ops.minibatch_key(ids))
        for type_number in seeds.types:
            ops.check_range(name, seeds.nodes[type_number], self.typed.num_nodes[type_number])
        return seeds


def _arrays(
    graph: TypedGraph, times: Sequence[TimeOrder | None], weights: Sequence[WeightSums | None]
) -> ops.SampledGraph:
    schema, none = graph.schema, torch.empty(0, dtype=torch.int64)
    no_weights = torch.empty(0, dtype=torch.float64)
    for what, given in (("time orders", times), ("lists of weights", weights)):
        if len(given) not in (0, schema.num_relations):
            raise ValueError(
                f"{len(given)} {what} came for {schema.num_relations} relations; give one or None for each"
            )
    return ops.SampledGraph(
        list(graph.num_nodes),
        [one.indptr for one in graph.relations],
        [one.indices for one in graph.relations],
        [none if one.edge_ids is None else one.edge_ids for one in graph.relations],
        list(schema.source_types),
        list(schema.target_types),
        [ops.to_signed(ops.names_key(names)) for names in schema.relations],
        [array for one in times for array in ((none, none) if one is None else one.arrays)],
        [
            array
            for one in weights
            for array in ((no_weights, no_weights, none) if one is None else one.arrays)
        ],
    )
