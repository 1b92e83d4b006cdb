"""How ranks talk."""

from __future__ import annotations

import atexit
import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, TypeVar

import torch.distributed as dist
from torch import Tensor

from pyg_batchgnn.comm import reduce, values
from pyg_batchgnn.comm.channel import Channel
from pyg_batchgnn.comm.counters import CommCounters
from pyg_batchgnn.comm.create import connect, disconnect, make_channel
from pyg_batchgnn.comm.errors import CommError
from pyg_batchgnn.comm.header import HeaderLike, MessageKind, Operation, as_header
from pyg_batchgnn.comm.rows import Allocate, Received, exchange_rows, fresh, gather_rows
from pyg_batchgnn.comm.serial_executor import Handle, SerialExecutor
from pyg_batchgnn.comm.together import MakeError, failed_together, run_together
from pyg_batchgnn.comm.transport import INT_LIMIT
from pyg_batchgnn.comm.wait import TransportError

T = TypeVar("T")

#: Seconds that a rank waits for its peers unless told otherwise.
TIMEOUT = 600.0


class Communicator:
    """Collective operations between the ranks of a job, over a process group of its own.

    Make it with `Communicator.create`, on the main thread and in the same order on every rank; use each from
    one thread at a time. Every operation is collective, is numbered, begins with a small exchange in which
    all ranks check that they are here for the same, and ends on every rank with its result or with an error
    that names the peer, within the timeout. After an error the communicator is broken and says so at once.

    Attributes:
        name: as given to `create`.
        rank, size: of this process, and the number of processes.
        host: number of this rank's host as the launcher counts.
        hosts: the host of every rank.
        timeout: seconds.
        counters: rounds, rows, bytes and waiting time by kind.
    """

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._exchanges = SerialExecutor(channel.name)
        self._jobs = SerialExecutor(f"{channel.name}: jobs")
        self.name, self.timeout = channel.name, channel.timeout
        self.rank, self.size = channel.rank, channel.size
        self.hosts = [peer.host for peer in channel.peers]
        self.host = self.hosts[self.rank]
        _OPEN.add(self)

    @classmethod
    def create(
        cls,
        name: str,
        *,
        timeout: float = TIMEOUT,
        backend: str = "gloo",
        host: int | None = None,
        limit: int = INT_LIMIT,
    ) -> Communicator:
        """Makes a communicator of all ranks; collective.

        Args:
            name: for messages; the same on every rank.
            timeout: seconds that a rank waits for its peers in one operation before it raises.
            backend: of torch's default process group (gloo, ccl, mpi) where that does not exist yet and a
                launcher (torchrun) says in the environment how to make it. The communicator's own group has
                the default group's backend. Without a launcher the world is one rank.
            host: number of this rank's host; by default the launcher's (GROUP_RANK, SLURM_NODEID), else 0.
            limit: bytes that one call of the backend may carry; larger messages are cut into pieces.

        Raises:
            ValueError: the backend cannot be had here; the text lists those that can.
            PeerError: a rank did not come within the timeout.
            DivergenceError: ranks make communicators of different names.
        """
        if timeout <= 0:
            raise ValueError(f"timeout must be positive seconds, not {timeout}")
        connect(timeout, backend)
        return cls(make_channel(name, timeout, limit, host))

    @property
    def counters(self) -> CommCounters:
        return self._channel.counters

    @property
    def group(self) -> dist.ProcessGroup | None:
        """The process group, for `guard`; None in a world of one rank."""
        return self._channel.group

    @property
    def ranks_of_host(self) -> list[int]:
        """Ranks that share this rank's host, ascending, this one included."""
        return [rank for rank, host in enumerate(self.hosts) if host == self.host]

    # Rows ########################################################################################

    def exchange(
        self,
        rows: Tensor | Sequence[Tensor],
        counts: Sequence[int] | None,
        header: HeaderLike,
        allocate: Allocate = fresh,
        items: Sequence[int] | None = None,
    ) -> Received:
        """Sends rows to every rank and receives rows from every rank.

        Args:
            rows: [sum(counts), ...], those for rank 0 first, or one tensor for each rank (counts is then
                None). Any dtype; dtype and bytes of a row must be equal on all ranks.
            counts: rows for each rank.
            header: what the exchange is for; must be equal on all ranks.
            allocate: makes the contiguous tensor to receive into, from its shape and dtype.
            items: how many things the rows for each rank hold, where a row is not one thing (packed words,
                for instance): they are counted in place of rows, and the receiver is told.
        """
        return self._exchanges.now(self._exchange(rows, counts, header, allocate, items))

    def start_exchange(
        self,
        rows: Tensor | Sequence[Tensor],
        counts: Sequence[int] | None,
        header: HeaderLike,
        allocate: Allocate = fresh,
        items: Sequence[int] | None = None,
    ) -> Handle[Received]:
        """`exchange` on the communicator's own thread. The rows must not change before `Handle.wait`."""
        return self._exchanges.start(self._exchange(rows, counts, header, allocate, items))

    def _exchange(
        self,
        rows: Tensor | Sequence[Tensor],
        counts: Sequence[int] | None,
        header: HeaderLike,
        allocate: Allocate,
        items: Sequence[int] | None,
    ) -> Any:
        place = as_header(header)
        return lambda: exchange_rows(self._channel, rows, counts, place, allocate, items)

    def all_gather(self, tensor: Tensor, header: HeaderLike = MessageKind.CONTROL) -> Received:
        """Every rank's rows on every rank; their number may differ, their dtype and bytes may not."""
        place = as_header(header)
        return self._exchanges.now(lambda: gather_rows(self._channel, tensor, Operation.GATHERING, place))

    def broadcast(self, tensor: Tensor, source: int = 0, header: HeaderLike = MessageKind.CONTROL) -> Tensor:
        """Overwrites the tensor (contiguous, of the same size and dtype everywhere) by that of one rank."""
        place = as_header(header)
        return self._exchanges.now(lambda: values.broadcast(self._channel, tensor, source, place))

    # Sums ########################################################################################

    def all_reduce(
        self, tensor: Tensor, header: HeaderLike = MessageKind.CONTROL, weight: float | None = None
    ) -> Tensor:
        """Overwrites the tensor by the sum over ranks, added in the order of ranks.

        Args:
            tensor: contiguous, of the same size and dtype everywhere. Sixteen-bit floats are added in
                float32.
            header: what it is for.
            weight: this rank's weight, finite and not negative: its tensor counts weight / (sum of all ranks'
                weights). A tensor of weight 0 counts nothing whatever it holds; if all weigh 0 the sum is 0.
        """
        place = as_header(header)
        return self._exchanges.now(lambda: reduce.sum_over_ranks(self._channel, tensor, place, weight))

    def start_all_reduce(
        self, tensor: Tensor, header: HeaderLike = MessageKind.CONTROL, weight: float | None = None
    ) -> Handle[Tensor]:
        """`all_reduce` on the communicator's own thread. The tensor is not to be touched before the end."""
        place = as_header(header)
        return self._exchanges.start(lambda: reduce.sum_over_ranks(self._channel, tensor, place, weight))

    # Values ######################################################################################

    def all_gather_json(self, value: Any, header: HeaderLike = MessageKind.CONTROL) -> list[Any]:
        """A small value from every rank, as JSON carries it (tuples come back as lists, keys as strings)."""
        place = as_header(header)
        return self._exchanges.now(lambda: values.gather_values(self._channel, value, place))

    def sum(self, value: Any) -> Any:
        """The sum of a number over ranks, added in the order of ranks."""
        return sum(self.all_gather_json(value))

    def max(self, value: Any) -> Any:
        """The largest of a number over ranks."""
        return max(self.all_gather_json(value))

    def min(self, value: Any) -> Any:
        """The smallest of a number over ranks."""
        return min(self.all_gather_json(value))

    def barrier(self, header: HeaderLike = MessageKind.CONTROL) -> None:
        """Waits until every rank is here."""
        place = as_header(header)
        self._exchanges.now(lambda: values.barrier(self._channel, place))

    def check_agreement(self, arguments: Mapping[str, Any]) -> None:
        """Makes sure that all ranks were given the same.

        Args:
            arguments: values that JSON can carry (fanout, seed, fingerprint of the data set) by name.

        Raises:
            AgreementError: on every rank, with the names that differ and who gave which value.
        """
        place = as_header(MessageKind.CONTROL)
        self._exchanges.now(lambda: values.check_agreement(self._channel, arguments, place))

    # Work ########################################################################################

    def run_together(
        self,
        work: Callable[[], T],
        *,
        catch: tuple[type[Exception], ...] = (OSError, ValueError),
        error: MakeError | None = None,
    ) -> T:
        """Does work on every rank. Where it fails on one rank, all ranks raise, so that none waits for it.

        The ranks wait for each other once, after the work. Work that fails with an exception that is not in
        ``catch`` raises at once, on this rank alone.

        Args:
            work: what this rank does. It makes no exchange.
            catch: the exceptions that count as a failure.
            error: makes the error that all ranks raise, from the texts of the ranks that failed, by rank. By
                default a `CommError` that names those ranks, their hosts and the causes.

        Returns:
            What ``work`` returned on this rank.

        Raises:
            Exception: what ``error`` makes, where work failed on any rank.
        """
        make = error or (lambda problems: failed_together(problems, self.hosts))
        return run_together(work, self.all_gather_json, catch, make)

    # Jobs ########################################################################################

    def run_job(self, job: Callable[[], T]) -> T:
        """Work that makes several exchanges, done on the calling thread, after the jobs started before."""
        return self._jobs.now(job)

    def start_job(self, job: Callable[[], T]) -> Handle[T]:
        """Work that makes several exchanges, done on a thread of the communicator's own, in the order of
        asking. While a job is under way only jobs may use the communicator, so that the order of exchanges
        does not depend on timing. A job that raises breaks the communicator, for its peers are in the middle
        of it: they are told who raised what."""
        return self._jobs.start(lambda: self._to_its_end(job))

    def _to_its_end(self, job: Callable[[], T]) -> T:
        try:
            return job()
        except CommError:
            raise
        except BaseException as error:
            if self.size > 1:
                self._channel.fail(self._raised(error))
            raise

    def _raised(self, error: BaseException) -> CommError:
        what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        return CommError(f"rank {self.rank} (host {self.host}) raised {what}", [self.rank])

    # The end #####################################################################################

    @contextlib.contextmanager
    def guard(self, header: HeaderLike) -> Iterator[None]:
        """Gives other libraries' collectives on `group` the communicator's errors: what is called inside (the
        construction of DistributedDataParallel, say) is noted on the board, and a RuntimeError raised there
        becomes a PeerError that names the peer. Collective; no other operation may be called inside."""
        place = as_header(header)
        self._exchanges.now(lambda: None)  # after what was started before
        with self._channel.step(Operation.GUARD, place) as step:
            step.counts([0] * self.size)
            try:
                yield
            except RuntimeError as error:
                raise TransportError(str(error)) from error

    def fail(self, error: CommError) -> CommError:
        """Breaks the communicator because of what came over it, a message that cannot be, say: the peers are
        told the error's text and ranks. Returns the error, to be raised."""
        return self._channel.fail(error)

    def close(self, reason: str = "") -> None:
        """Leaves. Not collective: it never waits for peers, and those that wait for this rank are told."""
        if not (self._exchanges.stop(0.0) and self._jobs.stop(0.0)):
            self._channel.stopping.set()
            if not (self._jobs.stop(1.0) and self._exchanges.stop(1.0)):
                self._channel.fail(CommError(reason or "closed in the middle of an exchange", [self.rank]))
        self._channel.close(reason)
        _OPEN.discard(self)

    def __enter__(self) -> Communicator:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None and not isinstance(error, CommError):
            self._channel.fail(self._raised(error))
        self.close()

    def __repr__(self) -> str:
        return f"Communicator({self.name!r}, rank {self.rank} of {self.size}, host {self.host})"


#: Held until closed, so that the end of the process is told to the peers of those that were just dropped.
_OPEN: set[Communicator] = set()


@atexit.register
def _close_all() -> None:
    """A process that ends tells its peers, and leaves no thread inside a collective."""
    for communicator in list(_OPEN):
        communicator.close("its process ended")
    disconnect()
