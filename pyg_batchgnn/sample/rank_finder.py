"""Negatives and the ends of links in a graph that is spread over ranks.

`RankPlanner` makes the rules by which negatives are drawn, `EdgeQuestions` asks other ranks whether
a candidate is an edge, and `RankFinder` finds the ids of all ends.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch_geometric.sampler import NegativeSampling

from pyg_batchgnn import ops
from pyg_batchgnn.comm import Communicator, Header, MessageKind
from pyg_batchgnn.ops import WordStreams
from pyg_batchgnn.partition import Part, node_values, own_rounds, send_rows
from pyg_batchgnn.sample.link_seeds import FoundLinks, LinkDraw, LinkIds
from pyg_batchgnn.sample.negatives import (
    NOTHING,
    TRIES,
    End,
    GivenDraw,
    NegativeDraw,
    NegativeMode,
    NegativePlan,
    check_relation,
    draw_partners,
    end_weights,
    free_pair,
)
from pyg_batchgnn.sample.node_pool import ExistingPairs, NodePool
from pyg_batchgnn.store import (
    NodeOrder,
    OwnRowFinder,
    OwnRows,
    SlicedTables,
    ask,
    directory_tables,
    even_bounds,
)
from pyg_batchgnn.types import Group, Relation


@dataclass(frozen=True, eq=False)
class EndNumbers:
    """How pairs name the nodes at one end of a relation: by position in the pool of the end, which
    is the original id if nodes have no times."""

    bounds: Tensor  # [ranks + 1] int64, the slice of the numbers that each rank answers for
    own: Tensor  # [n] int64, the number of each of this rank's own nodes of the type, by row


def with_entries(
    own: ExistingPairs, bounds: Tensor, comm: Communicator, sources: NodePool, targets: NodePool
) -> ExistingPairs:
    """Returns the pairs (target, source) of the targets of this rank's slice, and those of a few
    targets of other ranks: the ones that a search for a target with a free source may go on to,
    wherever it begins. Collective. ``bounds``: as in `EndNumbers`."""
    slice_of_rank = torch.arange(int(bounds[comm.rank]), int(bounds[comm.rank + 1]))
    entries = slice_of_rank[_entries(own, slice_of_rank, sources, targets)]
    of_held = (own.others(held) + held * own.num_others for held in map(int, entries))
    codes = torch.cat([own.code[:0], *of_held])
    known, others = (_of_all_ranks(comm, values) for values in (entries, codes))
    return ExistingPairs(
        torch.cat([own.code, others]).unique(), own.num_others, torch.cat([slice_of_rank, known]).unique()
    )


def _held(
    comm: Communicator, held: Tensor, other: Tensor, bounds: Tensor, num_held: int, num_others: int
) -> ExistingPairs:
    code = ExistingPairs.of(held, other, num_held, num_others).code
    to = torch.searchsorted(bounds, code // max(num_others, 1), right=True) - 1
    return ExistingPairs(send_rows(comm, code, to).unique(), num_others)


def _of_all_ranks(comm: Communicator, own: Tensor) -> Tensor:  # collective; in no order
    rounds = own_rounds(comm, own.numel(), own.itemsize)
    pieces = [comm.all_gather(own[one.start : one.stop], MessageKind.PARTITION).rows for one in rounds]
    return torch.cat([own[:0], *pieces])


def _entries(pairs: ExistingPairs, held: Tensor, sources: NodePool, targets: NodePool) -> Tensor:
    """Returns the targets of a slice at which a search may end that enters the slice at its first
    target. A search ends at a target with a free source among the first ones of the pool. So it can
    end at a target only if its first free source comes before those of all targets passed."""
    if not held.numel():
        return held
    first = _first_free(pairs, held, sources)
    if targets.weight is not None:
        first[targets.weight[held] == 0] = sources.num_nodes
    least = first.cummin(0).values
    before = torch.cat([torch.tensor([sources.num_nodes]), least[:-1]])
    return (first < before).nonzero().view(-1)


def _first_free(pairs: ExistingPairs, held: Tensor, sources: NodePool) -> Tensor:
    begin, num_others = int(held[0]), max(pairs.num_others, 1)
    at, other = pairs.code // num_others - begin, pairs.code % num_others
    if sources.weight is not None:
        may_be_drawn = sources.weight > 0
        kept = may_be_drawn[other]
        at, other = at[kept], (may_be_drawn.long().cumsum(0) - 1)[other[kept]]
    count = torch.bincount(at, minlength=held.numel())
    rank = torch.arange(at.numel()) - (count.cumsum(0) - count)[at]
    gap = torch.where(other == rank, num_others, rank)  # the first place where a source is left out
    return count.scatter_reduce(0, at, gap, "amin")


@dataclass(frozen=True, eq=False)
class RankPlan:
    """How the negatives of one relation are drawn over ranks."""

    plan: NegativePlan  # the rule. Its existing pairs are those that this rank answers for.
    # By end, the order of the nodes that it is drawn from; None by original id.
    orders: Mapping[End, NodeOrder | None]
    # [ranks + 1] int64, the existing pairs' held ends of each rank; None if negatives may be edges.
    answers: Tensor | None


class RankPlanner:
    """Plans how the negatives of a loader's links are drawn; all methods are collective. ``first``:
    by group of nodes, [n] int64, from when each own node exists; None without times."""

    def __init__(self, part: Part, comm: Communicator, first: Mapping[Group, Tensor] | None) -> None:
        self._part, self._comm, self._first = part, comm, first or {}
        self._orders: dict[int, NodeOrder] = {}

    def plan(
        self, sampling: NegativeSampling, relation: Relation, time: Tensor | None, avoids_edges: bool
    ) -> RankPlan:
        """As `negative_plan`, over ranks. ``time``: [n] int64, when the links are sampled, or
        None."""
        mode, schema = NegativeMode(sampling.mode.value), self._part.schema
        types = [schema.type_number(name) for name in (relation[0], relation[2])]
        counts = [self._part.book.num_nodes_of(number) for number in types]
        weights = end_weights(sampling, relation, counts)
        drawn = tuple(End) if mode is NegativeMode.BINARY else (End.TARGET,)
        orders = {end: self._order(types[end]) if end in drawn else None for end in End}
        sources, targets = (
            self._pool(orders[end], count, weight, time)
            for end, count, weight in zip(End, counts, weights, strict=True)
        )
        plan = NegativePlan(mode, sampling.amount, sources, targets)
        if not avoids_edges:
            return RankPlan(plan, orders, None)
        check_relation(relation, schema)
        return self._avoiding(plan, orders, relation, types)

    def _order(self, node_type: int) -> NodeOrder | None:
        group = self._part.schema.node_groups[node_type]
        if group not in self._first:
            return None
        if node_type not in self._orders:
            self._orders[node_type] = NodeOrder.of(self._part, self._comm, node_type, self._first[group])
        return self._orders[node_type]

    def _pool(
        self, order: NodeOrder | None, count: int, weight: Tensor | None, time: Tensor | None
    ) -> NodePool:
        if order is None or time is None:
            return NodePool.of(count, weight=weight)
        moment = time.unique()
        if weight is not None:  # every rank was given all weights, so it can hold them in this order
            weight = weight.double()[order.nodes(self._comm)]
        return NodePool(count, moment, order.reached(self._comm, moment), weight=weight)

    def _avoiding(
        self,
        plan: NegativePlan,
        orders: Mapping[End, NodeOrder | None],
        relation: Relation,
        types: Sequence[int],
    ) -> RankPlan:
        is_binary, number = plan.mode is NegativeMode.BINARY, self._part.schema.relation_number(relation)
        # The sources of triplets are those of links, which have ids.
        sources = self._numbers(types[0], orders[End.SOURCE] if is_binary else None)
        targets = self._numbers(types[1], orders[End.TARGET])
        source, target = self._edge_ends(number, sources, targets)
        num_sources, num_targets, bounds = plan.sources.num_nodes, plan.targets.num_nodes, sources.bounds
        if is_binary:
            bounds = targets.bounds
            existing = _held(self._comm, target, source, bounds, num_targets, num_sources)
            existing = with_entries(existing, bounds, self._comm, plan.sources, plan.targets)
        else:
            existing = _held(self._comm, source, target, bounds, num_sources, num_targets)
        return RankPlan(replace(plan, existing=existing), orders, bounds)

    def _edge_ends(self, relation: int, sources: EndNumbers, targets: EndNumbers) -> tuple[Tensor, Tensor]:
        """Returns source and target of each of this rank's in-edges, as `EndNumbers` name them."""
        part, edges = self._part, self._part.relations[relation]
        own = torch.empty(part.num_nodes, dtype=torch.int64)
        own[part.rows_of(part.schema.source_types[relation])] = sources.own
        distinct, (place,) = ops.unique_nodes([edges.indices.to(torch.int64)], part.book.num_nodes)
        source = node_values(self._comm, part.book, distinct, own)[place.long()]
        return source, targets.own[edges.targets()]

    def _numbers(self, node_type: int, order: NodeOrder | None) -> EndNumbers:
        if order is not None:
            return EndNumbers(order.internal.bounds, order.position)
        bounds = even_bounds(self._part.book.num_nodes_of(node_type), self._comm.size)
        return EndNumbers(bounds, self._part.original_ids(node_type))


class Column(enum.IntEnum):
    """The columns of a question [Q, columns] int64. It is about a candidate of a binary negative
    (held end: target), or about a whole triplet negative (held end: source)."""

    RELATION = 0  # the number of the relation among those whose negatives avoid edges
    HELD = 1  # the held end
    OTHER = 2  # the source of a candidate
    STREAM = 3  # the key with which the stream of the end to draw goes on
    SOURCES = 4  # how many sources are allowed
    TARGETS = 5  # how many targets are allowed; 0 for a candidate that is not the last one


class EdgeQuestions:
    """Draws negatives that must not be edges, and asks the ranks that know the edges. The rank of a
    candidate's target says whether an edge joins the pair, and if it is the last candidate, draws
    another source. The target of a triplet is drawn by the rank of its source."""

    def __init__(self, comm: Communicator, plans: Mapping[Relation, RankPlan]) -> None:
        self._comm = comm
        self._plans = {relation: plan for relation, plan in plans.items() if plan.answers is not None}
        self._numbers = {relation: number for number, relation in enumerate(self._plans)}

    @property
    def relations(self) -> list[Relation]:
        return list(self._plans)

    def ask(
        self, draws: Sequence[tuple[Relation, NegativeDraw]], header: Header
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Draws negatives, and yields for each entry of ``draws`` the positions of sources (none
        for triplets) and of targets. Collective, two rounds. Raises ValueError, with the link, if a
        negative cannot be drawn."""
        rows, to = [torch.empty(0, len(Column), dtype=torch.int64)], [torch.empty(0, dtype=torch.int64)]
        for relation, draw in draws:
            asked = _questions(draw)
            asked[:, Column.RELATION] = self._numbers[relation]
            answers = self._plans[relation].answers
            assert answers is not None
            rows.append(asked)
            to.append(torch.searchsorted(answers, asked[:, Column.HELD].contiguous(), right=True) - 1)
        found = ask(self._comm, torch.cat(rows), torch.cat(to), self._answer, header)
        parts = found.split([len(one) for one in rows[1:]])
        return (_chosen(draw, answer) for (_, draw), answer in zip(draws, parts, strict=True))

    def _answer(self, rows: Tensor) -> Tensor:
        """Returns for each question the held and the other end of a pair that no edge joins;
        `NOTHING` if the candidate is an edge, or if no pair is free."""
        found = torch.empty(len(rows), 2, dtype=torch.int64)
        for number, plan in enumerate(self._plans.values()):
            which = (rows[:, Column.RELATION] == number).nonzero().view(-1)
            answer = _pairs if plan.plan.mode is NegativeMode.BINARY else _partners
            found[which] = answer(plan.plan, rows[which])
        return found


def _questions(draw: NegativeDraw) -> Tensor:
    if draw.plan.mode is NegativeMode.TRIPLET:
        rows = torch.zeros(draw.count, len(Column), dtype=torch.int64)
        rows[:, Column.HELD] = draw.source
        rows[:, Column.STREAM] = draw.keys[End.TARGET]
        rows[:, Column.TARGETS] = draw.allowed[End.TARGET]
        return rows
    source, target, heads = draw.candidates()
    rows = torch.zeros(*source.shape, len(Column), dtype=torch.int64)
    rows[..., Column.HELD], rows[..., Column.OTHER] = target, source
    rows[-1, :, Column.STREAM] = heads.keys
    rows[-1, :, Column.SOURCES] = draw.allowed[End.SOURCE]
    rows[-1, :, Column.TARGETS] = draw.allowed[End.TARGET]
    return rows.view(-1, len(Column))


def _chosen(draw: NegativeDraw, answers: Tensor) -> tuple[Tensor, Tensor]:
    if draw.plan.mode is NegativeMode.TRIPLET:
        return draw.positive[:0], draw.found(answers[:, 1].contiguous())
    tries = answers.view(TRIES, draw.count, 2)
    first = (tries[..., 0] != NOTHING).to(torch.uint8).argmax(0)
    target, source = tries[first, torch.arange(draw.count)].t().contiguous()
    return draw.found(source), target


def _pairs(plan: NegativePlan, rows: Tensor) -> Tensor:
    assert plan.existing is not None
    found = rows[:, [Column.HELD, Column.OTHER]]
    is_edge = plan.existing.contain(*found.unbind(1))
    streams = WordStreams(rows[:, Column.STREAM])
    found[is_edge] = NOTHING
    last = (is_edge & (rows[:, Column.TARGETS] > 0)).nonzero().view(-1)
    questions = rows[last][:, [Column.HELD, Column.SOURCES, Column.TARGETS]]
    for at, question in zip(last.tolist(), questions.tolist(), strict=True):
        pair = free_pair(plan, streams, at, *question)
        if pair is not None:
            found[at] = torch.tensor([pair[1], pair[0]])
    return found


def _partners(plan: NegativePlan, rows: Tensor) -> Tensor:
    held = rows[:, Column.HELD]
    target = draw_partners(plan, WordStreams(rows[:, Column.STREAM]), held, rows[:, Column.TARGETS])
    return torch.stack([held, target], dim=1)


@dataclass(frozen=True, eq=False)
class _Nodes:  # nodes of one type whose ids are wanted
    node_type: int
    number: Tensor  # [n] int64, original ids, or positions in the order
    order: NodeOrder | None = None


class RankFinder:
    """The `LinkFinder` of a graph over ranks. ``plans``: by relation.

    A macrobatch takes two rounds to look up ends that other ranks own, and two more if negatives
    must not be edges (kind LOOKUP). One rank alone makes no exchange.
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
        none = torch.empty(0, dtype=torch.int64)
        drawn: list[tuple[Tensor, Tensor]] = [(none, none)] * len(draws)
        asked: dict[int, tuple[Relation, NegativeDraw]] = {}
        for at, draw in enumerate(draws):
            if draw.negatives is None:
                continue
            if isinstance(draw.negatives, GivenDraw):
                drawn[at] = none, draw.negatives.drawn.target
            elif self._plans[draw.links.relation].answers is None:
                drawn[at] = _free_draw(draw.negatives)
            else:
                asked[at] = draw.links.relation, draw.negatives
        if self._questions.relations:
            answers = self._questions.ask(list(asked.values()), header)
            drawn = [drawn[at] if at not in asked else next(answers) for at in range(len(draws))]
        return drawn

    def _ends(self, draw: LinkDraw, drawn: tuple[Tensor, Tensor]) -> list[_Nodes]:
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
    if draw.plan.mode is NegativeMode.BINARY:
        return draw.pairs()
    streams = draw.streams(End.TARGET)
    return draw.positive[:0], draw_partners(draw.plan, streams, draw.source, draw.allowed[End.TARGET])
