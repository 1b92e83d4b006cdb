"""The partition book: which part owns which node."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from pyg_batchgnn import ops


class PartitionBook:
    """Which part owns which node. It works with internal ids: these are ordered by part, then by
    node type, then by original id (the node's id within its type, in the data set). So the nodes of
    a part are a contiguous range of internal ids, and so are its nodes of one type.

    >>> PartitionBook([0, 2, 5]).owner(torch.tensor([1, 4]))
    tensor([0, 1])

    ``offsets``: [parts * types + 1], the first internal id of every part and type, then the number
    of nodes. Raises `ValueError` if they do not ascend from 0, or do not fit ``num_types``.
    """

    def __init__(self, offsets: Sequence[int] | Tensor, num_types: int = 1) -> None:
        self.offsets = torch.as_tensor(offsets, dtype=torch.int64)
        self.num_types = num_types
        ops.check_vector("offsets", self.offsets, (torch.int64,))
        if self.offsets.numel() < 2 or int(self.offsets[0]) != 0 or not ops.is_ascending(self.offsets):
            raise ValueError(
                f"offsets must ascend from 0 to the number of nodes, got {self.offsets.tolist()}"
            )
        if num_types < 1 or (self.offsets.numel() - 1) % num_types:
            raise ValueError(
                f"{self.offsets.numel()} offsets do not fit {num_types} node types; give one for each part "
                "and type, then the number of nodes"
            )

    @property
    def parts(self) -> int:
        """The number of parts."""
        return (self.offsets.numel() - 1) // self.num_types

    @property
    def num_nodes(self) -> int:
        """The number of nodes of the whole graph."""
        return int(self.offsets[-1])

    @property
    def part_offsets(self) -> Tensor:
        """[parts + 1] int64, the first internal id of each part, then the number of nodes."""
        return self.offsets[:: self.num_types].contiguous()

    @property
    def sizes(self) -> Tensor:
        """[parts, types] int64, the number of nodes by part and type."""
        return self.offsets.diff().view(self.parts, self.num_types)

    @property
    def id_dtype(self) -> torch.dtype:
        """The narrowest dtype that internal ids fit."""
        return ops.id_dtype(self.num_nodes)

    @property
    def digest(self) -> str:
        """16 hexadecimal digits, by which ranks see that they have the same book."""
        types = [] if self.num_types == 1 else [self.num_types]
        said = torch.cat([self.offsets, torch.tensor(types, dtype=torch.int64)])
        return ops.digest_text(ops.minibatch_key(said))

    def num_nodes_of(self, node_type: int) -> int:
        """Returns the number of nodes of a type in the whole graph. ``node_type``: its index."""
        return int(self.sizes[:, node_type].sum())

    def nodes_of(self, part: int, node_type: int | None = None) -> range:
        """Returns the internal ids of a part's nodes. ``node_type``: the index of one type; None:
        all."""
        first = part * self.num_types + (node_type or 0)
        last = (part + 1) * self.num_types if node_type is None else first + 1
        return range(int(self.offsets[first]), int(self.offsets[last]))

    def owner(self, node: Tensor) -> Tensor:
        """Returns [n] int64, the part of each internal id [n]."""
        return self._cell(node) // self.num_types

    def type_of(self, node: Tensor) -> Tensor:
        """Returns [n] int64, the index of the node type of each internal id [n]."""
        return self._cell(node) % self.num_types

    def _cell(self, node: Tensor) -> Tensor:
        ops.check_ids("node", node, self.num_nodes, "internal ids")
        return torch.searchsorted(self.offsets, node.to(torch.int64), right=True) - 1

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, PartitionBook)
            and self.num_types == other.num_types
            and torch.equal(self.offsets, other.offsets)
        )

    def __hash__(self) -> int:
        return hash((self.num_types, *self.offsets.tolist()))

    def __repr__(self) -> str:
        types = f" of {self.num_types} types" if self.num_types > 1 else ""
        return f"PartitionBook({self.num_nodes:,} nodes{types} in {self.parts} parts)"
