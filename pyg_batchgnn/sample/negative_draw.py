"""Drawing the negatives of a minibatch."""

from __future__ import annotations

import torch
from torch import Tensor

from pyg_batchgnn.ops import WordStreams, fold_key, to_signed
from pyg_batchgnn.sample.free_negatives import NOTHING, draw_partners, free_pair
from pyg_batchgnn.sample.negatives import TRIES, End, NegativeMode, NegativePlan, Negatives


def draw_negatives(
    plan: NegativePlan, source: Tensor, target: Tensor, time: Tensor | None, key: int
) -> Negatives:
    """Draws the negatives of a minibatch, where everything is here; see `NegativeDraw`."""
    return NegativeDraw(plan, source, target, time, key).draw()


class NegativeDraw:
    """The drawing of the negatives of one minibatch and one relation.

    Args:
        plan: the rule.
        source, target: [P] int64, the ends of its links.
        time: [P] int64, the time of each link, or None.
        key: the key of the draws (`negative_key`).

    Attributes:
        plan: the rule.
        positive: [N] int64, the number of the link that each negative belongs to.
        source: [N] int64, the source of this link.
        allowed: by end that is drawn, [N] int64: how many nodes are allowed, at least one.
        late: how many negatives have an end that is later than their link, because no node is
            earlier. It is the earliest one.
        keys: by end, [N] int64: the keys of the draws.

    Raises:
        ValueError: there is no node that a negative can be. The message names its link.
    """

    def __init__(
        self, plan: NegativePlan, source: Tensor, target: Tensor, time: Tensor | None, key: int
    ) -> None:
        self.plan, self._ends = plan, (source, target)
        numbers = torch.arange(plan.count(source.numel()))
        is_binary = plan.mode is NegativeMode.BINARY
        self.positive = numbers % max(source.numel(), 1) if is_binary else numbers // int(plan.amount)
        self.source = source[self.positive]
        time = None if time is None else time[self.positive]
        found = {end: pool.allowed(time, self.count) for end, pool in plan.drawn.items()}
        late = {end: (found[end] == 0) & (pool.earliest > 0) for end, pool in plan.drawn.items()}
        self.late = int(torch.stack(list(late.values())).any(0).sum())
        self.allowed = {
            end: found[end].masked_fill(late[end], pool.earliest) for end, pool in plan.drawn.items()
        }
        for end in self.allowed:
            self._refuse_none(end)
        self.keys = {end: fold_key(torch.tensor(to_signed(fold_key(key, int(end)))), numbers) for end in End}

    @property
    def count(self) -> int:
        """The number of negatives, N."""
        return self.positive.numel()

    def streams(self, end: End) -> WordStreams:
        """Returns the streams of words of an end, from their beginning."""
        return WordStreams(self.keys[end])

    def draw(self) -> Negatives:
        """Draws the negatives, where the nodes of the pools and the existing pairs are here."""
        if self.plan.mode is NegativeMode.TRIPLET:
            target = draw_partners(self.plan, self.streams(End.TARGET), self.source, self.allowed[End.TARGET])
            return Negatives(self.source, self.plan.targets.node(self.found(target)), self.positive)
        source, target = self.pairs()
        sources, targets = self.plan.sources, self.plan.targets
        return Negatives(sources.node(self.found(source)), targets.node(target), self.positive)

    def found(self, position: Tensor) -> Tensor:
        """Returns the positions of an end, [N] int64.

        Raises:
            ValueError: there is `NOTHING` among them. The message names the link.
        """
        nothing = (position == NOTHING).nonzero()
        if not nothing.numel():
            return position
        number = int(nothing[0, 0])
        why, remedy = "every pair of nodes that is allowed is an edge", ""
        if self.plan.mode is NegativeMode.TRIPLET:
            source = int(self.source[number])
            why = f"an edge leads from node {source} to every node that is allowed"
            remedy = ", or leave the link out"
        raise ValueError(
            f"link {self._named(number)} has no negative: {why}; leave exclude_existing out{remedy}"
        )

    def candidates(self) -> tuple[Tensor, Tensor, WordStreams]:
        """Draws the candidates of binary negatives that must not be edges, all at once.

        Returns:
            [TRIES, N] positions of sources and of targets, and the streams of the sources after
            them.
        """
        heads, tails, every = self.streams(End.SOURCE), self.streams(End.TARGET), torch.arange(self.count)
        drawn = [self._pair(heads, tails, every) for _ in range(TRIES)]
        source, target = (torch.stack(ends) for ends in zip(*drawn, strict=True))
        return source, target, heads

    def pairs(self) -> tuple[Tensor, Tensor]:
        """Draws both ends of each negative, by position."""
        plan, heads, tails = self.plan, self.streams(End.SOURCE), self.streams(End.TARGET)
        every = torch.arange(self.count)
        source, target = self._pair(heads, tails, every)
        pending = self._existing(every, source, target)
        for _ in range(TRIES - 1):
            if not pending.numel():
                return source, target
            source[pending], target[pending] = self._pair(heads, tails, pending)
            pending = self._existing(pending, source, target)
        for number in pending.tolist():
            limits = int(self.allowed[End.SOURCE][number]), int(self.allowed[End.TARGET][number])
            pair = free_pair(plan, heads, number, int(target[number]), *limits)
            source[number], target[number] = (NOTHING, NOTHING) if pair is None else pair
        return source, target

    def _pair(self, heads: WordStreams, tails: WordStreams, which: Tensor) -> tuple[Tensor, Tensor]:
        """Draws one candidate for each of some negatives."""
        sources, targets = (self.allowed[end][which] for end in End)
        return self.plan.sources.draw(heads, which, sources), self.plan.targets.draw(tails, which, targets)

    def _existing(self, pending: Tensor, source: Tensor, target: Tensor) -> Tensor:
        """Returns which of the pending binary negatives are edges."""
        if self.plan.existing is None:
            return pending[:0]
        return pending[self.plan.existing.contain(target[pending], source[pending])]

    def _refuse_none(self, end: End) -> None:
        """Raises ValueError if a negative has no node that this end can be, at any time."""
        if not self.count or bool(self.allowed[end].all()):
            return
        number = int((self.allowed[end] == 0).nonzero()[0, 0])
        why, remedy = "the graph has no node of its type", ""
        if self.plan.drawn[end].num_nodes:
            why, remedy = "no node of positive weight exists", ", or give weights that are positive"
        what = f"link {self._named(number)} has no negative {end.name.lower()}"
        raise ValueError(f"{what}: {why}; leave the link out{remedy}")

    def _named(self, number: int) -> str:
        source, target = (int(end[self.positive[number]]) for end in self._ends)
        return f"({source}, {target})"
