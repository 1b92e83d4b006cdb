"""Questions to other ranks whether candidates of negatives are edges, and their answers."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor

from pyg_batchgnn.comm import Communicator, Header
from pyg_batchgnn.data import Relation
from pyg_batchgnn.ops import WordStreams
from pyg_batchgnn.sample.free_negatives import NOTHING, draw_partners, free_pair
from pyg_batchgnn.sample.negative_draw import NegativeDraw
from pyg_batchgnn.sample.negatives import TRIES, End, NegativeMode, NegativePlan
from pyg_batchgnn.sample.rank_plan import RankPlan
from pyg_batchgnn.store import ask


class Column(enum.IntEnum):
    """The words of a question.

    A question is about a candidate of a binary negative, whose target is the held end, or about a
    whole triplet negative, whose source is the held end.
    """

    RELATION = 0  # the number of the relation among those whose negatives avoid edges
    HELD = 1  # the held end
    OTHER = 2  # the source of a candidate
    STREAM = 3  # the key with which the stream of the end to draw goes on
    SOURCES = 4  # how many sources are allowed
    TARGETS = 5  # how many targets are allowed; 0 for a candidate that is not the last one


class EdgeQuestions:
    """Draws negatives that must not be edges, with the help of the ranks that know the edges.

    The rank that answers for a candidate's target says whether an edge joins the two. If one joins
    the last candidate, it also draws another source. A triplet's target is drawn by the rank that
    answers for its source.

    Args:
        comm: of all ranks.
        plans: the plans of negatives by relation.
    """

    def __init__(self, comm: Communicator, plans: Mapping[Relation, RankPlan]) -> None:
        self._comm = comm
        self._plans = {relation: plan for relation, plan in plans.items() if plan.answers is not None}
        self._numbers = {relation: number for number, relation in enumerate(self._plans)}

    @property
    def relations(self) -> list[Relation]:
        """The relations whose negatives must not be edges."""
        return list(self._plans)

    def ask(
        self, draws: Sequence[tuple[Relation, NegativeDraw]], header: Header
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Draws negatives. Collective, two rounds.

        Args:
            draws: the drawings, each with the relation of its links.
            header: of the exchanges.

        Returns:
            The positions of sources, none for triplets, and of targets, for each drawing.

        Raises:
            ValueError: a negative cannot be drawn. The message names its link.
        """
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
        """Returns the held and the other end of a pair that is no edge, for each question.

        They are `NOTHING` where a candidate is an edge, or where nothing is free.
        """
        found = torch.empty(len(rows), 2, dtype=torch.int64)
        for number, plan in enumerate(self._plans.values()):
            which = (rows[:, Column.RELATION] == number).nonzero().view(-1)
            answer = _pairs if plan.plan.mode is NegativeMode.BINARY else _partners
            found[which] = answer(plan.plan, rows[which])
        return found


def _questions(draw: NegativeDraw) -> Tensor:
    """Returns the questions about the negatives of one drawing, but for their relation."""
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
    """Returns the positions of sources and of targets of one drawing, given the answers."""
    if draw.plan.mode is NegativeMode.TRIPLET:
        return draw.positive[:0], draw.found(answers[:, 1].contiguous())
    tries = answers.view(TRIES, draw.count, 2)
    first = (tries[..., 0] != NOTHING).to(torch.uint8).argmax(0)
    target, source = tries[first, torch.arange(draw.count)].t().contiguous()
    return draw.found(source), target


def _pairs(plan: NegativePlan, rows: Tensor) -> Tensor:
    """Answers questions about candidates of binary negatives."""
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
    """Answers questions about triplet negatives."""
    held = rows[:, Column.HELD]
    target = draw_partners(plan, WordStreams(rows[:, Column.STREAM]), held, rows[:, Column.TARGETS])
    return torch.stack([held, target], dim=1)
