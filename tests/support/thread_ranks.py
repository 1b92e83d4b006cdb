"""Ranks that are threads of this process: the same communicator, over memory."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from torch import Tensor

from pyg_batchgnn.comm import Communicator
from pyg_batchgnn.comm.channel import Channel
from pyg_batchgnn.comm.diagnosis import Peer, ProcessInfo
from pyg_batchgnn.comm.message import INT_LIMIT, BackendMailbox, Transport, TransportError

T = TypeVar("T")
TIMEOUT = 20.0


class _Table:
    def __init__(self, size: int) -> None:
        self.barrier = threading.Barrier(size, timeout=TIMEOUT)
        self.messages: list[list[Tensor]] = [[] for _ in range(size)]


class _MemoryTransport(Transport):
    def __init__(self, table: _Table, rank: int, size: int) -> None:
        super().__init__(None, rank, size, TIMEOUT, lambda _: None, INT_LIMIT)
        self._table = table

    def all_to_all(self, out: Tensor, rows: Tensor, received: Sequence[int], sent: Sequence[int]) -> None:
        self._swap(list(out.split(list(received))), list(rows.split(list(sent))))

    def pairwise_exchange(self, receives: Sequence[Tensor], sends: Sequence[Tensor], largest: int) -> None:
        self._swap(receives, sends)

    def _swap(self, receives: Sequence[Tensor], sends: Sequence[Tensor]) -> None:
        table = self._table
        try:
            table.messages[self._rank] = list(sends)
            table.barrier.wait()
            for receive, messages in zip(receives, table.messages, strict=True):
                receive.copy_(messages[self._rank])
            table.barrier.wait()
        except threading.BrokenBarrierError as error:
            raise TransportError("another rank raised, or did not come") from error


def run_threads(function: Callable[[Communicator], T], ranks: int) -> list[T]:
    """Runs a function on every rank, each a thread with a host of its own; returns the results."""
    table = _Table(ranks)
    peers = [Peer(rank, rank, ProcessInfo.own()) for rank in range(ranks)]

    def run(rank: int) -> T:
        channel = Channel("threads", None, None, peers, rank, TIMEOUT)
        channel.transport = _MemoryTransport(table, rank, ranks)
        channel.mailbox = BackendMailbox(channel.transport, ranks)
        comm = Communicator(channel)
        try:
            return function(comm)
        except BaseException:
            table.barrier.abort()
            raise
        finally:
            comm.close()

    with ThreadPoolExecutor(ranks) as pool:
        futures = [pool.submit(run, rank) for rank in range(ranks)]
    errors: list[Any] = [future.exception() for future in futures]
    raised = [error for error in errors if error is not None]
    own = [error for error in raised if "another rank raised" not in str(error)]
    if raised:
        raise (own or raised)[0]
    return [future.result() for future in futures]
