"""One numbering for the nodes of all types, or for the adjacency lists of all relations."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from pyg_batchgnn.partition.book import PartitionBook


@dataclass(frozen=True)
class GroupedIds:
    """Ids of members of any groups.

    Attributes:
        id: [n] int64, the id of each member in its group.
        group: [n] int64, the numbers of the groups.
    """

    id: Tensor
    group: Tensor


@dataclass(frozen=True, eq=False)
class JointIds:
    """Numbers the members of several groups by rank, by group and by id.

    A group is a node type, whose members are nodes, or a relation, whose members are the adjacency
    lists of its targets. Each rank has a range of each group. So it has a range of the joint ids.
    The joint ids of a single group are its ids.

    Attributes:
        bounds: by group, [ranks + 1] int64, where each rank's range of ids begins.
    """

    bounds: list[Tensor]

    @cached_property
    def book(self) -> PartitionBook:
        """The ranges of the joint ids, with a rank in the place of a part and a group in that of a
        type."""
        sizes = torch.stack([bounds.diff() for bounds in self.bounds], dim=1)
        return PartitionBook([0, *sizes.flatten().cumsum(0).tolist()], len(self.bounds))

    @cached_property
    def rank_bounds(self) -> Tensor:
        """[ranks + 1] int64, where each rank's range of joint ids begins."""
        return self.book.part_offsets

    def of(self, ids: Tensor, group: int, dtype: torch.dtype) -> Tensor:
        """Returns the joint ids of members of a group.

        Args:
            ids: [n] int32 or int64 ids.
            group: the number of the group.
            dtype: the dtype of the joint ids, which they fit.
        """
        if len(self.bounds) == 1:
            return ids.to(dtype)
        bounds = self.bounds[group]
        rank = torch.searchsorted(bounds, ids.to(torch.int64), right=True) - 1
        return ids.to(dtype) + self._shifts[rank, group].to(dtype)

    def apart(self, joint: Tensor) -> GroupedIds:
        """Returns the ids and the groups of joint ids, [n] int32 or int64."""
        if len(self.bounds) == 1:
            return GroupedIds(joint, torch.zeros(joint.numel(), dtype=torch.int64))
        group, rank = self.book.type_of(joint), self.book.owner(joint)
        return GroupedIds(joint - self._shifts[rank, group], group)

    @cached_property
    def _shifts(self) -> Tensor:
        """[ranks, groups] int64, the joint id of a member minus its id."""
        begins = torch.stack([bounds[:-1] for bounds in self.bounds], dim=1)
        return self.book.offsets[:-1].view(-1, len(self.bounds)) - begins
