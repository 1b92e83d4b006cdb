"""Assigns owners in a stream, as CuSP does: ranks stream their slices side by side."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.comm import Communicator
from pyg_batchgnn.data import Dataset
from pyg_batchgnn.partition.balanced import Streaming
from pyg_batchgnn.partition.limits import read_limits
from pyg_batchgnn.partition.neighbours import neighbours_of
from pyg_batchgnn.partition.policy import Policy
from pyg_batchgnn.partition.reading import ReadingSlice
from pyg_batchgnn.partition.splits import read_split
from pyg_batchgnn.partition.type_stream import TypeCount, TypeStream
from pyg_batchgnn.partition.unmet import warn_of_unmet

#: At most this many passes move nodes out of parts that have more than a limit.
MENDS = 3


class OwnerStream:
    """One rank's view of the stream, which assigns the nodes of one type after the other.

    Neighbours of all types count.
    """

    def __init__(
        self, comm: Communicator, part: ReadingSlice, dataset: Dataset, parts: int, seed: int
    ) -> None:
        self._comm, self._part, self._dataset = comm, part, dataset
        self._parts, self._seed = parts, seed
        self._owner = torch.full((part.num_nodes,), ops.UNASSIGNED, dtype=torch.int32)

    def by_score(self, policy: Streaming) -> Tensor:
        """Returns the part of every node of the slice by a built-in policy, [n] int32. Collective.

        Where a part has more than a limit in the end, nodes leave it for parts that have room.
        """
        limits = read_limits(self._comm, self._part, self._dataset, policy, self._parts)
        shape = len(limits.names), self._parts
        for _ in range(policy.passes):
            load = torch.zeros(*shape, dtype=torch.float64)
            for one in self._types(limits.weight):
                one.run(one.by_score(policy, limits.goal.limit), load)
        for _ in range(MENDS):
            if not bool((load > limits.goal.limit[:, None]).any()):
                break
            for one in self._types(limits.weight):
                one.run(one.by_score(policy, limits.goal.limit, mend=True), load, counted=True)
        warn_of_unmet(self._comm, limits, self._owner)
        return self._owner

    def by_function(self, policy: Policy) -> Tensor:
        """Returns the part of every node of the slice by a user's own policy, [n] int32.
        Collective."""
        part, types = self._part, range(self._part.schema.num_types)
        train = torch.cat([read_split(self._comm, part, self._dataset, "train", one) for one in types])
        degree = torch.cat([part.degrees(one) for one in types])
        weight = torch.stack([torch.ones_like(degree), degree, train.to(degree.dtype)], dim=1)
        for one in self._types(weight.to(torch.int32)):
            load = torch.zeros(3, self._parts, dtype=torch.float64)
            one.run(one.by_function(policy, self._seed), load)
        return self._owner

    def _types(self, weight: Tensor) -> Iterator[TypeStream]:
        """Yields the streams of the node types."""
        for number in range(self._part.schema.num_types):
            yield TypeStream(
                self._comm,
                self._part,
                number,
                neighbours_of(self._part, number),
                self._owner,
                weight,
                self._count(number),
                self._parts,
                ops.to_signed(self._seed),
            )

    def _count(self, number: int) -> TypeCount:
        ends = zip(self._dataset.edge_sets, self._part.schema.target_types, strict=True)
        edges = sum(one.num_edges for one, target in ends if target == number)
        return TypeCount(self._dataset.node_sets[number].num_nodes, edges)
