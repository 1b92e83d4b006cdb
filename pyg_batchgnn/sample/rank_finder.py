"""Finding the ends of links, and drawing negatives, of a graph that is spread over ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.comm import Communicator, Header, MessageKind
from pyg_batchgnn.data import Relation
from pyg_batchgnn.partition import Part
from pyg_batchgnn.sample.edge_questions import EdgeQuestions
from pyg_batchgnn.sample.free_negatives import draw_partners
from pyg_batchgnn.sample.link_finder import FoundLinks, LinkDraw, LinkIds
from pyg_batchgnn.sample.negative_draw import NegativeDraw
from pyg_batchgnn.sample.negatives import End, NegativeMode
from pyg_batchgnn.sample.rank_plan import RankPlan
from pyg_batchgnn.store import NodeOrder, OwnRowFinder, OwnRows, SlicedTables, directory_tables


@dataclass(frozen=True, eq=False)
class _Nodes:
    """Nodes of one type whose ids are wanted.

    Attributes:
        node_type: the number of the type.
        number: [n] int64, their original ids, or their positions in the order.
        order: the order, or None.
    """

    node_type: int
    number: Tensor
    order: NodeOrder | None = None


class RankFinder:
    """Draws negatives and finds ends over ranks; see `LinkFinder`.

    A macrobatch takes two rounds for the ids of ends that this rank does not own, and two more if
    negatives must not be edges (kind LOOKUP). A world of one rank makes no exchange.

    Args:
        part: this rank's.
        comm: of all ranks.
        plans: the plans of negatives by relation, the same on all ranks but for what a rank answers
            for.
    """

    def __init__(self, part: Part, comm: Communicator, plans: Mapping[Relation, RankPlan]) -> None:
        self._part, self._comm, self._plans = part, comm, dict(plans)
        self._own = OwnRowFinder(part)
        tables = directory_tables(part)
        self._places: dict[int, int] = {}  # where the tables of an order begin
        for plan in self._plans.values():
            for order in plan.orders.values():
                if order is not None and id(order) not in self._places:
                    self._places[id(order)] = len(tables)
                    tables += [order.internal, order.original]
        self._tables = SlicedTables(comm, tables)
        self._questions = EdgeQuestions(comm, self._plans)

    def find(self, draws: Sequence[LinkDraw], epoch: int, number: int) -> list[FoundLinks]:
        """Returns the ends of links by original and by internal ids; collective."""
        epoch = ops.to_signed(epoch)
        drawn = self._drawn(draws, Header(MessageKind.LOOKUP, epoch, number, 0))
        ends = [nodes for draw, pair in zip(draws, drawn, strict=True) for nodes in self._ends(draw, pair)]
        found = self._ids(ends, Header(MessageKind.LOOKUP, epoch, number, 1))
        originals, internals = ([ids[at] for ids in found] for at in range(2))
        return [
            FoundLinks(LinkIds(*originals[at : at + 4]), LinkIds(*internals[at : at + 4]))
            for at in range(0, len(found), 4)
        ]

    def _drawn(self, draws: Sequence[LinkDraw], header: Header) -> list[tuple[Tensor, Tensor]]:
        """Returns the positions of the sources and the targets of negatives. Collective."""
        none = torch.empty(0, dtype=torch.int64)
        drawn: list[tuple[Tensor, Tensor]] = [(none, none)] * len(draws)
        asked: dict[int, tuple[Relation, NegativeDraw]] = {}
        for at, draw in enumerate(draws):
            if draw.negatives is None:
                continue
            if self._plans[draw.links.relation].answers is None:
                drawn[at] = _free_draw(draw.negatives)
            else:
                asked[at] = draw.links.relation, draw.negatives
        if self._questions.relations:
            answers = self._questions.ask(list(asked.values()), header)
            drawn = [drawn[at] if at not in asked else next(answers) for at in range(len(draws))]
        return drawn

    def _ends(self, draw: LinkDraw, drawn: tuple[Tensor, Tensor]) -> list[_Nodes]:
        """Returns the sources and targets of links, then those of negatives."""
        links, schema = draw.links, self._part.schema
        types = {
            end: schema.type_number(name)
            for end, name in zip(End, (links.relation[0], links.relation[2]), strict=True)
        }
        plan = self._plans.get(links.relation)
        return [
            _Nodes(types[End.SOURCE], links.source),
            _Nodes(types[End.TARGET], links.target),
            *(
                _Nodes(types[end], position, None if plan is None else plan.orders[end])
                for end, position in zip(End, drawn, strict=True)
            ),
        ]

    def _ids(self, nodes: Sequence[_Nodes], header: Header) -> list[tuple[Tensor, Tensor]]:
        """Returns the original and the internal ids of nodes. Collective."""
        asked: list[tuple[int, Tensor]] = []
        known: list[OwnRows | None] = []
        for one in nodes:
            if one.order is not None:
                place = self._places[id(one.order)]
                asked += [(place, one.number), (place + 1, one.number)]
                known.append(None)
                continue
            own = self._own.find(one.node_type, one.number)
            asked.append((one.node_type, one.number[own.missing]))
            known.append(own)
        found = iter(self._tables.find(asked, header))
        ids = []
        for one, here in zip(nodes, known, strict=True):
            if here is None:
                internal, original = next(found), next(found)
                ids.append((original, internal))
                continue
            internal = torch.empty_like(one.number)
            internal[here.position] = here.row + self._part.nodes_of(one.node_type).start
            internal[here.missing] = next(found)
            ids.append((one.number, internal))
        return ids


def _free_draw(draw: NegativeDraw) -> tuple[Tensor, Tensor]:
    """Draws negatives that may be edges, by position."""
    if draw.plan.mode is NegativeMode.BINARY:
        return draw.pairs()
    streams = draw.streams(End.TARGET)
    return draw.positive[:0], draw_partners(draw.plan, streams, draw.source, draw.allowed[End.TARGET])
