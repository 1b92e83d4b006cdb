"""The user's wishes about links and negatives, made into the inputs of a loader."""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass, field

from pyg_batchgnn.loader.input_links import LinkGraph, LinkRequest, checked_links, typed_links, untyped_links
from pyg_batchgnn.loader.inputs import GraphShape, GraphTimes
from pyg_batchgnn.loader.link_inputs import LinkInputs
from pyg_batchgnn.loader.link_negatives import NegativeRequest, labelled
from pyg_batchgnn.loader.link_places import LinkPlace, LinksHere, WantedNegatives
from pyg_batchgnn.sample import Direction, LinkSeeder, Names, SeedEdges, check_early_links


@dataclass(frozen=True, eq=False)
class LinkLoading:
    """The links that a loader visits, and what goes with them; see `InputsRequest`.

    Attributes:
        links: the user's links.
        negatives: the user's negatives, and the edges that are excluded.
        disjoint: True if every link is an example of its own. With times it is so anyway.
        direction: the direction in which neighbours are looked for.
        place: knows the edges of the graph.
    """

    links: LinkRequest
    negatives: NegativeRequest
    disjoint: bool = False
    direction: Direction = Direction.FORWARD
    place: LinkPlace = field(default_factory=LinksHere)

    def inputs(self, graph: GraphShape, times: GraphTimes | None, names: Names) -> LinkInputs:
        """Returns the links, checked, and the seeder that draws their negatives; see
        `InputsRequest`."""
        if (self.links.times is None) != (times is None):
            lacking = "time_attr" if times is None else "edge_label_time"
            raise ValueError(
                f"'{lacking}' is not set: give edge_label_time, the times of links, together with time_attr, "
                f"the name of the graph's times"
            )
        find = typed_links if names is Names.TYPES else untyped_links
        edges = functools.partial(self.place.all_edges, graph)
        link_graph = LinkGraph(graph.schema, graph.num_nodes, edges)
        requests = find(self.links, link_graph)
        self.place.agree({one.relation: one.links.index is None for one in requests})
        parts = [checked_links(one, link_graph) for one in requests]
        sampling = self.negatives.by_relation(graph.schema, parts)
        parts = [
            dataclasses.replace(part, label=labelled(part, sampling.get(part.relation))) for part in parts
        ]
        wanted = WantedNegatives(
            {part.relation: part for part in parts},
            sampling,
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
        seeder = LinkSeeder(graph.schema, planned.plans, is_disjoint, excluded, planned.finder)
        return LinkInputs(parts, seeder, names)
