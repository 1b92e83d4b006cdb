"""The parts that each rank builds, and the rows that nodes have in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pyg_batchgnn.partition.book import PartitionBook
from pyg_batchgnn.partition.part import slice_size


@dataclass(frozen=True)
class Runs:
    """The parts that each rank builds: contiguous runs, of one part each where there are as many
    parts as ranks."""

    parts: int
    ranks: int

    def of(self, rank: int) -> range:
        """Returns the parts of a rank."""
        return range(rank * self.parts // self.ranks, (rank + 1) * self.parts // self.ranks)

    @property
    def bounds(self) -> Tensor:
        """The first part of each rank, [ranks + 1] int64."""
        return torch.tensor([rank * self.parts // self.ranks for rank in range(self.ranks + 1)])

    def directory_bounds(self, num_nodes: int) -> Tensor:
        """Returns where the directory slices of each rank's parts begin among the original ids of a
        type, [ranks + 1] int64."""
        return (self.bounds * slice_size(num_nodes, self.parts)).clamp(max=num_nodes)

    def by_rank(self, of_parts: Sequence[int]) -> list[int]:
        """Returns the sums over each rank's parts."""
        return [sum(of_parts[part] for part in self.of(rank)) for rank in range(self.ranks)]


@dataclass(frozen=True)
class RunRows:
    """The rows that the nodes of one type have in a run of parts: by part, then by internal id.

    Attributes:
        firsts: [parts], the internal id of each part's first node of the type.
        starts: [parts + 1] int64, where the rows of each part begin.
    """

    firsts: Tensor
    starts: Tensor

    @classmethod
    def of(cls, book: PartitionBook, parts: range, node_type: int) -> RunRows:
        """Returns the rows of a type in a run of parts."""
        firsts = [book.nodes_of(part, node_type).start for part in parts]
        sizes = book.sizes[parts.start : parts.stop, node_type]
        starts = torch.zeros(len(parts) + 1, dtype=torch.int64)
        torch.cumsum(sizes, 0, out=starts[1:])
        return cls(torch.tensor(firsts, dtype=torch.int64), starts)

    def rows(self, internal: Tensor) -> Tensor:
        """Returns the rows of internal ids [n], which are of the type and of the run."""
        part = torch.searchsorted(self.firsts, internal, right=True) - 1
        return internal - (self.firsts - self.starts[:-1])[part]
