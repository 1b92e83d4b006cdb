"""Links with the pairs that each of them is ranked among."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

#: The words that one step of the generator's counter gives.
_WORDS = 4


class NegativeTargets(Protocol):
    """The targets that each link of a split is ranked among."""

    @property
    def per_link(self) -> int:
        """The number k of targets for each link."""

    def of(self, piece: slice) -> Tensor:
        """Returns [n, k] int64, the targets of some links. ``piece``: their numbers."""


@dataclass(frozen=True, eq=False)
class GivenTargets:
    """Targets that came with the links.

    Attributes:
        table: [n, k] int32 or int64.
    """

    table: Tensor

    @property
    def per_link(self) -> int:
        return int(self.table.size(1))

    def of(self, piece: slice) -> Tensor:
        return self.table[piece].to(torch.int64)


@dataclass(frozen=True, eq=False)
class DrawnTargets:
    """Targets that are drawn at random when they are asked for, evenly from all others.

    Those of a link depend only on the name of the split and the number of the link. Thus they are
    the same in every run, on every rank and in pieces of any size.

    Attributes:
        split: names the relation and the split.
        targets: [n] int32 or int64, the target of each link.
        num_targets: the number of nodes of the target type, at least 2.
        per_link: the number of targets for each link, a multiple of 4.
    """

    split: str
    targets: Tensor
    num_targets: int
    per_link: int

    def of(self, piece: slice) -> Tensor:
        own = self.targets[piece].to(torch.int64).unsqueeze(1)
        counter = piece.start * self.per_link // _WORDS
        words = np.random.Philox(key=zlib.crc32(self.split.encode()), counter=counter)
        drawn = words.random_raw(len(own) * self.per_link) % np.uint64(self.num_targets - 1)
        steps = torch.from_numpy(drawn.astype(np.int64)).view(len(own), self.per_link)
        return (own + 1 + steps) % self.num_targets


@dataclass(frozen=True, eq=False)
class RankedLinks:
    """The links of a split and their negatives, the same on every rank.

    Attributes:
        index: [2, n] int32 or int64, sources above targets.
        negatives: [2, m] pairs that all links are ranked among, or the targets that each link has
            of its own.
    """

    index: Tensor
    negatives: Tensor | NegativeTargets

    def __len__(self) -> int:
        return int(self.index.size(1))
