"""Negatives: pairs of nodes drawn to stand beside the links of a minibatch.

Every draw is keyed by (seed, epoch, minibatch key, end, position), so negatives do not depend on
threads or on the way a macrobatch is made (docs/concepts/sampling-contract.md gives the law).
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass

from torch import Tensor

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

    def count(self, positives: int) -> int:
        """Returns the number of negatives of a minibatch with P links."""
        return math.ceil(positives * self.amount)


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
