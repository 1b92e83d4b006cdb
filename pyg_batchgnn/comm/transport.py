"""How bytes move: one collective, uneven all-to-all, and nothing else.

Every backend that has ``all_to_all_single`` on the CPU will do. Counts of bytes stay below 2^31, for backends
that take them as C ints.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import AllToAllOptions

from pyg_batchgnn.comm.wait import TransportError, Work, wait_for

#: Bytes that one call may send or receive.
INT_LIMIT = 2**31 - 1

#: What backends that count clock time are told that a call may take. They would count the time during which
#: the whole job was suspended; how long a call really may take is the business of `wait_for`, which does not.
_FOR_EVER = timedelta(days=365)
_WITH_LIMIT = {"gloo", "ccl"}


class Transport:
    """Moves bytes between the ranks of one process group.

    Args:
        group: the process group; None in a world of one rank, where nothing moves.
        rank, size: of this process in the group.
        patience: seconds that one call may take.
        watch: called while waiting (`wait_for`).
        limit: bytes that one call may send or receive; larger messages are cut.
    """

    def __init__(
        self,
        group: dist.ProcessGroup | None,
        rank: int,
        size: int,
        patience: float,
        watch: Callable[[float], None],
        limit: int = INT_LIMIT,
    ) -> None:
        if not size <= limit <= INT_LIMIT:
            raise ValueError(f"limit must be from {size} (the ranks) to {INT_LIMIT} bytes, not {limit}")
        self._group, self._rank, self._size = group, rank, size
        self._patience, self._watch, self._limit = patience, watch, limit
        self._takes_limit = (
            group is not None and group._get_backend(torch.device("cpu")).name() in _WITH_LIMIT
        )

    def fits(self, largest: int, kept: int) -> bool:
        """Whether messages of at most ``largest`` bytes between different ranks, and ``kept`` bytes from any
        rank to itself, can go in one call."""
        return largest * (self._size - 1) + kept <= self._limit

    def together(self, out: Tensor, rows: Tensor, received: Sequence[int], sent: Sequence[int]) -> None:
        """One call for all peers.

        Args:
            out: [sum(received)], filled with what came from rank 0, from rank 1, and so on.
            rows: [sum(sent)], what goes to rank 0, to rank 1, and so on; the same dtype.
            received, sent: elements by rank.
        """
        if self._group is None:
            out.copy_(rows)
        else:
            self._wait(self._start(out, rows, received, sent))

    def in_turns(self, receives: Sequence[Tensor], sends: Sequence[Tensor], largest: int) -> None:
        """One call for each distance between ranks, and for each piece of a message too large for one call:
        in turn s a rank sends to rank + s and receives from rank - s. Nothing is copied to be put together.

        Args:
            receives, sends: bytes from and to each rank, uint8 vectors.
            largest: bytes of the largest message between any two different ranks of the group.
        """
        receives[self._rank].copy_(sends[self._rank])
        for begin in range(0, largest, self._limit):
            pieces = [
                self._start_turn(receives, sends, turn, slice(begin, begin + self._limit))
                for turn in range(1, self._size)
            ]
            for piece in pieces:
                self._wait(piece)

    def _start_turn(
        self, receives: Sequence[Tensor], sends: Sequence[Tensor], turn: int, piece: slice
    ) -> Work:
        to, source = (self._rank + turn) % self._size, (self._rank - turn) % self._size
        rows, out = sends[to][piece], receives[source][piece]
        sent, received = [0] * self._size, [0] * self._size
        sent[to], received[source] = len(rows), len(out)
        return self._start(out, rows, received, sent)

    def _start(self, out: Tensor, rows: Tensor, received: Sequence[int], sent: Sequence[int]) -> Work:
        assert self._group is not None
        options = AllToAllOptions()
        options.asyncOp = True
        if self._takes_limit:
            options.timeout = _FOR_EVER
        try:
            work = self._group.all_to_all_single(out, rows, list(received), list(sent), options)
        except RuntimeError as error:  # a connection that is known to be gone refuses at once
            raise TransportError(str(error)) from error
        return work

    def _wait(self, work: Work) -> None:
        wait_for(work, self._patience, self._watch)


def make_group(timeout: float, name: str) -> dist.ProcessGroup:
    """A process group of all ranks, for one communicator; collective."""
    group = dist.new_group(timeout=timedelta(seconds=timeout), group_desc=f"pyg_batchgnn {name}")
    assert isinstance(group, dist.ProcessGroup)
    return group


def as_bytes(rows: Tensor) -> Tensor:
    """The memory of a contiguous tensor as a uint8 vector, not copied."""
    flat = rows.detach().reshape(-1)
    flat = flat.as_strided((flat.numel(),), (1,))  # the stride of a single element says nothing
    return flat if flat.dtype == torch.uint8 else flat.view(torch.uint8)
