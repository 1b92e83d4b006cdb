"""The nodes of a type in order of a time, spread over ranks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from pyg_batchgnn.comm import Communicator, MessageKind
from pyg_batchgnn.partition import Part, own_rounds, send_rows
from pyg_batchgnn.store.directory import Slices
from pyg_batchgnn.store.times import ALWAYS, NEVER, TimeLevel, Times
from pyg_batchgnn.types import Group

#: Nodes that each rank shows the others, for each rank, to find slices of like sizes.
_SHOWN = 64


@dataclass(frozen=True, eq=False)
class NodeOrder:
    """The nodes of a type in ascending order of (time, original id), in slices over ranks."""

    # internal, original: the internal and the original ids of the nodes by position.
    internal: Slices
    original: Slices
    position: Tensor  # [n] int64, the position of each of this rank's own nodes of the type, by row
    time: Tensor  # [n] int64, the times of these nodes in ascending order

    @classmethod
    def of(cls, part: Part, comm: Communicator, node_type: int, time: Tensor) -> NodeOrder:
        """Sorts a type's nodes by ``time`` [n] int64. Collective; counts as
        `MessageKind.PARTITION`."""
        own = part.nodes_of(node_type)
        keys = torch.stack([time, part.original_ids(node_type)], dim=1)
        rows = torch.cat([keys, torch.arange(own.start, own.stop).unsqueeze(1)], dim=1)
        came = send_rows(comm, rows, _slice_of(keys, _splitters(comm, keys)))
        came = came[_ascending(came)]
        counts = torch.tensor(comm.all_gather_json(len(came)))
        bounds = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)])
        place = torch.arange(len(came)) + bounds[comm.rank]
        back = send_rows(
            comm, torch.stack([came[:, 2], place], dim=1), part.book.owner(came[:, 2].contiguous())
        )
        position = torch.empty_like(time)
        position[back[:, 0] - own.start] = back[:, 1]
        name = f"positions of {part.schema.node_types[node_type]!r} by time"
        internal, original = (Slices(name, bounds, came[:, column].contiguous()) for column in (2, 1))
        return cls(internal, original, position, time.sort().values)

    def nodes(self, comm: Communicator) -> Tensor:
        """Returns [N] int64, the original ids of all nodes by position, everywhere. Collective."""
        bounds, own = self.original.bounds, self.original.own
        every, cursor = torch.empty(int(bounds[-1]), dtype=torch.int64), bounds[:-1].tolist()
        for rows in own_rounds(comm, own.numel(), own.itemsize):
            received = comm.all_gather(own[rows.start : rows.stop], MessageKind.PARTITION)
            for rank, piece in enumerate(received.split()):
                every[cursor[rank] : cursor[rank] + piece.numel()] = piece
                cursor[rank] += piece.numel()
        return every

    def reached(self, comm: Communicator, moment: Tensor) -> Tensor:
        """Returns [m], how many nodes of all ranks have a time up to each ``moment`` [m], the same
        on all ranks. Collective."""
        own = torch.searchsorted(self.time, moment, right=True)
        return comm.all_reduce(own, MessageKind.PARTITION)


def _ascending(rows: Tensor) -> Tensor:
    return torch.from_numpy(np.lexsort((rows[:, 1].numpy(), rows[:, 0].numpy())))


def _splitters(comm: Communicator, keys: Tensor) -> Tensor:
    """Returns [ranks - 1, 2] or fewer, the first key of each slice after the first. Collective."""
    shown = min(len(keys), _SHOWN * comm.size)
    at = torch.arange(shown) * len(keys) // max(shown, 1)
    every = comm.all_gather(keys[_ascending(keys)][at].contiguous(), MessageKind.PARTITION).rows
    every = every[_ascending(every)]
    return every[torch.arange(1, comm.size) * len(every) // comm.size] if len(every) else every


def _slice_of(keys: Tensor, splitters: Tensor) -> Tensor:
    found = torch.zeros(len(keys), dtype=torch.int64)
    for time, node in splitters.tolist():
        found += (keys[:, 0] > time) | ((keys[:, 0] == time) & (keys[:, 1] >= node))
    return found


def first_times_of_part(part: Part, comm: Communicator, times: Times) -> Mapping[Group, Tensor]:
    """As `first_times`, for a rank's own nodes: [n_t] int64 by row, for each type that has times.
    Collective; for timed edges, the earliest time at each source is sent to its owner (kind
    PARTITION). ``times``: of the rank's own rows, edges by position in their relation's
    in-edges."""
    if times.level is TimeLevel.NODE:
        return times.by_group
    schema = part.schema
    first = torch.full((part.num_nodes,), NEVER)
    for number, edges in enumerate(part.relations):
        time = times.by_group.get(schema.edge_groups[number])
        if time is None:
            continue
        target = edges.targets() + part.rows_of(schema.target_types[number]).start
        first.scatter_reduce_(0, target, time, "amin")
        node, place = edges.indices.to(torch.int64).unique(return_inverse=True)
        earliest = torch.full_like(node, NEVER).scatter_reduce_(0, place, time, "amin")
        came = send_rows(comm, torch.stack([node, earliest], dim=1), part.book.owner(node))
        first.scatter_reduce_(0, came[:, 0] - part.first, came[:, 1].contiguous(), "amin")
    first = torch.where(first == NEVER, ALWAYS, first)
    return {
        group: times.by_group.get(group, first[part.rows_of(number)])
        for number, group in enumerate(schema.node_groups)
    }
