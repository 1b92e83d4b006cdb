"""Drawing the negatives of a minibatch."""

from __future__ import annotations

import torch
from torch import Tensor

from pyg_batchgnn.ops import WordStreams, fold_key, to_signed
from pyg_batchgnn.sample.negatives import TRIES, End, NegativeMode, NegativePlan, Negatives
from pyg_batchgnn.sample.node_pool import NodePool


def draw_negatives(
    plan: NegativePlan, source: Tensor, target: Tensor, time: Tensor | None, key: int
) -> Negatives:
    """Draws the negatives of a minibatch.

    Args:
        plan: the rule.
        source, target: [P] int64, the ends of its links.
        time: [P] int64, the time of each link, or None.
        key: the key of the draws (`negative_key`).

    Raises:
        ValueError: a negative cannot be drawn. The message names its link.
    """
    numbers = torch.arange(plan.count(source.numel()))
    is_binary = plan.mode is NegativeMode.BINARY
    positive = numbers % max(source.numel(), 1) if is_binary else numbers // int(plan.amount)
    draw = _Draw(plan, key, Negatives(source, target, positive), time)
    return draw.pairs() if is_binary else draw.partners()


class _Draw:
    """The drawing of one minibatch's negatives.

    Args:
        plan: the rule.
        key: the key of the draws.
        links: the ends of the positives, and the positive of each negative.
        time: [P] int64, the time of each positive, or None.
    """

    def __init__(self, plan: NegativePlan, key: int, links: Negatives, time: Tensor | None) -> None:
        self._plan, self._links = plan, links
        self._count = links.positive.numel()
        self._time = None if time is None else time[links.positive]
        numbers = torch.arange(self._count)
        self._streams = {
            end: WordStreams(fold_key(torch.tensor(to_signed(fold_key(key, int(end)))), numbers))
            for end in End
        }

    def pairs(self) -> Negatives:
        """Draws both ends of each negative."""
        sources, targets = self._plan.sources, self._plan.targets
        allowed = {
            End.SOURCE: self._allowed(sources, "source"),
            End.TARGET: self._allowed(targets, "target"),
        }
        source, target = torch.empty(2, self._count, dtype=torch.int64)
        pending = torch.arange(self._count)
        for _ in range(self._tries):
            if not pending.numel():
                break
            source[pending] = sources.draw(self._streams[End.SOURCE], pending, allowed[End.SOURCE][pending])
            target[pending] = targets.draw(self._streams[End.TARGET], pending, allowed[End.TARGET][pending])
            pending = self._existing(pending, target, source)
        for number in pending.tolist():
            limits = int(allowed[End.SOURCE][number]), int(allowed[End.TARGET][number])
            source[number], target[number] = self._free_pair(number, int(target[number]), *limits)
        return Negatives(source, target, self._links.positive)

    def partners(self) -> Negatives:
        """Draws a target for the source of each negative's positive."""
        targets, source = self._plan.targets, self._links.source[self._links.positive]
        allowed = self._allowed(targets, "target")
        target = torch.empty(self._count, dtype=torch.int64)
        pending = torch.arange(self._count)
        for _ in range(self._tries):
            if not pending.numel():
                break
            target[pending] = targets.draw(self._streams[End.TARGET], pending, allowed[pending])
            pending = self._existing(pending, source, target)
        for number in pending.tolist():
            target[number] = self._free_target(number, int(source[number]), int(allowed[number]))
        return Negatives(source, target, self._links.positive)

    @property
    def _tries(self) -> int:
        return 1 if self._plan.existing is None else TRIES

    def _existing(self, pending: Tensor, held: Tensor, other: Tensor) -> Tensor:
        """Returns which of the pending negatives are edges."""
        if self._plan.existing is None:
            return pending[:0]
        return pending[self._plan.existing.contain(held[pending], other[pending])]

    def _free_target(self, number: int, source: int, allowed: int) -> int:
        assert self._plan.existing is not None
        taken = self._plan.existing.others(source)
        found = self._plan.targets.draw_outside(self._streams[End.TARGET], number, allowed, taken)
        if found is None:
            raise ValueError(
                f"link {self._named(number)} has no negative: an edge leads from node {source} to every "
                f"node that is allowed; leave exclude_existing out, or leave the link out"
            )
        return found

    def _free_pair(self, number: int, target: int, sources: int, targets: int) -> tuple[int, int]:
        """Returns a pair that is no edge.

        Its target is the last one drawn, or the first after it in the pool's order that has a
        source left.
        """
        assert self._plan.existing is not None
        pool, stream = self._plan.targets, self._streams[End.SOURCE]
        first = int(pool.position(torch.tensor(target)))
        for step in range(targets):
            position = (first + step) % targets
            if pool.weight is not None and pool.weight[position] == 0:
                continue
            target = int(pool.node(torch.tensor(position)))
            taken = self._plan.existing.others(target)
            source = self._plan.sources.draw_outside(stream, number, sources, taken)
            if source is not None:
                return source, target
        raise ValueError(
            f"link {self._named(number)} has no negative: every pair of nodes that is allowed is an edge; "
            f"leave exclude_existing out"
        )

    def _allowed(self, pool: NodePool, end: str) -> Tensor:
        """Returns how many nodes are allowed for each negative, at least one."""
        allowed = pool.allowed(self._time, self._count)
        if self._count and not bool(allowed.all()):
            number = int((allowed == 0).nonzero()[0, 0])
            when = "" if self._time is None else f" at time {int(self._time[number])}"
            then = "" if self._time is None else " then"
            why = "the graph has no node of its type"
            remedies = ["leave the link out"]
            if pool.num_nodes:
                why = f"no node exists{then}"
                if pool.weight is not None:
                    why = f"no node of positive weight exists{then}"
                    remedies.append("give weights that are positive")
                if self._time is not None:
                    remedies.append("give the link a later time")
            raise ValueError(
                f"link {self._named(number)} has no negative {end}{when}: {why}; {', or '.join(remedies)}"
            )
        return allowed

    def _named(self, number: int) -> str:
        positive = int(self._links.positive[number])
        return f"({int(self._links.source[positive])}, {int(self._links.target[positive])})"
