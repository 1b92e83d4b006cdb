"""The positions of a loader's inputs, which are of several types one after the other."""

from __future__ import annotations

from collections.abc import Sequence, Sized
from dataclasses import dataclass

import torch
from torch import Tensor

from pyg_batchgnn.ops import check_range


class Places:
    """The positions of inputs, of which those of one type come after those of the other.

    Args:
        parts: the inputs of each type.
    """

    def __init__(self, parts: Sequence[Sized]) -> None:
        self._ends = torch.tensor([0, *map(len, parts)]).cumsum(0)

    def __len__(self) -> int:
        return int(self._ends[-1])

    def within(self, positions: Tensor) -> list[Tensor]:
        """Returns the positions within each type's inputs, in their order.

        Args:
            positions: [n] int64.

        Raises:
            IndexError: there is no such position.
        """
        check_range("the minibatch", positions, len(self), "positions of the loader's inputs")
        parts = self._ends.numel() - 1
        if parts == 1:
            return [positions]
        number = self.parts_of(positions)
        return [positions[number == one] - self._ends[one] for one in range(parts)]

    def parts_of(self, positions: Tensor) -> Tensor:
        """Returns the number of the part that each position belongs to, [n] int64."""
        return torch.searchsorted(self._ends[1:], positions, right=True)


@dataclass(frozen=True, eq=False)
class OwnPositions:
    """The positions of links that are edges of this rank, among all edges of their relation.

    Attributes:
        position: [m] int64, ascending.
        total: the number of all links.
        sum: the sum of the digests of all links; see `links_sum`.
    """

    position: Tensor
    total: int
    sum: int

    def column(self, at: Tensor) -> Tensor:
        """Returns which of this rank's links are at some positions.

        Raises:
            IndexError: a link is an edge of another rank.
        """
        column = torch.searchsorted(self.position, at)
        found = torch.cat([self.position, torch.tensor([-1])])[column] == at
        if not bool(found.all()):
            raise IndexError(
                f"link {int(at[~found][0])} is an edge of another rank, the owner of its target: give "
                f"positions of this rank's own edges, or edge_label_index on every rank"
            )
        return column
