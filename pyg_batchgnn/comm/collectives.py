"""The collective operations of a communicator."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from torch import Tensor

from pyg_batchgnn.comm import reduce, values
from pyg_batchgnn.comm.channel import Channel
from pyg_batchgnn.comm.header import HeaderLike, MessageKind, Operation, as_header
from pyg_batchgnn.comm.rows import Allocate, Received, allocate_empty, exchange_rows, gather_rows
from pyg_batchgnn.comm.serial_executor import Handle, SerialExecutor
from pyg_batchgnn.comm.together import MakeError, failed_together, run_together

T = TypeVar("T")


class Collectives:
    """The collective operations over one channel, each on the calling thread or on the channel's
    own.

    Attributes:
        rank, size: the rank of this process, and the number of processes.
        hosts: the host number of every rank.
        host: the host number of this rank, as the launcher counts.
    """

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._exchanges = SerialExecutor(f"communicator {channel.name!r}")
        self.rank, self.size = channel.rank, channel.size
        self.hosts = [peer.host for peer in channel.peers]
        self.host = self.hosts[self.rank]

    @property
    def ranks_of_host(self) -> list[int]:
        """The ranks that share this rank's host, ascending, this rank included."""
        return [rank for rank, host in enumerate(self.hosts) if host == self.host]

    # Rows ########################################################################################

    def exchange(
        self,
        rows: Tensor | Sequence[Tensor],
        counts: Sequence[int] | None,
        header: HeaderLike,
        allocate: Allocate = allocate_empty,
        items: Sequence[int] | None = None,
    ) -> Received:
        """Sends rows to every rank and receives rows from every rank.

        Args:
            rows: [sum(counts), ...], the rows for rank 0 first; or one tensor per rank. Any dtype.
                The dtype and the bytes per row must be equal on all ranks.
            counts: the number of rows for each rank. None where ``rows`` is one tensor per rank.
            header: the purpose of the exchange, equal on all ranks.
            allocate: makes the contiguous tensor to receive into, from its shape and dtype.
            items: the number of items that the rows for each rank hold, where a row is not one item
                (rows of packed words, for example). Items are counted in place of rows, and the
                receiver is told.
        """
        return self._exchanges.run(self._exchange(rows, counts, header, allocate, items))

    def start_exchange(
        self,
        rows: Tensor | Sequence[Tensor],
        counts: Sequence[int] | None,
        header: HeaderLike,
        allocate: Allocate = allocate_empty,
        items: Sequence[int] | None = None,
    ) -> Handle[Received]:
        """Starts an `exchange` on the communicator's own thread. The rows must not change before
        `Handle.wait` returns."""
        return self._exchanges.start(self._exchange(rows, counts, header, allocate, items))

    def _exchange(
        self,
        rows: Tensor | Sequence[Tensor],
        counts: Sequence[int] | None,
        header: HeaderLike,
        allocate: Allocate,
        items: Sequence[int] | None,
    ) -> Callable[[], Received]:
        whole = as_header(header)
        return lambda: exchange_rows(self._channel, rows, counts, whole, allocate, items)

    def all_gather(self, tensor: Tensor, header: HeaderLike = MessageKind.CONTROL) -> Received:
        """Gathers the rows of every rank on every rank. Ranks may give different numbers of rows.
        The dtype and the bytes per row must be equal."""
        whole = as_header(header)
        return self._exchanges.run(lambda: gather_rows(self._channel, tensor, Operation.GATHERING, whole))

    def broadcast(self, tensor: Tensor, source: int = 0, header: HeaderLike = MessageKind.CONTROL) -> Tensor:
        """Overwrites the tensor with that of one rank. It is contiguous, and its size and dtype are
        equal on all ranks."""
        whole = as_header(header)
        return self._exchanges.run(lambda: values.broadcast(self._channel, tensor, source, whole))

    # Sums ########################################################################################

    def all_reduce(
        self, tensor: Tensor, header: HeaderLike = MessageKind.CONTROL, weight: float | None = None
    ) -> Tensor:
        """Overwrites the tensor with the sum over ranks, added in the order of ranks.

        Args:
            tensor: contiguous, of the same size and dtype on all ranks. Sixteen-bit floats are
                added in float32.
            header: the purpose of the sum.
            weight: the weight of this rank's tensor, finite and not negative. The tensor is
                multiplied by weight / (the sum of all ranks' weights). A tensor of weight 0 is left
                out, whatever it holds. If all weights are 0, so is the sum.
        """
        whole = as_header(header)
        return self._exchanges.run(lambda: reduce.sum_over_ranks(self._channel, tensor, whole, weight))

    def start_all_reduce(
        self, tensor: Tensor, header: HeaderLike = MessageKind.CONTROL, weight: float | None = None
    ) -> Handle[Tensor]:
        """Starts an `all_reduce` on the communicator's own thread. The tensor must not be used
        before `Handle.wait` returns."""
        whole = as_header(header)
        return self._exchanges.start(lambda: reduce.sum_over_ranks(self._channel, tensor, whole, weight))

    # Values ######################################################################################

    def all_gather_json(self, value: Any, header: HeaderLike = MessageKind.CONTROL) -> list[Any]:
        """Gathers a small value of every rank, by rank. The value travels as JSON: tuples come back
        as lists, and keys as strings."""
        whole = as_header(header)
        return self._exchanges.run(lambda: values.gather_values(self._channel, value, whole))

    def sum(self, value: Any) -> Any:
        """Returns the sum of a number over ranks, added in the order of ranks."""
        return sum(self.all_gather_json(value))

    def max(self, value: Any) -> Any:
        """Returns the largest value of a number over ranks."""
        return max(self.all_gather_json(value))

    def min(self, value: Any) -> Any:
        """Returns the smallest value of a number over ranks."""
        return min(self.all_gather_json(value))

    def barrier(self, header: HeaderLike = MessageKind.CONTROL) -> None:
        """Waits until every rank is here."""
        whole = as_header(header)
        self._exchanges.run(lambda: values.barrier(self._channel, whole))

    def check_agreement(self, arguments: Mapping[str, Any]) -> None:
        """Checks that all ranks were given the same arguments.

        Args:
            arguments: JSON values by name (fanout, seed, fingerprint of the data set).

        Raises:
            AgreementError: on every rank, with the names that differ and the values of each rank.
        """
        header = as_header(MessageKind.CONTROL)
        self._exchanges.run(lambda: values.check_agreement(self._channel, arguments, header))

    def run_together(
        self,
        work: Callable[[], T],
        *,
        catch: tuple[type[Exception], ...] = (OSError, ValueError),
        error: MakeError | None = None,
    ) -> T:
        """Does work on every rank. Where it fails on one rank, all ranks raise, so that none waits
        for it.

        The ranks wait for each other once, after the work. Work that fails with an exception that
        is not in ``catch`` raises at once, on this rank alone.

        Args:
            work: this rank's work. It makes no exchange.
            catch: the exceptions that count as a failure.
            error: makes the error that all ranks raise, from the texts of the ranks that failed, by
                rank. By default a `CommError` that names those ranks, their hosts and the causes.

        Returns:
            The result of ``work`` on this rank.

        Raises:
            Exception: what ``error`` makes, where work failed on any rank.
        """
        make = error or (lambda problems: failed_together(problems, self.hosts))
        return run_together(work, self.all_gather_json, catch, make)
