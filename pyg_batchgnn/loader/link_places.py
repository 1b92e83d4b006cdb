"""The plans of negatives of a loader's links, whose graph is here or over ranks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from torch import Tensor
from torch_geometric.sampler import NegativeSampling

from pyg_batchgnn.data import Relation
from pyg_batchgnn.ops import digest_text, minibatch_key
from pyg_batchgnn.sample import (
    LinkFinder,
    LocalFinder,
    NegativePlan,
    RankFinder,
    RankPlanner,
    negative_plan,
)
from pyg_batchgnn.store import DistGraphStore, first_times, first_times_of_part


@dataclass(frozen=True, eq=False)
class WantedNegatives:
    """The negatives that a loader's links shall have.

    Attributes:
        links: by relation of the loader's links, [2, n] int64, sources above targets.
        time: by relation, [n] int64, the times of the links; empty without times.
        sampling: PyG's description of the negatives of each relation that gets any.
        avoid_edges: True if negatives must not be edges.
    """

    links: Mapping[Relation, Tensor]
    time: Mapping[Relation, Tensor]
    sampling: Mapping[Relation, NegativeSampling]
    avoid_edges: bool


@dataclass(frozen=True, eq=False)
class PlannedNegatives:
    """The plans of negatives, and what draws them.

    Attributes:
        plans: by relation.
        finder: draws negatives, and finds the ends of links.
    """

    plans: Mapping[Relation, NegativePlan]
    finder: LinkFinder


#: Plans negatives, given the graph, its times or None, and what is wanted; collective over ranks.
PlanNegatives: TypeAlias = Callable[[Any, Any, WantedNegatives], PlannedNegatives]


def plan_here(graph: Any, times: Any, wanted: WantedNegatives) -> PlannedNegatives:
    """Plans the negatives of links of a graph that is here, a `TypedGraph` with its `Times`."""
    first = None if times is None or not wanted.sampling else first_times(times, graph)
    plans = {
        relation: negative_plan(one, relation, graph, first, wanted.avoid_edges)
        for relation, one in wanted.sampling.items()
    }
    return PlannedNegatives(plans, LocalFinder())


@dataclass(frozen=True, eq=False)
class PlanOverRanks:
    """Plans the negatives of links of a graph over ranks.

    Attributes:
        store: the graph. If its topology is on every rank, negatives are drawn from that.
    """

    store: DistGraphStore

    def __call__(self, graph: Any, times: Any, wanted: WantedNegatives) -> PlannedNegatives:  # noqa: ARG002
        """Plans the negatives; collective. ``times``: a `PartTimes`, the `Times` of the whole graph
        if its topology is on every rank, or None.

        Raises:
            AgreementError: ranks want different negatives, or have different links.
        """
        store, topology = self.store, self.store.topology
        store.comm.check_agreement(_settings(wanted))
        if topology is not None:
            return plan_here(topology.graph, times, wanted)
        part, comm, first = store.part, store.comm, None
        if times is not None and wanted.sampling:
            first = first_times_of_part(part, comm, times.own)
        planner = RankPlanner(part, comm, first)
        plans = {
            relation: planner.plan(one, relation, wanted.time.get(relation), wanted.avoid_edges)
            for relation, one in wanted.sampling.items()
        }
        finder = RankFinder(part, comm, plans)
        return PlannedNegatives({relation: one.plan for relation, one in plans.items()}, finder)


def _settings(wanted: WantedNegatives) -> dict[str, Any]:
    """Returns what ranks must agree on before they plan negatives; JSON can hold it."""
    digests = {
        name: [
            [*relation, values.size(-1), digest_text(minibatch_key(values.reshape(-1)))]
            for relation, values in given.items()
        ]
        for name, given in (("edge_label_index", wanted.links), ("edge_label_time", wanted.time))
    }
    sampling = [[*relation, one.mode.value, one.amount] for relation, one in wanted.sampling.items()]
    return {**digests, "neg_sampling": sampling, "exclude_existing": wanted.avoid_edges}
