"""The communicator: collective operations between the ranks of a job, with a life cycle."""

from __future__ import annotations

import atexit
import contextlib
import logging
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import TypeVar

import torch.distributed as dist

from pyg_batchgnn.comm import ccl
from pyg_batchgnn.comm.channel import Channel
from pyg_batchgnn.comm.collectives import Collectives
from pyg_batchgnn.comm.counters import CommCounters
from pyg_batchgnn.comm.create import connect, disconnect, make_channel
from pyg_batchgnn.comm.errors import CommError
from pyg_batchgnn.comm.header import HeaderLike, Operation, as_header
from pyg_batchgnn.comm.serial_executor import Handle, SerialExecutor
from pyg_batchgnn.comm.transport import INT_LIMIT
from pyg_batchgnn.comm.wait import TransportError

T = TypeVar("T")

_log = logging.getLogger(__name__)

#: The default timeout: seconds for which a rank waits for its peers.
TIMEOUT = 600.0


class Communicator(Collectives):
    """The collective operations between the ranks of a job, over a process group of its own.

    Make it with `Communicator.create`, on the main thread and in the same order on every rank. Use
    each communicator from one thread at a time.

    Every operation is collective and has a number. It begins with a small exchange in which all
    ranks check that they are in the same operation. It ends on every rank within the timeout, with
    its result or with an error that names the peer. After an error the communicator is broken:
    every later use raises at once.

    Attributes:
        name: as given to `create`.
        rank, size: the rank of this process, and the number of processes.
        host: the number of this rank's host, as the launcher counts.
        hosts: the host of every rank.
        timeout: seconds.
        counters: rounds, rows, bytes and waiting time by kind.
    """

    def __init__(self, channel: Channel) -> None:
        super().__init__(channel)
        self._jobs = SerialExecutor(f"communicator {channel.name!r} (jobs)")
        self.name, self.timeout = channel.name, channel.timeout
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
        """Makes a communicator of all ranks. Collective.

        Args:
            name: for messages; the same on every rank.
            timeout: seconds for which a rank waits for its peers in one operation before it raises.
            backend: the backend of torch's default process group (gloo, ccl, mpi). It is used where
                that group does not exist yet and a launcher (torchrun) describes it in the
                environment. The communicator's own group has the default group's backend. Without a
                launcher the world is one rank.
            host: the number of this rank's host. By default the launcher's (GROUP_RANK,
                SLURM_NODEID), or 0.
            limit: bytes that one call of the backend may carry, equal on all ranks. Larger messages
                are cut into pieces. The counts before them, of fixed size, always take one call.

        Raises:
            ValueError: the backend is not available here. The text lists those that are.
            PeerError: a rank did not come within the timeout.
            DivergenceError: ranks make communicators of different names.
        """
        if timeout <= 0:
            raise ValueError(f"timeout must be positive seconds, not {timeout}")
        connect(timeout, backend)
        return cls(make_channel(name, timeout, limit, host))

    @property
    def counters(self) -> CommCounters:
        """The counts of rounds, rows, bytes and seconds, by kind."""
        return self._channel.counters

    @property
    def group(self) -> dist.ProcessGroup | None:
        """The process group, for `guard`. None in a world of one rank."""
        return self._channel.group

    # Jobs ########################################################################################

    def run_job(self, job: Callable[[], T]) -> T:
        """Does work that makes several exchanges on the calling thread.

        It begins when the jobs that were started before have ended.
        """
        return self._jobs.run(job)

    def start_job(self, job: Callable[[], T]) -> Handle[T]:
        """Does work that makes several exchanges on a thread of the communicator.

        Jobs run in the order of the calls. While a job is under way only jobs may use the
        communicator, so that the order of exchanges does not depend on timing. A job that raises
        breaks the communicator, because its peers are in the middle of the same job. They are told
        which rank raised what.
        """
        return self._jobs.start(lambda: self._run_to_end(job))

    def _run_to_end(self, job: Callable[[], T]) -> T:
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
        """Gives other libraries' collectives on `group` the communicator's errors. Collective.

        What runs inside (the construction of DistributedDataParallel, for example) is written to
        the status board. A RuntimeError raised there becomes a PeerError that names the peer. No
        other operation of the communicator may run inside.
        """
        whole = as_header(header)
        self._exchanges.run(lambda: None)  # after what was started before
        with self._channel.exchange(Operation.GUARD, whole) as exchange:
            exchange.counts([0] * self.size)
            try:
                yield
            except RuntimeError as error:
                raise TransportError(str(error)) from error

    def fail(self, error: CommError) -> CommError:
        """Breaks the communicator because of what came over it, for example an impossible message.

        The peers are told the error's text and ranks. Returns the error, to be raised.
        """
        return self._channel.fail(error)

    def close(self, reason: str = "") -> None:
        """Leaves the communicator.

        It is not collective and never waits for peers. Peers that wait for this rank are told the
        reason.
        """
        if not (self._exchanges.stop(0.0) and self._jobs.stop(0.0)):
            self._channel.stopping.set()
            if not (self._jobs.stop(1.0) and self._exchanges.stop(1.0)):
                self._channel.fail(CommError(reason or "closed in the middle of an exchange", [self.rank]))
                _LATE[:] = [one for one in (*_LATE, self._jobs, self._exchanges) if not one.stop(0.0)]
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


#: All open communicators. They are held until closed, so that peers are told when the process ends,
#: even about a communicator that the user has dropped.
_OPEN: set[Communicator] = set()

#: Executors of closed communicators whose threads were still at work. A thread that comes back from
#: a kernel or from torch while the interpreter ends is taken out of the process by
#: ``std::terminate``, so the end of the process waits for them, for at most `_LATEST` seconds.
_LATE: list[SerialExecutor] = []
_LATEST = 60.0
_SILENT = 2.0


@atexit.register
def _close_all() -> None:
    """Tells the peers that the process ends, and leaves no thread inside a collective."""
    for communicator in list(_OPEN):
        communicator.close("its process ended")
    deadline, silent = time.monotonic() + _LATEST, _SILENT
    for executor in _LATE:
        if not executor.stop(silent):
            _log.warning("the process ends when %s has ended its work, in %g s at most", executor, _LATEST)
            executor.stop(max(0.0, deadline - time.monotonic()))
        silent = 0.0
    disconnect()
    ccl.rest()
