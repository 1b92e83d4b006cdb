"""The partition book: which part owns which node."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from pyg_batchgnn import ops


class PartitionBook:
    """The owner and the type of each internal node id. Internal ids are in order of part, within a
    part of node type, and within a type of original id. So a part's nodes are a range of internal
    ids, and so are its nodes of one type. ``offsets`` [parts * types + 1]: the first internal id of
    every part and type, then the number of nodes."""

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
        return (self.offsets.numel() - 1) // self.num_types

    @property
    def num_nodes(self) -> int:
        """The number of nodes of the whole graph, of all types."""
        return int(self.offsets[-1])

    @property
    def part_offsets(self) -> Tensor:
        """[parts + 1] int64, the first internal id of each part, then the number of nodes."""
        return self.offsets[:: self.num_types].contiguous()

    @property
    def sizes(self) -> Tensor:
        """[parts, types] int64, the number of nodes of each part and type."""
        return self.offsets.diff().view(self.parts, self.num_types)

    @property
    def id_dtype(self) -> torch.dtype:
        """The narrowest type that internal ids fit."""
        return ops.id_dtype(self.num_nodes)

    @property
    def digest(self) -> str:
        """A digest of 16 hexadecimal digits, to compare the books of ranks."""
        types = [] if self.num_types == 1 else [self.num_types]
        said = torch.cat([self.offsets, torch.tensor(types, dtype=torch.int64)])
        return ops.digest_text(ops.minibatch_key(said))

    def num_nodes_of(self, node_type: int) -> int:
        """Returns the number of nodes in the whole graph of type number ``node_type``."""
        return int(self.sizes[:, node_type].sum())

    def nodes_of(self, part: int, node_type: int | None = None) -> range:
        """Returns the internal ids of a part, or of its nodes of type number ``node_type``."""
        first = part * self.num_types + (node_type or 0)
        last = (part + 1) * self.num_types if node_type is None else first + 1
        return range(int(self.offsets[first]), int(self.offsets[last]))

    def owner(self, node: Tensor) -> Tensor:
        """Returns [n] int64, the part of each internal id, by binary search."""
        return self._cell(node) // self.num_types

    def type_of(self, node: Tensor) -> Tensor:
        """Returns [n] int64, the type number of each internal id, by binary search."""
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
