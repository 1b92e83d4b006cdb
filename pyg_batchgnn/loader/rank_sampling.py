"""The samplers of a graph that is partitioned over ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyg_batchgnn.loader.sampling import SamplingRequest
from pyg_batchgnn.sample import (
    Layout,
    MacrobatchSampler,
    NeighborChoice,
    PartitionedSampler,
    SamplingPlan,
)
from pyg_batchgnn.store import (
    DistFeatureStore,
    DistGraphStore,
    PartTimes,
    TimeOrder,
    WeightSums,
    own_sums,
)

RankSampler = MacrobatchSampler | PartitionedSampler


@dataclass(frozen=True, eq=False)
class RankSamplers:
    """The samplers of one loader on one rank.

    Attributes:
        scheduled: samples the seeds of the schedule.
        any: samples seeds of any rank.
    """

    scheduled: RankSampler
    any: RankSampler


@dataclass(frozen=True, eq=False)
class RankSampling:
    """The rules by which ranks sample a graph together, and the arrays that the rules need.

    Attributes:
        graph: the partitioned graph.
        choice: the rules by which neighbours are chosen.
        plan: the plan that the user asked for.
        times: the times of the graph if sampling is temporal.
        orders: by relation, the time order of the rank's own in-edges, or None.
        weights: by relation, the sums of the weights of the rank's own in-edges, or None.
    """

    graph: DistGraphStore
    choice: NeighborChoice
    plan: SamplingPlan
    times: PartTimes | None = None
    orders: Sequence[TimeOrder | None] = ()
    weights: Sequence[WeightSums | None] = ()

    @classmethod
    def of(cls, features: DistFeatureStore, graph: DistGraphStore, request: SamplingRequest) -> RankSampling:
        """Reads what the rules need from the stores. Collective.

        Raises:
            NotImplementedError: times or weights of a graph whose topology is on every rank.
            TypeError, ValueError: the rules do not fit the graph.
        """
        choice, schema = request.choice, graph.part.schema
        plan = choice.plan(request.num_neighbors, request.replace, schema)
        if graph.topology is not None and (choice.time_attr or choice.weight_attr):
            raise NotImplementedError(
                f"time_attr={choice.time_attr!r} and weight_attr={choice.weight_attr!r} are not supported "
                f"with replicate_topology: the times and weights of edges lie with their owners; make "
                f"DistGraphStore without a topology"
            )
        times: PartTimes | None = None
        orders: Sequence[TimeOrder | None] = (None,) * schema.num_relations
        if choice.time_attr is not None:
            times = PartTimes.of(features, choice.time_attr)
            orders = times.orders(choice.sortedness)
        weights = () if choice.weight_attr is None else own_sums(features, choice.weight_attr, orders)
        return cls(graph, choice, plan, times, orders, weights)

    def samplers(
        self, plan: SamplingPlan, seed: int, threads: int | None, layout: Layout, *, own: bool
    ) -> RankSamplers:
        """Makes the samplers.

        Args:
            plan: the plan that is sampled by.
            seed: the key of every random choice.
            threads: at most this many threads work; torch's number if None.
            layout: the form of the edges.
            own: True if every seed of the schedule is a node of its rank's own part.
        """
        if self.graph.topology is not None:
            whole = MacrobatchSampler(self.graph.topology.graph, plan, seed, threads, layout)
            return RankSamplers(whole, whole)
        sampler = PartitionedSampler(
            self.graph.part,
            self.graph.comm,
            plan,
            seed,
            threads,
            layout,
            times=self.orders,
            weights=self.weights,
            seeds_are_own=own,
        )
        return RankSamplers(sampler, sampler.of_any_seeds())
