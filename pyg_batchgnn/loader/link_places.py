"""The plans of negatives of a loader's links, whose graph is here or over ranks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor
from torch_geometric.sampler import NegativeSampling

from pyg_batchgnn.data import Relation
from pyg_batchgnn.loader.link_digest import described, links_sum
from pyg_batchgnn.loader.link_inputs import RelationLinks
from pyg_batchgnn.loader.places import OwnPositions
from pyg_batchgnn.loader.schedule import ScheduleName
from pyg_batchgnn.sample import (
    LateNegatives,
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
        links: the loader's links by relation.
        sampling: PyG's description of the negatives of each relation that gets any.
        avoid_edges: True if negatives must not be edges.
        late: what is done about links that are earlier than every node.
    """

    links: Mapping[Relation, RelationLinks]
    sampling: Mapping[Relation, NegativeSampling]
    avoid_edges: bool
    late: LateNegatives = LateNegatives.WARN


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

    def agree(self, all_edges: Mapping[Relation, bool]) -> None:
        """Raises AgreementError unless all ranks mean links of the same relations; collective.

        Args:
            all_edges: by relation, True if all edges are meant, False if links are given.
        """

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

    def agree(self, all_edges: Mapping[Relation, bool]) -> None:
        """Does nothing: one process agrees with itself."""

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
        schedule: the schedule of the loader.
    """

    store: DistGraphStore
    schedule: ScheduleName

    def agree(self, all_edges: Mapping[Relation, bool]) -> None:
        """Raises AgreementError unless all ranks mean links of the same relations."""
        said = [[*relation, "all edges" if every else "given"] for relation, every in all_edges.items()]
        self.store.comm.check_agreement({"edge_label_index": said})

    def all_edges(self, graph: Any, relation: Relation) -> RelationLinks:
        """Returns this rank's own edges as links.

        Raises:
            ValueError: ranks would need the edges of others.
        """
        if self.store.topology is not None:
            return LinksHere().all_edges(graph, relation)
        if self.schedule is not ScheduleName.LOCAL:
            raise ValueError(
                f"edge_label_index stands for all edges of {relation}, and each rank holds those into its "
                f"own nodes: use schedule='local', or give [2, n] node ids, the same on every rank"
            )
        part, comm = self.store.part, self.store.comm
        own = own_edges(part, comm, part.schema.relation_number(relation))
        digest = comm.sum(links_sum(own.index, own.edge))
        return RelationLinks(relation, own.index, here=OwnPositions(own.edge, own.total, digest))

    def plan(self, graph: Any, times: Any, wanted: WantedNegatives) -> PlannedNegatives:
        """Plans the negatives.

        Raises:
            AgreementError: ranks want different negatives, or have different links, labels or
                times.
        """
        part, comm, first = self.store.part, self.store.comm, None
        comm.check_agreement(_settings(wanted))
        if self.store.topology is not None:
            return LinksHere().plan(graph, times, wanted)
        if times is not None and wanted.sampling:
            first = first_times_of_part(part, comm, times.own)
        planner = RankPlanner(part, comm, first)
        plans = {
            relation: planner.plan(one, relation, wanted.links[relation].time, wanted.avoid_edges)
            for relation, one in wanted.sampling.items()
        }
        finder = RankFinder(part, comm, plans)
        return PlannedNegatives({relation: one.plan for relation, one in plans.items()}, finder)


def _settings(wanted: WantedNegatives) -> dict[str, Any]:
    """Returns what ranks must agree on before they plan negatives; JSON can hold it."""
    links, sampling = wanted.links.items(), wanted.sampling.items()
    return {
        "edge_label_index": [[*relation, len(one), one.digest] for relation, one in links],
        "edge_label": [[*relation, _said(one.label)] for relation, one in links],
        "edge_label_time": [[*relation, _said(one.time)] for relation, one in links],
        "neg_sampling": [[*relation, one.mode.value, one.amount] for relation, one in sampling],
        "src_weight": [[*relation, _said(one.src_weight)] for relation, one in sampling],
        "dst_weight": [[*relation, _said(one.dst_weight)] for relation, one in sampling],
        "exclude_existing": wanted.avoid_edges,
        "late_negatives": wanted.late.value,
    }


def _said(values: Tensor | None) -> list[Any] | None:
    return None if values is None else described(values)
