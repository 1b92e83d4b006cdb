"""The transport of bytes. It uses one collective, the uneven all-to-all, and nothing else.

Every backend that has ``alltoall_base`` on the CPU works. Byte counts stay below 2^31, because
some backends take them as C ints.
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

#: The timeout that is given to backends that count clock time. They would also count time during
#: which the whole job was suspended. `wait_for` bounds the call instead, and does not count that
#: time.
_NO_TIMEOUT = timedelta(days=365)
_TAKES_TIMEOUT = {"gloo", "ccl"}


class Transport:
    """Moves bytes between the ranks of one process group.

    Args:
        group: the process group, or None in a world of one rank, where nothing moves.
        rank, size: this process's rank in the group, and the number of ranks.
        timeout: seconds that one call may take.
        check: called while waiting (`wait_for`).
        limit: bytes that one call may send or receive. Larger messages are cut into pieces.
    """

    def __init__(
        self,
        group: dist.ProcessGroup | None,
        rank: int,
        size: int,
        timeout: float,
        check: Callable[[float], None],
        limit: int = INT_LIMIT,
    ) -> None:
        if not size <= limit <= INT_LIMIT:
            raise ValueError(f"limit must be from {size} (the ranks) to {INT_LIMIT} bytes, not {limit}")
        self._group, self._rank, self._size = group, rank, size
        self._timeout, self._check, self._limit = timeout, check, limit
        self._takes_timeout = (
            group is not None and group._get_backend(torch.device("cpu")).name() in _TAKES_TIMEOUT
        )

    def fits(self, largest: int, kept: int) -> bool:
        """Returns whether one call can carry messages of at most these sizes.

        Args:
            largest: the most bytes that one rank sends to another.
            kept: the most bytes that any rank sends to itself.
        """
        return largest * (self._size - 1) + kept <= self._limit

    def all_to_all(self, out: Tensor, rows: Tensor, received: Sequence[int], sent: Sequence[int]) -> None:
        """Exchanges messages with all peers in one call.

        Args:
            out: [sum(received)], filled with what came from rank 0, from rank 1, and so on.
            rows: [sum(sent)], what goes to rank 0, to rank 1, and so on; same dtype as ``out``.
            received, sent: elements by rank.
        """
        if self._group is None:
            out.copy_(rows)
        else:
            self._wait(self._start(out, rows, received, sent))

    def pairwise_exchange(self, receives: Sequence[Tensor], sends: Sequence[Tensor], largest: int) -> None:
        """Exchanges messages with one pair of peers per call.

        In step s a rank sends to rank + s and receives from rank - s. Messages need not lie next to
        each other. A message that is too large for one call is cut into pieces.

        Args:
            receives, sends: bytes from and to each rank, uint8 vectors.
            largest: the most bytes that any rank of the group sends to another.
        """
        receives[self._rank].copy_(sends[self._rank])
        for begin in range(0, largest, self._limit):
            piece = slice(begin, begin + self._limit)
            steps = [self._start_step(receives, sends, step, piece) for step in range(1, self._size)]
            for work in steps:
                self._wait(work)

    def _start_step(
        self, receives: Sequence[Tensor], sends: Sequence[Tensor], step: int, piece: slice
    ) -> Work:
        to, source = (self._rank + step) % self._size, (self._rank - step) % self._size
        rows, out = sends[to][piece], receives[source][piece]
        sent, received = [0] * self._size, [0] * self._size
        sent[to], received[source] = len(rows), len(out)
        return self._start(out, rows, received, sent)

    def _start(self, out: Tensor, rows: Tensor, received: Sequence[int], sent: Sequence[int]) -> Work:
        assert self._group is not None
        options = AllToAllOptions()
        options.asyncOp = True
        if self._takes_timeout:
            options.timeout = _NO_TIMEOUT
        try:
            work = self._group.alltoall_base(out, rows, list(received), list(sent), options)
        except RuntimeError as error:  # a connection that is known to be gone refuses at once
            raise TransportError(str(error)) from error
        return work

    def _wait(self, work: Work) -> None:
        wait_for(work, self._timeout, self._check)


def make_group(timeout: float, name: str) -> dist.ProcessGroup:
    """Makes a process group of all ranks for one communicator. Collective."""
    group = dist.new_group(timeout=timedelta(seconds=timeout), group_desc=f"pyg_batchgnn {name}")
    assert isinstance(group, dist.ProcessGroup)
    return group


def as_bytes(rows: Tensor) -> Tensor:
    """Returns the memory of a contiguous tensor as a uint8 vector, without a copy."""
    flat = rows.detach().reshape(-1)
    if flat.numel() < 2:
        flat = flat.as_strided((flat.numel(),), (1,))  # the stride of a single element may be anything
    return flat if flat.dtype == torch.uint8 else flat.view(torch.uint8)
