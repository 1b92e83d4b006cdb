"""PyG's forms of ``neg_sampling``, and what ours adds to them, as plans of negatives."""

from __future__ import annotations

import dataclasses
import functools
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

import torch
from torch import Tensor
from torch_geometric.sampler import NegativeSampling

from pyg_batchgnn.loader.link_inputs import (
    LinkInputs,
    RelationLinks,
    UserLinks,
    by_relation,
    checked_links,
    links_by_relation,
)
from pyg_batchgnn.loader.node_inputs import NodeInputs
from pyg_batchgnn.ops import INTEGERS, check_range
from pyg_batchgnn.sample import (
    Direction,
    GivenNegatives,
    LateNegatives,
    LinkFinder,
    LinkSeeder,
    LocalFinder,
    Names,
    NegativePlan,
    SeedEdges,
    check_early_links,
    negative_plan,
)
from pyg_batchgnn.store import first_times
from pyg_batchgnn.types import Relation, Schema

if TYPE_CHECKING:
    from pyg_batchgnn.loader.node_inputs import GraphShape, GraphTimes


# Planning #########################################################################################


@dataclass(frozen=True, eq=False)
class WantedNegatives:
    """The negatives that a loader's links shall have."""

    links: Mapping[Relation, RelationLinks]  # the loader's links by relation
    #: PyG's description of the negatives of each relation that gets drawn ones
    sampling: Mapping[Relation, NegativeSampling]
    given: Mapping[Relation, GivenNegatives]  # the negatives that the user gave, by relation
    avoid_edges: bool  # True if negatives must not be edges
    late: LateNegatives = LateNegatives.WARN  # what is done about links that are earlier than every node


@dataclass(frozen=True, eq=False)
class PlannedNegatives:
    """The plans of negatives, and what draws them."""

    plans: Mapping[Relation, NegativePlan]  # by relation
    finder: LinkFinder  # draws negatives, and finds the ends of links


class LinkPlace:
    """Finds links and plans negatives: here in a `TypedGraph` that one process holds whole."""

    def agree(self, all_edges: Mapping[Relation, bool]) -> None:
        """Raises AgreementError unless all ranks mean links of the same relations; collective.
        ``all_edges``: by relation, True if all edges are meant, False if links are given."""

    def all_edges(self, graph: Any, relation: Relation) -> RelationLinks:
        """Returns the edges of a relation that are here, as links; collective over ranks."""
        return RelationLinks(relation, graph.in_edges(relation).edge_list())

    def plan(self, graph: Any, times: Any, wanted: WantedNegatives) -> PlannedNegatives:
        """Plans the negatives; collective over ranks."""
        first = None if times is None or not wanted.sampling else first_times(times, graph)
        plans = {
            relation: negative_plan(one, relation, graph, first, wanted.avoid_edges)
            for relation, one in wanted.sampling.items()
        }
        return PlannedNegatives(plans, LocalFinder())


# Link request #####################################################################################


@dataclass(frozen=True, eq=False)
class LinkRequest:
    """The links that a user asks a loader to begin with, and their negatives."""

    links: UserLinks  # the user's links
    negatives: NegativeRequest  # the user's negatives, and the edges that are excluded
    disjoint: bool = False  # True if every link is an example of its own. With times it is so anyway.
    direction: Direction = Direction.FORWARD  # the direction in which neighbours are looked for
    place: LinkPlace = field(default_factory=LinkPlace)  # knows the edges of the graph

    def inputs(self, graph: GraphShape, times: GraphTimes | None, names: Names) -> LinkInputs:
        if (self.links.times is None) != (times is None):
            lacking = "time_attr" if times is None else "edge_label_time"
            raise ValueError(
                f"'{lacking}' is not set: give edge_label_time, the times of links, together with time_attr, "
                f"the name of the graph's times"
            )
        edges = functools.partial(self.place.all_edges, graph)
        links = links_by_relation(self.links, graph.schema, names)
        self.place.agree({relation: one.index is None for relation, one in links.items()})
        parts = [checked_links(relation, one, graph, names, edges) for relation, one in links.items()]
        sampling = self.negatives.by_relation(graph.schema, parts)
        parts = [
            dataclasses.replace(part, label=labelled(part, sampling.get(part.relation))) for part in parts
        ]
        given = self.negatives.given(graph, parts)
        wanted = WantedNegatives(
            {part.relation: part for part in parts},
            {relation: one for relation, one in sampling.items() if relation not in given},
            given,
            self.negatives.exclude_existing,
            self.negatives.late,
        )
        planned = self.place.plan(graph, times, wanted)
        check_early_links(
            [(name, wanted.links[name].time, plan) for name, plan in planned.plans.items()],
            self.negatives.late,
            stacklevel=4,
        )
        relations = [part.relation for part in parts]
        excluded = SeedEdges.wanted(self.negatives.exclude_seed_edges, graph.schema, relations)
        if excluded is not None and self.direction is Direction.BACKWARD:
            excluded = excluded.reversed()
        is_disjoint = self.disjoint or times is not None
        seeder = LinkSeeder(graph.schema, {**planned.plans, **given}, is_disjoint, excluded, planned.finder)
        return LinkInputs(parts, seeder, names)


#: What a loader's minibatches begin with.
Inputs: TypeAlias = NodeInputs | LinkInputs
InputsT = TypeVar("InputsT", bound=Inputs, covariant=True)


class InputRequest(Protocol[InputsT]):
    """The nodes or links that a user asks a loader for."""

    def inputs(self, graph: GraphShape, times: GraphTimes | None, names: Names) -> InputsT:
        """Returns the inputs, checked; collective. ``times``: None if sampling is not temporal."""


# Forms of the user ################################################################################


@dataclass(frozen=True, eq=False)
class NegativeRequest:
    """The negatives that a user asked for, and the seed edges to exclude."""

    #: ``neg_sampling`` in one of PyG's forms, [n, k] targets, or a dict of such by edge type
    sampling: Any = None
    ratio: float | None = None  # ``neg_sampling_ratio``: binary negatives per link; None or 0 for none
    exclude_existing: bool = False  # True if negatives must not be edges
    exclude_seed_edges: Any = False  # False, True, "reverse" or a dict from edge types to their reverses
    late: LateNegatives = LateNegatives.WARN  # what is done about links that are earlier than every node

    def for_pyg(self) -> NegativeSampling | None:
        """Returns PyG's description of the negatives; None for none, or if it is by edge type."""
        if self.ratio:
            return NegativeSampling("binary", self.ratio)
        return None if _is_by_type(self.sampling) else _cast(self.sampling)

    def by_relation(self, schema: Schema, links: Sequence[RelationLinks]) -> dict[Relation, NegativeSampling]:
        """Returns PyG's description of the negatives of each relation that gets any."""
        relations = {one.relation: None for one in links}
        if self.ratio:
            given = dict.fromkeys(relations, NegativeSampling("binary", self.ratio))
        elif _is_by_type(self.sampling):
            given = by_relation("neg_sampling", self.sampling, schema, relations)
        else:
            given = dict.fromkeys(relations, self.sampling)
        found = {one: _cast(value) for one, value in given.items() if value is not None}
        if self.exclude_existing and not found:
            raise ValueError(
                "exclude_existing=True is about negatives, but neg_sampling gives none: give for instance "
                "neg_sampling='binary', or leave exclude_existing out"
            )
        return found

    def given(self, graph: GraphShape, links: Sequence[RelationLinks]) -> dict[Relation, GivenNegatives]:
        """Returns the negatives of each relation whose links came with targets."""
        relations = {one.relation: None for one in links}
        named = dict.fromkeys(relations, self.sampling)
        if _is_by_type(self.sampling):
            named = by_relation("neg_sampling", self.sampling, graph.schema, relations)
        found = {}
        for one in links:
            table = named.get(one.relation)
            if isinstance(table, Tensor):
                found[one.relation] = GivenNegatives.of(_checked_targets(table, one, graph))
        if found and self.exclude_existing:
            raise ValueError(
                "exclude_existing=True is about negatives that are drawn, but neg_sampling gives them; leave "
                "exclude_existing out"
            )
        return found


def _checked_targets(table: Tensor, links: RelationLinks, graph: GraphShape) -> Tensor:
    """Returns the targets that a user gave as negatives, [n, k] int64."""
    what, target = f"neg_sampling of {links.relation}", links.relation[2]
    if table.dtype not in INTEGERS:
        raise TypeError(f"{what} must hold integer node ids, got {table.dtype}; use .long()")
    if table.dim() != 2 or len(table) != len(links) or not table.size(1):
        raise ValueError(
            f"{what} has shape {list(table.shape)} for {len(links)} links; give [links, k] targets"
        )
    if links.input_id is not None:
        raise ValueError(f"{what} gives targets by position, which input_id replaces; leave input_id out")
    table = table.to("cpu", torch.int64).contiguous()
    check_range(what, table.view(-1), graph.num_nodes[graph.schema.type_number(target)])
    return table


def _cast(given: Any) -> NegativeSampling | None:
    """Returns PyG's description of negatives from one of its forms."""
    if isinstance(given, Tensor):
        return NegativeSampling("triplet", given.size(1)) if given.dim() == 2 and given.size(1) else None
    mode = given[0] if isinstance(given, (tuple, list)) and given else given
    if isinstance(mode, str) and mode not in ("binary", "triplet"):
        raise ValueError(f"neg_sampling must be 'binary' or 'triplet', got {given!r}")
    return NegativeSampling.cast(given)


def _is_by_type(sampling: Any) -> bool:
    return isinstance(sampling, Mapping) and "mode" not in sampling


def labelled(links: RelationLinks, sampling: NegativeSampling | None) -> Tensor | None:
    """Returns the labels of links. Negatives take the label 0."""
    if sampling is None or links.label is None:
        return links.label
    if sampling.is_triplet():
        raise ValueError(
            "edge_label and neg_sampling='triplet' do not go together: triplets tell links from negatives by "
            "src_index, dst_pos_index and dst_neg_index; leave edge_label out"
        )
    if links.label.numel() == 0 or links.label.min() != 0:
        return links.label
    warnings.warn(
        f"edge_label of {links.relation} begins with 0, which is the label of negatives: all labels of links "
        f"move up by 1, as in PyG; give labels that begin with 1 to keep them",
        stacklevel=6,
    )
    return links.label + 1
