"""The law of negatives in plain Python (docs/concepts/sampling-contract.md), slow and obvious."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from tests.support.reference_sampler import bounded, fold, fold_all, words

NEGATIVE = int.from_bytes(b"negative", "little")
TRIES = 8
BLOCK = 4096


def reference_negative_key(seed: int, epoch: int, minibatch: int, relation: int | None) -> int:
    key = fold_all([seed, epoch, minibatch, NEGATIVE])
    return key if relation is None else fold(key, relation)


def stream(key: int, end: int, number: int) -> Iterator[int]:
    return words(fold(fold(key, end), number))


@dataclass
class ReferencePool:
    """The nodes that one end is drawn from, with a time and a weight each, or None."""

    num_nodes: int
    time: Sequence[int] | None = None
    weight: Sequence[float] | None = None

    @property
    def order(self) -> list[int]:
        """The nodes in the order in which they become allowed."""
        nodes = range(self.num_nodes)
        return list(nodes) if self.time is None else sorted(nodes, key=lambda node: (self.time[node], node))

    def allowed(self, when: int | None) -> list[int]:
        order = self.order
        found = sum(self.time is None or self.time[node] <= when for node in order)
        for count in range(found, self.num_nodes + 1):
            if any(self.weight is None or self.weight[node] for node in order[:count]):
                return order[:count]
        raise ValueError("no node is allowed")

    def draw(self, word: Iterator[int], allowed: Sequence[int]) -> int:
        if self.weight is None:
            return allowed[bounded(word, len(allowed))]
        weights = [self.weight[node] for node in self.order]
        inner = [list(accumulate(weights[at : at + BLOCK])) for at in range(0, len(weights), BLOCK)]
        outer = [0.0, *accumulate(block[-1] for block in inner)]
        last, rest = divmod(len(allowed) - 1, BLOCK)
        level = (next(word) >> 11) * 2.0**-53 * (outer[last] + inner[last][rest])
        block = next(at for at in range(last + 1) if level < outer[at + 1])
        sums = inner[block][: rest + 1] if block == last else inner[block]
        level -= outer[block]
        found = next((at for at, value in enumerate(sums) if level < value), sums.index(sums[-1]))
        return allowed[block * BLOCK + found]

    def draw_free(self, word: Iterator[int], allowed: Sequence[int], taken: set[int]) -> int | None:
        if self.weight is None:
            free = [node for node in allowed if node not in taken]
            return free[bounded(word, len(free))] if free else None
        sums = list(accumulate(0.0 if node in taken else self.weight[node] for node in allowed))
        if not sums or sums[-1] == 0:
            return None
        level = (next(word) >> 11) * 2.0**-53 * sums[-1]
        return allowed[next(at for at, value in enumerate(sums) if level < value)]


@dataclass
class ReferenceNegatives:
    """The plan of one relation: PyG's amounts, pools, and the edges to avoid, or None."""

    amount: float
    sources: ReferencePool
    targets: ReferencePool
    edges: set[tuple[int, int]] | None = None

    def binary(
        self, links: Sequence[tuple[int, int]], times: Sequence[int] | None, key: int
    ) -> list[tuple[int, int]]:
        """Pairs of which both ends are drawn; negative j has the time of link j mod P."""
        return [
            self._pair(key, j, None if times is None else times[j % len(links)])
            for j in range(math.ceil(len(links) * self.amount))
        ]

    def triplet(
        self, links: Sequence[tuple[int, int]], times: Sequence[int] | None, key: int
    ) -> list[list[int]]:
        """Targets for the source of each link; link i has the negatives i K, ..., i K + K - 1."""
        amount = int(self.amount)
        return [
            [
                self._target(key, i * amount + k, source, None if times is None else times[i])
                for k in range(amount)
            ]
            for i, (source, _) in enumerate(links)
        ]

    def _pair(self, key: int, number: int, when: int | None) -> tuple[int, int]:
        heads, tails = stream(key, 0, number), stream(key, 1, number)
        sources, targets = self.sources.allowed(when), self.targets.allowed(when)
        for _ in range(TRIES):
            pair = self.sources.draw(heads, sources), self.targets.draw(tails, targets)
            if self.edges is None or pair not in self.edges:
                return pair
        at = targets.index(pair[1])
        for target in targets[at:] + targets[:at]:
            if self.targets.weight is not None and self.targets.weight[target] == 0:
                continue
            taken = {source for source, end in self.edges if end == target}
            source = self.sources.draw_free(heads, sources, taken)
            if source is not None:
                return source, target
        raise ValueError("every pair exists")

    def _target(self, key: int, number: int, source: int, when: int | None) -> int:
        word, targets = stream(key, 1, number), self.targets.allowed(when)
        for _ in range(TRIES):
            target = self.targets.draw(word, targets)
            if self.edges is None or (source, target) not in self.edges:
                return target
        taken = {end for begin, end in self.edges if begin == source}
        found = self.targets.draw_free(word, targets, taken)
        if found is None:
            raise ValueError("every target is taken")
        return found
