"""Negatives: pairs of nodes drawn to stand beside the links of a minibatch.

Every draw is keyed by (seed, epoch, minibatch key, end, position), so negatives do not depend on
threads or on the way a macrobatch is made (docs/concepts/sampling-contract.md gives the law).
"""

from __future__ import annotations

import enum
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch_geometric.sampler import NegativeSampling

from pyg_batchgnn.ops import WordStreams, fold_key, to_signed
from pyg_batchgnn.sample.node_pool import ExistingPairs, NodePool
from pyg_batchgnn.store import TypedGraph
from pyg_batchgnn.types import Group, Relation, RowKind, Schema

#: Candidates of a negative that must not be an edge, before it is drawn among what is free.
TRIES = 8
_NEGATIVE = int.from_bytes(b"negative", "little")


class NegativeMode(enum.Enum):
    """The form of negatives (PyG's ``NegativeSampling``)."""

    BINARY = "binary"  # pairs, both ends drawn
    TRIPLET = "triplet"  # targets for the source of each positive


class LateNegatives(enum.Enum):
    """The choice for links that are earlier than every node that a negative may take."""

    WARN = "warn"  # the negative is the earliest node, as in PyG
    RAISE = "raise"

    @classmethod
    def parse(cls, given: object) -> LateNegatives:
        try:
            return cls(given)
        except ValueError:
            raise ValueError(f"late_negatives must be 'warn' or 'raise', got {given!r}") from None


class End(enum.IntEnum):
    """The end of a link; part of the key of its draws."""

    SOURCE = 0
    TARGET = 1


@dataclass(frozen=True, eq=False)
class Negatives:
    """The negatives of a minibatch's links of one relation."""

    # source, target: [N] int64, their ends.
    source: Tensor
    target: Tensor
    positive: Tensor  # [N] int64, the number of the positive that each belongs to


@dataclass(frozen=True, eq=False)
class NegativePlan:
    """How negatives of one relation are drawn, as worked out from the loader's arguments."""

    mode: NegativeMode
    amount: float  # negatives per positive. A minibatch of P links has ceil(P * amount).
    # sources, targets: the nodes that the ends are drawn from.
    sources: NodePool
    targets: NodePool
    # The pairs to avoid, held by target for `NegativeMode.BINARY` and by source for
    # `NegativeMode.TRIPLET`; None avoids none.
    existing: ExistingPairs | None = None

    @property
    def drawn(self) -> dict[End, NodePool]:
        targets = {End.TARGET: self.targets}
        return targets if self.mode is NegativeMode.TRIPLET else {End.SOURCE: self.sources, **targets}

    def count(self, positives: int) -> int:
        return math.ceil(positives * self.amount)

    def early(self, time: Tensor) -> Tensor:
        """Returns the positions of links that are earlier than every node that may replace one of
        their ends. ``time``: [P] int64, the times of the links."""
        found = torch.zeros(len(time), dtype=torch.bool)
        for pool in self.drawn.values():
            if len(time) and pool.earliest and not int(pool.allowed(time.min().view(1), 1)):
                found |= pool.allowed(time, len(time)) == 0
        return found.nonzero().view(-1)


def check_early_links(
    links: Sequence[tuple[Relation, Tensor | None, NegativePlan]], late: LateNegatives, stacklevel: int
) -> bool:
    """Warns once, or raises ValueError, by ``late``, if links are earlier than every node that a
    negative may take. Returns whether there are such links. ``links``: by relation, the times of
    its links, [P] int64 or None, and their plan. ``stacklevel``: of the warning."""
    found = [(name, time, plan.early(time)) for name, time, plan in links if time is not None]
    early = [one for one in found if len(one[2])]
    if not early:
        return False
    relation, time, at = early[0]
    count, total = sum(len(one[2]) for one in early), sum(len(one[1]) for one in found)
    fact = (
        f"{count} of {total} links are earlier than every node of an end's type, so no negative exists at "
        f"their time (the first is link {int(at[0])} of {relation}, at time {int(time[at[0]])})"
    )
    if late is LateNegatives.RAISE:
        raise ValueError(
            f"{fact}, and late_negatives='raise'; leave these links out, give them later times, or take "
            f"late_negatives='warn', which draws the earliest node as PyG does"
        )
    warnings.warn(
        f"{fact}; their negatives are the earliest node, as in PyG, which is later than the link: a model "
        f"can tell such negatives by their time. Leave these links out, or give late_negatives='raise' to "
        f"refuse them; loader.stats() counts them as late_negatives",
        stacklevel=stacklevel + 1,
    )
    return True


def negative_key(seed: int, epoch: int, minibatch: int, relation: int | None) -> int:
    """Returns the key of the negatives of a minibatch. ``relation``: the digest of the relation's
    names; None in a graph of one type and one relation."""
    key = 0
    for part in (seed, epoch, minibatch, _NEGATIVE):
        key = fold_key(key, part % 2**64)
    return key if relation is None else fold_key(key, relation)


def negative_plan(
    sampling: NegativeSampling,
    relation: Relation,
    graph: TypedGraph,
    times: Mapping[Group, Tensor] | None,
    avoids_edges: bool,
) -> NegativePlan:
    """Returns how the negatives of a relation are drawn. ``times``: by group of nodes, the time
    from which each node exists; None if links have no times. ``avoids_edges``: True if negatives
    must not be edges of the relation."""
    mode = NegativeMode(sampling.mode.value)
    pools: list[NodePool] = []
    counts = [graph.num_nodes[graph.schema.type_number(end)] for end in (relation[0], relation[2])]
    for node_type, count, weight in zip(
        (relation[0], relation[2]), counts, end_weights(sampling, relation, counts), strict=True
    ):
        time = None if times is None else times.get(Group(RowKind.NODE, node_type))
        pools.append(NodePool.of(count, time, weight))
    sources, targets = pools
    existing = None
    if avoids_edges:
        check_relation(relation, graph.schema)
        held_by = ExistingPairs.by_target if mode is NegativeMode.BINARY else ExistingPairs.by_source
        existing = held_by(graph.in_edges(relation), sources, targets)
    return NegativePlan(mode, sampling.amount, sources, targets, existing)


def end_weights(sampling: NegativeSampling, relation: Relation, counts: Sequence[int]) -> list[Tensor | None]:
    """Returns the weights of candidates for sources and for targets of negatives, or None each."""
    ends = ("src_weight", relation[0], counts[0]), ("dst_weight", relation[2], counts[1])
    return [_weight(name, getattr(sampling, name), node_type, count) for name, node_type, count in ends]


def check_relation(relation: Relation, schema: Schema) -> None:
    if relation not in schema.relations:
        raise ValueError(
            f"exclude_existing=True avoids edges of {relation}, which the graph does not have; it has "
            f"{list(schema.relations)}"
        )


def _weight(name: str, weight: Any, node_type: str, count: int) -> Tensor | None:
    if weight is None:
        return None
    if not isinstance(weight, Tensor) or not weight.dtype.is_floating_point:
        found = weight.dtype if isinstance(weight, Tensor) else type(weight).__name__
        raise TypeError(f"{name} must be a tensor of floating point numbers, got {found}; use .float()")
    if list(weight.shape) != [count]:
        raise ValueError(
            f"{name} has shape {list(weight.shape)} for {count} nodes of type {node_type!r}; give one weight "
            f"for each"
        )
    wrong = (~torch.isfinite(weight) | (weight < 0)).nonzero().view(-1)
    if wrong.numel():
        node = int(wrong[0])
        raise ValueError(
            f"{name} of node {node} is {float(weight[node])}: weights must be finite and not negative"
        )
    return weight.detach().cpu()


#: The position where there is nothing to draw.
NOTHING = -1


def draw_partners(plan: NegativePlan, streams: WordStreams, source: Tensor, allowed: Tensor) -> Tensor:
    """Draws for each source [w] a target without an edge from it, of the first ``allowed`` [w]."""
    pool, existing = plan.targets, plan.existing
    pending = torch.arange(source.numel())
    if existing is None:
        return pool.draw(streams, pending, allowed)
    target = torch.empty_like(source)
    for _ in range(TRIES):
        if not pending.numel():
            break
        target[pending] = pool.draw(streams, pending, allowed[pending])
        pending = pending[existing.contain(source[pending], target[pending])]
    for number in pending.tolist():
        taken = existing.others(int(source[number]))
        found = pool.draw_outside(streams, number, int(allowed[number]), taken)
        target[number] = NOTHING if found is None else found
    return target


def free_pair(
    plan: NegativePlan, streams: WordStreams, which: int, target: int, sources: int, targets: int
) -> tuple[int, int] | None:
    """Returns the positions of a source and a target that no edge joins, or None if every pair is
    joined. The target is the given one, or the first one after it with such a source."""
    pool, existing = plan.targets, plan.existing
    assert existing is not None
    for held in existing.known_from(target, targets):
        if pool.weight is not None and pool.weight[held] == 0:
            continue
        source = plan.sources.draw_outside(streams, which, sources, existing.others(held))
        if source is not None:
            return source, held
    return None


class GivenDraw:
    """The negatives that the user gave for the links of a minibatch, [P, k] targets."""

    late, is_triplet = 0, True

    def __init__(self, source: Tensor, targets: Tensor) -> None:
        self.amount, self.count = targets.size(1), targets.numel()
        self.positive = torch.arange(source.numel()).repeat_interleave(self.amount)
        self.drawn = Negatives(source[self.positive], targets.reshape(-1), self.positive)

    def draw(self) -> Negatives:
        return self.drawn


def accidental_hits(source: Tensor, target: Tensor) -> Tensor:
    """Returns [2, H] int64, the pairs of different links (i, j) such that the target of j is a
    target of i's source, by link i or another of these links."""
    (_, s), (targets, t) = (end.unique(return_inverse=True) for end in (source, target))
    size = max(1, len(targets))
    pair, order = (s * size + t).unique(), t.sort(stable=True).indices
    link, row = _equal(s, pair // size)
    found, place = _equal((pair % size)[row], t)
    hits = torch.stack([link[found], order[place]])
    return hits[:, hits[0] != hits[1]]


def _equal(values: Tensor, others: Tensor) -> tuple[Tensor, Tensor]:
    """Returns for each pair of equal ranks its places in ``values`` and in sorted ``others``."""
    count = others.bincount()
    first, count = (count.cumsum(0) - count)[values], count[values]
    number = torch.arange(len(values)).repeat_interleave(count)
    return number, torch.arange(len(number)) + (first - count.cumsum(0) + count)[number]


class NegativeDraw:
    """Draws the negatives of a minibatch's links of one relation."""

    def __init__(
        self, plan: NegativePlan, source: Tensor, target: Tensor, time: Tensor | None, key: int
    ) -> None:
        self.plan, self._ends = plan, (source, target)
        self.is_triplet, self.amount = plan.mode is NegativeMode.TRIPLET, plan.amount
        numbers = torch.arange(plan.count(source.numel()))
        self.positive = numbers // int(plan.amount) if self.is_triplet else numbers % max(source.numel(), 1)
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
        return self.positive.numel()

    def streams(self, end: End) -> WordStreams:
        """Returns the streams of random words for one end, at their beginning."""
        return WordStreams(self.keys[end])

    def draw(self) -> Negatives:
        if self.is_triplet:
            target = draw_partners(self.plan, self.streams(End.TARGET), self.source, self.allowed[End.TARGET])
            return Negatives(self.source, self.plan.targets.node(self.found(target)), self.positive)
        source, target = self.pairs()
        sources, targets = self.plan.sources, self.plan.targets
        return Negatives(sources.node(self.found(source)), targets.node(target), self.positive)

    def found(self, position: Tensor) -> Tensor:
        """Returns ``position`` [N] int64. Raises ValueError, with a link, where it is `NOTHING`."""
        nothing = (position == NOTHING).nonzero()
        if not nothing.numel():
            return position
        number = int(nothing[0, 0])
        why, remedy = "every pair of nodes that is allowed is an edge", ""
        if self.is_triplet:
            why = f"an edge leads from node {int(self.source[number])} to every node that is allowed"
            remedy = ", or leave the link out"
        what = f"link {self._named(number)} has no negative"
        raise ValueError(f"{what}: {why}; leave exclude_existing out{remedy}")

    def candidates(self) -> tuple[Tensor, Tensor, WordStreams]:
        """Draws all candidates of binary negatives that must not be edges. Returns [TRIES, N]
        positions of sources and of targets, and the streams of the sources for more draws."""
        heads, tails, every = self.streams(End.SOURCE), self.streams(End.TARGET), torch.arange(self.count)
        drawn = [self._pair(heads, tails, every) for _ in range(TRIES)]
        source, target = (torch.stack(ends) for ends in zip(*drawn, strict=True))
        return source, target, heads

    def pairs(self) -> tuple[Tensor, Tensor]:
        """Draws both ends of each negative; returns their positions, [N] int64 each."""
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
        sources, targets = (self.allowed[end][which] for end in End)
        return self.plan.sources.draw(heads, which, sources), self.plan.targets.draw(tails, which, targets)

    def _existing(self, pending: Tensor, source: Tensor, target: Tensor) -> Tensor:
        if self.plan.existing is None:
            return pending[:0]
        return pending[self.plan.existing.contain(target[pending], source[pending])]

    def _refuse_none(self, end: End) -> None:
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
