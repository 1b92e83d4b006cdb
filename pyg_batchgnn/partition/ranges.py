"""Cuts a row of nodes into ranges of about equal work."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Sequence
from typing import TypeAlias

#: A function that returns the weight of all nodes before a row, for rows 0 to N; ascending.
Load: TypeAlias = Callable[[int], int]

_PRECISION = 1e-3  # of the bound on the largest load, relative


def balanced_offsets(nodes: int, loads: Sequence[Load], ranks: int) -> list[int]:
    """Returns ranges whose fullest one is as empty as ranges allow, over all loads and relative to
    each load's mean.

    The least bound is found by halving: with one given, each range in turn takes all that fits.
    Within the bound, ends are then put as near as they may to where all loads together are cut
    evenly, so that one heavy node does not leave the other ranges uneven.

    Args:
        nodes: N, the number of rows to cut.
        loads: at least one. A load that is zero everywhere is left out.
        ranks: R, the number of ranges; some may be empty.

    Returns:
        The begin of each range, then N: R + 1 numbers.
    """
    given = [load for load in loads if load(nodes) > 0]
    if not given:
        return [rank * nodes // ranks for rank in range(ranks + 1)]
    cutter = _Cutter(nodes, given, ranks)
    return cutter.even(cutter.least_bound())


class _Cutter:
    def __init__(self, nodes: int, loads: Sequence[Load], ranks: int) -> None:
        self._nodes, self._ranks = nodes, ranks
        self._loads = [(load, load(nodes) / ranks) for load in loads]

    def least_bound(self) -> float:
        """Returns the least load of the fullest range, in means, nearly."""
        low, high = 1.0, float(self._ranks)
        while high > low * (1 + _PRECISION):
            bound = (low + high) / 2
            if self._fits(bound):
                high = bound
            else:
                low = bound
        return high

    def even(self, bound: float) -> list[int]:
        """Returns ranges within a bound that can be kept."""
        least = [self._nodes]  # where each range may begin at the earliest, from the last one on
        for _ in range(self._ranks - 1):
            least.append(self._begin(least[-1], bound))
        offsets = [0]
        for rank, begin in enumerate(reversed(least[1:]), start=1):
            wanted = min(self._cut_at(rank / self._ranks), self._end(offsets[-1], bound))
            offsets.append(max(begin, offsets[-1], wanted))
        return [*offsets, self._nodes]

    def _fits(self, bound: float) -> bool:
        end = 0
        for _ in range(self._ranks):
            end = self._end(end, bound)
        return end == self._nodes

    def _end(self, begin: int, bound: float) -> int:
        """Returns the furthest end of a range within the bound."""
        rows = range(begin, self._nodes + 1)
        ends = (
            bisect.bisect_right(rows, load(begin) + bound * mean, key=load) - 1 + begin
            for load, mean in self._loads
        )
        return max(begin, min(ends))

    def _begin(self, end: int, bound: float) -> int:
        """Returns the earliest begin of a range within the bound."""
        rows = range(end + 1)
        begins = (bisect.bisect_left(rows, load(end) - bound * mean, key=load) for load, mean in self._loads)
        return min(end, max(begins))

    def _cut_at(self, share: float) -> int:
        """Returns the row before which there is a share of all loads."""
        total = share * self._ranks * len(self._loads)

        def weight(row: int) -> float:
            return sum(load(row) / mean for load, mean in self._loads)

        return min(self._nodes, bisect.bisect_left(range(self._nodes + 1), total, key=weight))
