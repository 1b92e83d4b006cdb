"""The partition book: which part owns which node."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from pyg_batchgnn import ops


class PartitionBook:
    """The owners of the internal node ids: each part is a contiguous range of them (design, section
    2).

    Args:
        offsets: the first internal id of every part, then the number of nodes; ascending from 0.
    """

    def __init__(self, offsets: Sequence[int] | Tensor) -> None:
        self.offsets = torch.as_tensor(offsets, dtype=torch.int64)
        ops.check_vector("offsets", self.offsets, (torch.int64,))
        if self.offsets.numel() < 2 or int(self.offsets[0]) != 0 or not ops.is_ascending(self.offsets):
            raise ValueError(
                f"offsets must ascend from 0 to the number of nodes, got {self.offsets.tolist()}"
            )

    @property
    def parts(self) -> int:
        return self.offsets.numel() - 1

    @property
    def num_nodes(self) -> int:
        return int(self.offsets[-1])

    @property
    def id_dtype(self) -> torch.dtype:
        """The narrowest type that internal ids fit."""
        return ops.id_dtype(self.num_nodes)

    @property
    def digest(self) -> str:
        """A digest of 16 hexadecimal digits, by which ranks see that they have the same book."""
        return ops.digest_text(ops.minibatch_key(self.offsets))

    def nodes_of(self, part: int) -> range:
        """Returns the internal ids of a part."""
        return range(int(self.offsets[part]), int(self.offsets[part + 1]))

    def owner(self, node: Tensor) -> Tensor:
        """Returns the part of each internal id, by binary search.

        Args:
            node: [n] int32 or int64 internal ids.

        Returns:
            [n] int64.
        """
        return torch.searchsorted(self.offsets, node.to(torch.int64), right=True) - 1

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PartitionBook) and torch.equal(self.offsets, other.offsets)

    def __hash__(self) -> int:
        return hash(tuple(self.offsets.tolist()))

    def __repr__(self) -> str:
        return f"PartitionBook({self.num_nodes:,} nodes in {self.parts} parts)"
