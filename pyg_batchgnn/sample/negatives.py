"""Negatives: pairs of nodes drawn to stand beside the links of a minibatch.

Every draw is keyed by (seed, epoch, minibatch key, end, position), so negatives do not depend on
threads or on the way a macrobatch is made (docs/concepts/sampling-contract.md gives the law).
"""

from __future__ import annotations

import enum
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pyg_batchgnn.data import Relation
from pyg_batchgnn.ops import fold_key
from pyg_batchgnn.sample.existing_pairs import ExistingPairs
from pyg_batchgnn.sample.node_pool import NodePool

#: Candidates of a negative that must not be an edge, before it is drawn among what is free.
TRIES = 8
_NEGATIVE = int.from_bytes(b"negative", "little")


class NegativeMode(enum.Enum):
    """The form of negatives (PyG's ``NegativeSampling``)."""

    BINARY = "binary"  # pairs of which both ends are drawn
    TRIPLET = "triplet"  # targets for the source of each positive


class LateNegatives(enum.Enum):
    """The treatment of links that are earlier than every node that a negative may be."""

    WARN = "warn"  # the negative is the earliest node, as in PyG
    RAISE = "raise"

    @classmethod
    def parse(cls, given: object) -> LateNegatives:
        """Returns the member of that name.

        Raises:
            ValueError: there is none.
        """
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
    """The negatives of one minibatch and one relation.

    Attributes:
        source, target: [N] int64, their ends.
        positive: [N] int64, the number of the positive that each belongs to.
    """

    source: Tensor
    target: Tensor
    positive: Tensor


@dataclass(frozen=True, eq=False)
class NegativePlan:
    """The rule by which the negatives of one relation are drawn.

    Attributes:
        mode: their form.
        amount: negatives per positive. A minibatch of P links has ceil(P * amount).
        sources, targets: the nodes that the ends are drawn from.
        existing: the pairs to avoid, held by target for `NegativeMode.BINARY` and by source for
            `NegativeMode.TRIPLET`; None avoids none.
    """

    mode: NegativeMode
    amount: float
    sources: NodePool
    targets: NodePool
    existing: ExistingPairs | None = None

    @property
    def drawn(self) -> dict[End, NodePool]:
        """The pools of the ends that are drawn."""
        targets = {End.TARGET: self.targets}
        return targets if self.mode is NegativeMode.TRIPLET else {End.SOURCE: self.sources, **targets}

    def count(self, positives: int) -> int:
        """Returns the number of negatives of a minibatch with P links."""
        return math.ceil(positives * self.amount)

    def early(self, time: Tensor) -> Tensor:
        """Returns the positions of links that are earlier than every node of an end that is drawn.

        Args:
            time: [P] int64, the times of the links.
        """
        found = torch.zeros(len(time), dtype=torch.bool)
        for pool in self.drawn.values():
            if len(time) and pool.earliest and not int(pool.allowed(time.min().view(1), 1)):
                found |= pool.allowed(time, len(time)) == 0
        return found.nonzero().view(-1)


def check_early_links(
    links: Sequence[tuple[Relation, Tensor | None, NegativePlan]], late: LateNegatives, stacklevel: int
) -> bool:
    """Warns once, or raises, if links are earlier than every node that their negatives may be.

    Args:
        links: for each relation, the times of its links, [P] int64 or None, and their plan.
        late: what is done about them.
        stacklevel: that of the warning, counted from the caller.

    Returns:
        True if there are such links.

    Raises:
        ValueError: there are such links, and ``late`` says so.
    """
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
    """Returns the key of the negatives of a minibatch.

    Args:
        seed: the seed of the sampler.
        epoch: the epoch.
        minibatch: the minibatch's key.
        relation: the digest of the relation's names; None in a graph of one type and one relation.
    """
    key = 0
    for part in (seed, epoch, minibatch, _NEGATIVE):
        key = fold_key(key, part % 2**64)
    return key if relation is None else fold_key(key, relation)
