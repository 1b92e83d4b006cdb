"""The samplers of a graph that is partitioned over ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from pyg_batchgnn.history import HaloSampler
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
    Sortedness,
    TimeOrder,
    Times,
    TypedGraph,
    WeightSums,
    own_sums,
    replicate_attribute,
    sum_weights,
)

RankSampler: TypeAlias = MacrobatchSampler | PartitionedSampler | HaloSampler
#: The times of a rank's part, or of the whole graph if the rank has the whole topology.
RankTimes: TypeAlias = PartTimes | Times


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
        orders: by relation, the time order of the edges that the rank samples, or None: of its own
            in-edges, or of all edges if it has the whole topology.
        weights: by relation, the sums of the weights of these edges, or None.
    """

    graph: DistGraphStore
    choice: NeighborChoice
    plan: SamplingPlan
    times: RankTimes | None = None
    orders: Sequence[TimeOrder | None] = ()
    weights: Sequence[WeightSums | None] = ()

    @classmethod
    def of(cls, features: DistFeatureStore, graph: DistGraphStore, request: SamplingRequest) -> RankSampling:
        """Reads what the rules need from the stores. Collective.

        Raises:
            TypeError, ValueError: the rules do not fit the graph.
        """
        choice, schema = request.choice, graph.part.schema
        plan = choice.plan(request.num_neighbors, request.replace, schema)
        rules = _OwnRules(features) if graph.topology is None else _HostRules(features, graph.topology.graph)
        times: RankTimes | None = None
        orders: Sequence[TimeOrder | None] = (None,) * schema.num_relations
        if choice.time_attr is not None:
            times, orders = rules.times(choice.time_attr, choice.sortedness)
        weights = () if choice.weight_attr is None else rules.weights(choice.weight_attr, orders)
        return cls(graph, choice, plan, times, orders, weights)

    def samplers(
        self,
        plan: SamplingPlan,
        seed: int,
        threads: int | None,
        layout: Layout,
        *,
        own: bool,
        excluding: bool,
    ) -> RankSamplers:
        """Makes the samplers.

        Args:
            plan: the plan that is sampled by.
            seed: the key of every random choice.
            threads: at most this many threads work; torch's number if None.
            layout: the form of the edges.
            own: True if every seed of the schedule is a node of its rank's own part.
            excluding: True if seeds may have excluded pairs.
        """
        if self.graph.topology is not None:
            whole = MacrobatchSampler(
                self.graph.topology.graph,
                plan,
                seed,
                threads,
                layout,
                times=self.orders,
                weights=self.weights,
            )
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
            excluding=excluding,
        )
        return RankSamplers(sampler, sampler.of_any_seeds())


@dataclass(frozen=True)
class _OwnRules:
    """The times and weights of a rank's own in-edges. All methods are collective."""

    features: DistFeatureStore

    def times(self, name: str, sortedness: Sortedness) -> tuple[RankTimes, Sequence[TimeOrder | None]]:
        """Returns the times in an attribute, and the order of the edges of each relation."""
        times = PartTimes.of(self.features, name)
        return times, times.orders(sortedness)

    def weights(self, name: str, orders: Sequence[TimeOrder | None]) -> Sequence[WeightSums | None]:
        """Returns the sums of the weights in an attribute by relation."""
        return own_sums(self.features, name, orders)


@dataclass(frozen=True)
class _HostRules:
    """The times and weights of all edges; see `_OwnRules`."""

    features: DistFeatureStore
    graph: TypedGraph

    def times(self, name: str, sortedness: Sortedness) -> tuple[RankTimes, Sequence[TimeOrder | None]]:
        times = Times.of(name, replicate_attribute(self.features, name), self.graph.rows_by_group)
        return times, times.orders(self.graph, sortedness)

    def weights(self, name: str, orders: Sequence[TimeOrder | None]) -> Sequence[WeightSums | None]:
        return sum_weights(name, replicate_attribute(self.features, name), self.graph, orders)
