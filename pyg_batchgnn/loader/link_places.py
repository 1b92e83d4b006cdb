"""The plans of negatives of a loader's links, whose graph is here or over ranks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor
from torch_geometric.sampler import NegativeSampling

from pyg_batchgnn.data import Relation
from pyg_batchgnn.loader.link_inputs import RelationLinks
from pyg_batchgnn.loader.places import OwnPositions
from pyg_batchgnn.ops import digest_text, minibatch_key
from pyg_batchgnn.sample import (
    LinkFinder,
    LocalFinder,
    NegativePlan,
    RankFinder,
    RankPlanner,
    negative_plan,
)
from pyg_batchgnn.store import (
    DistGraphStore,
    Times,
    TypedGraph,
    edge_list,
    first_times,
    first_times_of_part,
    own_edges,
)


@dataclass(frozen=True, eq=False)
class WantedNegatives:
    """The negatives that a loader's links shall have.

    Attributes:
        links: by relation of the loader's links, numbers that describe them, the same on all ranks.
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


class LinkPlace(Protocol):
    """The place of the graph that the links of a loader belong to."""

    def all_edges(self, graph: Any, relation: Relation) -> RelationLinks:
        """Returns the edges of a relation as links, as far as they are here; collective over ranks.

        Args:
            graph: the graph that the loader's inputs are of.
            relation: a relation of the graph.
        """

    def plan(self, graph: Any, times: Any, wanted: WantedNegatives) -> PlannedNegatives:
        """Plans the negatives; collective over ranks.

        Args:
            graph: the graph that the loader's inputs are of.
            times: its times, or None.
            wanted: the negatives that its links shall have.
        """


class LinksHere:
    """The place of a graph that is here, a `TypedGraph` with its `Times`; see `LinkPlace`."""

    def all_edges(self, graph: TypedGraph, relation: Relation) -> RelationLinks:
        """Returns all edges as links."""
        return RelationLinks(relation, edge_list(graph.in_edges(relation)))

    def plan(self, graph: TypedGraph, times: Times | None, wanted: WantedNegatives) -> PlannedNegatives:
        """Plans the negatives."""
        first = None if times is None or not wanted.sampling else first_times(times, graph)
        plans = {
            relation: negative_plan(one, relation, graph, first, wanted.avoid_edges)
            for relation, one in wanted.sampling.items()
        }
        return PlannedNegatives(plans, LocalFinder())


@dataclass(frozen=True, eq=False)
class LinksOverRanks:
    """The place of a graph over ranks; see `LinkPlace`. All methods are collective.

    Attributes:
        store: the graph. If its topology is on every rank, that is the graph of the inputs.
        schedule: the schedule of the loader, or None.
    """

    store: DistGraphStore
    schedule: str | None

    def all_edges(self, graph: Any, relation: Relation) -> RelationLinks:
        """Returns this rank's own edges as links.

        Raises:
            ValueError: ranks would need the edges of others.
        """
        if self.store.topology is not None:
            return LinksHere().all_edges(graph, relation)
        if self.schedule == "global":
            raise ValueError(
                f"edge_label_index stands for all edges of {relation}, and each rank holds those into its "
                f"own nodes: use schedule='local', or give [2, n] node ids, the same on every rank"
            )
        own = own_edges(self.store.part, self.store.comm, self.store.part.schema.relation_number(relation))
        return RelationLinks(relation, own.index, here=OwnPositions(own.edge, own.total))

    def plan(self, graph: Any, times: Any, wanted: WantedNegatives) -> PlannedNegatives:
        """Plans the negatives.

        Raises:
            AgreementError: ranks want different negatives, or have different links.
        """
        part, comm, first = self.store.part, self.store.comm, None
        comm.check_agreement(_settings(wanted))
        if self.store.topology is not None:
            return LinksHere().plan(graph, times, wanted)
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
