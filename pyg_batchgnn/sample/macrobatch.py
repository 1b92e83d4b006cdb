"""Sampling the minibatches of a macrobatch together (BatchGNN, section 3 and appendix D.1).

`MacrobatchSampler` samples by fanouts, `HGTSampler` by budgets (Hu, Dong, Wang and Sun 2020,
section 4.1).
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.ops import InEdges
from pyg_batchgnn.sample.sampling_plan import HGTPlan, SamplingPlan, Subgraph, as_integer, refuse_times
from pyg_batchgnn.sample.seeds import Seeds, checked_seeds, gather_seeds
from pyg_batchgnn.store import CscGraph, TimeOrder, TypedGraph, WeightSums
from pyg_batchgnn.types import ByNumber, Layout, SampledEdges, SampledMinibatch, SampledNodes, Schema

if TYPE_CHECKING:
    from pyg_batchgnn.disk import ReadCounters


def kernel_arrays(
    schema: Schema,
    num_nodes: Sequence[int],
    relations: Sequence[InEdges],
    times: Sequence[TimeOrder | None],
    weights: Sequence[WeightSums | None],
    source_ids: Sequence[Tensor] = (),
) -> ops.SampledGraph:
    none, no_sums = torch.empty(0, dtype=torch.int64), torch.empty(0, dtype=torch.float64)
    no_weights = no_sums, no_sums, none
    for what, given in (("time orders", times), ("lists of weights", weights)):
        if len(given) not in (0, schema.num_relations):
            raise ValueError(
                f"{len(given)} {what} came for {schema.num_relations} relations; give one or None for each"
            )
    return ops.SampledGraph(
        list(num_nodes),
        [one.indptr for one in relations],
        [one.indices for one in relations],
        [none if one.edge_ids is None else one.edge_ids for one in relations],
        list(schema.source_types),
        list(schema.target_types),
        [ops.to_signed(ops.names_key(names)) for names in schema.relations],
        [ops.to_signed(ops.names_key(names[:1])) for names in schema.relations],
        [array for one in times for array in ((none, none) if one is None else one.arrays)],
        [array for one in weights for array in (no_weights if one is None else one.arrays)],
        list(source_ids),
    )


@dataclass(frozen=True, eq=False)
class MacrobatchSeeds:
    """The seed nodes of all minibatches of a macrobatch."""

    epoch: int  # any integer, taken modulo 2**64
    number: int
    # The seeds of each minibatch by original id; of one node type [S_b] int64 node ids do.
    original: Sequence[Tensor | Seeds]
    # [S_b] int64 ids of the nodes in the partition, by minibatch; None for a whole graph.
    internal: Sequence[Tensor] | None = None

    @property
    def nodes(self) -> list[Tensor]:
        """The original ids of the seeds of each minibatch, [S_b] int64, with one node type."""
        return [one.nodes[0] if isinstance(one, Seeds) else one for one in self.original]


class MinibatchPlan(Protocol):
    """What a sampler picks in each hop: `SamplingPlan`, or `HGTPlan`."""

    @property
    def num_hops(self) -> int: ...

    @property
    def edge_ids(self) -> bool: ...

    @property
    def subgraph(self) -> Subgraph: ...

    def settings(self) -> dict[str, Any]:
        """Returns the plan for JSON."""

    def summary(self) -> str:
        """Returns the fanouts, or nodes per hop, as a text such as ``fanouts=[10, 5]``."""


class Sampler(Protocol):
    """Samples all minibatches of a macrobatch together, in one process or over ranks."""

    seed: int  # the key of every random choice
    threads: int | None  # at most this many threads work; torch's number if None

    @property
    def plan(self) -> MinibatchPlan: ...

    def sample_macrobatch(self, seeds: MacrobatchSeeds) -> list[SampledMinibatch]:
        """Samples one minibatch for each list of seed nodes; collective over ranks."""


class Unpacker:
    """Makes minibatches from the arrays of a sampling kernel. Types and relations without nodes or
    edges share empty tensors."""

    def __init__(self, schema: Schema, plan: MinibatchPlan, layout: Layout, disjoint: bool) -> None:
        self.schema = schema
        self.plan = plan
        self.layout = layout
        self.disjoint = disjoint
        none = torch.empty(0, dtype=torch.int64)
        self._no_nodes = SampledNodes(none, [0] * (plan.num_hops + 1), none if disjoint else None)
        ends = torch.zeros(1, dtype=torch.int64)
        coo = torch.empty(2, 0, dtype=torch.int64) if layout is Layout.COO else None
        sources = torch.empty(0, dtype=torch.int32) if coo is None else coo[0]
        per_hop = [] if plan.subgraph is Subgraph.INDUCED else [0] * plan.num_hops
        self._no_edges = SampledEdges(ends, sources, none if plan.edge_ids else None, per_hop, coo)

    def minibatches(
        self, arrays: Sequence[Tensor], counts: Tensor, seeds: Sequence[Seeds], seed: int, epoch: int
    ) -> list[SampledMinibatch]:
        """Returns the minibatches. ``arrays, counts``: as `ops.sample` returns them."""
        following = iter(arrays)
        return [
            self._minibatch(following, per_hop, own, seed, epoch)
            for per_hop, own in zip(counts.tolist(), seeds, strict=True)
        ]

    def _minibatch(
        self, arrays: Iterator[Tensor], counts: list[int], seeds: Seeds, seed: int, epoch: int
    ) -> SampledMinibatch:
        schema, hops = self.schema, self.plan.num_hops
        first = schema.num_types * (hops + 1)
        nodes: dict[int, SampledNodes] = {}
        into: list[int] = []
        # A loop over all types would take longer than all the rest.
        for number in dict.fromkeys(at // (hops + 1) for at in compress(range(first), counts)):
            per_hop = counts[number * (hops + 1) : (number + 1) * (hops + 1)]
            nodes[number] = SampledNodes(next(arrays), per_hop, next(arrays) if self.disjoint else None)
            if self.plan.subgraph is Subgraph.INDUCED or any(per_hop[:-1]):
                into.extend(schema.relations_into[number])
        edges = {
            number: self._edges(arrays, counts[first + number * hops : first + (number + 1) * hops])
            for number in sorted(into)
        }
        return SampledMinibatch(
            schema,
            ByNumber(schema.num_types, nodes, self._no_nodes),
            ByNumber(schema.num_relations, edges, self._no_edges),
            seeds.key,
            seed=seed,
            epoch=epoch,
            seed_types=seeds.types,
            seed_time=seeds.time,
        )

    def _edges(self, arrays: Iterator[Tensor], per_hop: list[int]) -> SampledEdges:
        indptr, edges = next(arrays), next(arrays)
        edge = next(arrays) if self.plan.edge_ids else None
        if self.plan.subgraph is Subgraph.INDUCED:
            per_hop = []
        if self.layout is Layout.CSC:
            return SampledEdges(indptr, edges, edge, per_hop)
        return SampledEdges(indptr, edges[0], edge, per_hop, edges)


class _GraphSampler(ABC):
    def __init__(
        self,
        graph: CscGraph | TypedGraph,
        plan: Any,
        seed: int,
        threads: int | None,
        layout: Layout,
        times: Sequence[TimeOrder | None] = (),
        weights: Sequence[WeightSums | None] = (),
    ) -> None:
        count = as_integer(1 if threads is None else threads) or 0
        if as_integer(seed) is None or not 1 <= count < 1 << 31:
            raise ValueError(f"seed must be an integer, threads one from 1, got {seed!r} and {threads!r}")
        remedy = "graph_from_pyg(data) makes one of a Data, typed_graph_from_pyg(data) one of a HeteroData"
        ops.check_type("graph", graph, (CscGraph, TypedGraph), remedy)
        self.graph, self.seed, self.threads = graph, int(seed), threads
        self.typed = graph.typed if isinstance(graph, CscGraph) else graph
        self.times, self.weights, self.schema = times, weights, self.typed.schema
        self._timed = any(one is not None for one in times)
        self._arrays = kernel_arrays(self.schema, self.typed.num_nodes, self.typed.relations, times, weights)
        self._take(plan, layout)

    def _take(self, plan: Any, layout: Layout) -> None:
        if self._timed and getattr(plan, "labor", None) is not None:
            refuse_times(plan.labor)
        self.plan, self.layout = plan, layout
        self._disjoint = self._timed or getattr(plan, "disjoint", False)
        self._rules = plan.rules(self.schema, layout is Layout.COO)
        self._unpacker = Unpacker(self.schema, plan, layout, self._disjoint)

    def with_plan(self, plan: Any, layout: Layout) -> Any:
        other = copy.copy(self)
        other._take(plan, layout)
        return other

    def sample(self, seed_lists: Sequence[Tensor | Seeds], epoch: int) -> list[SampledMinibatch]:
        """Samples one minibatch for each list of seeds: [S] int64 node ids, or `Seeds`."""
        seeds = [checked_seeds(self.typed, number, one) for number, one in enumerate(seed_lists)]
        if not seeds:
            return []
        gathered = gather_seeds(seeds, self._disjoint, self._timed, getattr(self.plan, "freeze", None))
        with ops.thread_limit(self.threads):
            arrays, counts = self._sample(gathered, epoch)
        return self._unpacker.minibatches(arrays, counts, seeds, self.seed, epoch)

    def sample_macrobatch(self, seeds: MacrobatchSeeds) -> list[SampledMinibatch]:
        return self.sample(seeds.original, seeds.epoch)

    @abstractmethod
    def _sample(self, seeds: ops.SampledSeeds, epoch: int) -> tuple[Sequence[Tensor], Tensor]:
        """Calls the kernel: returns its arrays, and the counts of each minibatch in them."""


class MacrobatchSampler(_GraphSampler):
    """Samples minibatches, each a pure function of (graph, plan, seed, epoch, its seeds).

    >>> graph = CscGraph.from_edge_index(data.edge_index, data.num_nodes)
    >>> sampler = MacrobatchSampler(graph, SamplingPlan((10, 5)), seed=1)
    >>> first, second = sampler.sample([torch.arange(8), torch.arange(8, 12)], epoch=0)
    >>> first.nodes_per_hop[0], second.nodes_per_hop[0]
    (8, 4)

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
        ops.check_type("plan", plan, SamplingPlan, "make one with SamplingPlan(fanouts)")
        super().__init__(graph, plan, seed, threads, layout, times, weights)

    def take_counters(self) -> ReadCounters | None:
        """Returns the counts of reads from files since the last call; None for edges in memory."""
        return None

    def reading_bytes(self, minibatch: SampledMinibatch) -> int:  # noqa: ARG002
        """Returns the scratch bytes for reading such a minibatch's edges from files."""
        return 0

    def _sample(self, seeds: ops.SampledSeeds, epoch: int) -> tuple[Sequence[Tensor], Tensor]:
        return ops.sample(self._arrays, seeds, self._rules, self.seed, epoch)


class HGTSampler(_GraphSampler):
    """Samples as `HGTLoader` does; each minibatch is a pure function of (graph, plan, seed, epoch,
    its seeds).

    In every hop a number of nodes per type is drawn among the neighbours of all sampled nodes. A
    neighbour with more connections to these is more likely (docs/concepts/sampling-contract.md). A
    minibatch has all edges between its nodes.

    Args:
        plan: the numbers of nodes by type and hop.
        graph, seed, threads, layout: as in `MacrobatchSampler`, and so are the errors.
    """

    def __init__(
        self,
        graph: CscGraph | TypedGraph,
        plan: HGTPlan,
        seed: int = 0,
        threads: int | None = None,
        layout: Layout = Layout.COO,
    ) -> None:
        ops.check_type("plan", plan, HGTPlan, "make one with HGTPlan.from_pyg(num_samples, node_types)")
        super().__init__(graph, plan, seed, threads, layout)

    def _sample(self, seeds: ops.SampledSeeds, epoch: int) -> tuple[Sequence[Tensor], Tensor]:
        if seeds.excluded is not None:
            raise ValueError("sampling by budgets does not exclude pairs of nodes; use MacrobatchSampler")
        return ops.sample_by_budgets(self._arrays, seeds, self._rules, self.seed, epoch)
