"""The communicator: collective operations between the ranks of a job, with a life cycle."""

from __future__ import annotations

import atexit
import contextlib
import json
import logging
import os
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, replace
from datetime import timedelta
from types import TracebackType
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import GradBucket, PrefixStore, Store, TCPStore  # type: ignore[attr-defined]
from torch.futures import Future

from pyg_batchgnn.comm import ccl
from pyg_batchgnn.comm.channel import ABANDONED, Channel, named
from pyg_batchgnn.comm.collectives import Collectives, gather_values
from pyg_batchgnn.comm.diagnosis import (
    LINE_BYTES,
    CommError,
    DivergenceError,
    Peer,
    PeerError,
    ProcessInfo,
    StatusBoard,
    endpoints,
    host_from,
)
from pyg_batchgnn.comm.host_memory import share_on_host
from pyg_batchgnn.comm.message import (
    INT_LIMIT,
    CommCounters,
    Header,
    HeaderLike,
    MessageKind,
    Operation,
    TransportError,
    as_header,
    block_bytes,
)
from pyg_batchgnn.comm.serial_executor import Handle, SerialExecutor
from pyg_batchgnn.versions import private

T = TypeVar("T")

_log = logging.getLogger(__name__)
_default_store = private(dist.distributed_c10d, "_get_default_store")

#: The default timeout: seconds for which a rank waits for its peers.
TIMEOUT = 600.0


class Communicator(Collectives):
    """The collective operations between the ranks of a job, over a process group of its own.

    >>> with Communicator.create("numbers") as comm:  # on every rank, in the same order
    ...     comm.sum(2), comm.all_reduce(torch.ones(2)).tolist()
    (2, [1.0, 1.0])

    Make it with `create`, on the main thread. Use each communicator from one thread at a time.
    ``rank``, ``size``, ``host`` and ``hosts`` are as in `Collectives`, ``name`` and ``timeout`` as
    given to `create`. Every operation is collective. It begins with a small exchange in which all
    ranks check that they are in the same operation. It ends on every rank within the timeout, with
    its result or with an error that names the peer. After an error the communicator is broken:
    every later use raises at once.
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
            backend: of torch's default process group (gloo, ccl, mpi), if that does not exist yet
                and a launcher (torchrun) describes it in the environment. The communicator's own
                group has the default group's backend. Without a launcher the world is one rank.
            host: the number of this rank's host. By default the launcher's (GROUP_RANK,
                SLURM_NODEID), or 0.
            limit: bytes that one call of the backend may carry, equal on all ranks. Larger messages
                are cut into pieces. The counts before them, of fixed size, always take one call.

        Raises:
            ValueError: the backend is not available here. The text lists those that are.
            PeerError, DivergenceError: a rank did not come, or makes one of another name.
        """
        if timeout <= 0:
            raise ValueError(f"timeout must be positive seconds, not {timeout}")
        connect(timeout, backend)
        return cls(make_channel(name, timeout, limit, host))

    @property
    def counters(self) -> CommCounters:
        """The counts of rounds, rows, bytes and seconds, by kind of message."""
        return self._channel.counters

    @property
    def group(self) -> dist.ProcessGroup | None:
        """The process group, for `guard`. None in a world of one rank."""
        return self._channel.group

    def run_job(self, job: Callable[[], T]) -> T:
        """Runs ``job``, which may make several exchanges, on the calling thread, after the jobs
        that were started before."""
        return self._jobs.run(job)

    def start_job(self, job: Callable[[], T]) -> Handle[T]:
        """Starts ``job``, which may make several exchanges, on a thread of the communicator. Jobs
        run in the order of the calls. Meanwhile only jobs may use the communicator, so that the
        order of exchanges does not depend on timing. A job that raises breaks the communicator, and
        its peers get the error's text and rank."""

        def run_to_end() -> T:
            try:
                return job()
            except BaseException as error:
                if self.size > 1 and not isinstance(error, CommError):
                    self._channel.fail(self._raised(error))
                raise

        return self._jobs.start(run_to_end)

    def _raised(self, error: BaseException) -> CommError:
        return CommError(f"rank {self.rank} (host {self.host}) raised {named(error)}", [self.rank])

    @contextlib.contextmanager
    def guard(self, header: HeaderLike) -> Iterator[None]:
        """Lets collectives of other libraries on `group` (as when DistributedDataParallel is made)
        end with this communicator's errors: a RuntimeError inside becomes a PeerError that names
        the peer. Collective. No other operation of the communicator may run inside."""
        whole = as_header(header)
        self._exchanges.run(lambda: None)  # after what was started before
        with self._channel.exchange(Operation.GUARD, whole) as exchange:
            exchange.counts([0] * self.size)
            try:
                yield
            except RuntimeError as error:
                raise TransportError(str(error)) from error

    def fail(self, error: CommError) -> CommError:
        """Breaks the communicator because of received data, such as an impossible message. Peers
        get the error's text and ranks. Returns the error, to be raised."""
        return self._channel.fail(error)

    def close(self, reason: str = "") -> None:
        """Leaves the communicator without waiting for peers. Those that wait here get the
        reason."""
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
    """Tells the peers that the process ends, leaves no thread inside a collective, and destroys the
    default group if `connect` made it."""
    for communicator in list(_OPEN):
        communicator.close("its process ended")
    deadline, silent = time.monotonic() + _LATEST, _SILENT
    for executor in _LATE:
        if not executor.stop(silent):
            _log.warning("the process ends when %s has ended its work, in %g s at most", executor, _LATEST)
            executor.stop(max(0.0, deadline - time.monotonic()))
        silent = 0.0
    # With torch 2.13, a gloo group that outlives the interpreter sometimes aborts the process.
    # Destroying the default group destroys all groups, and would wait for one that was abandoned in
    # the middle of a collective.
    if _connected and not ABANDONED and dist.is_initialized():
        dist.destroy_process_group()


Hook = Callable[[Any, GradBucket], Future[Tensor]]


def gradient_hook(
    communicator: Communicator,
    weight: Callable[[], float],
    header: Callable[[], Header] = lambda: Header(MessageKind.GRADIENTS),
) -> Hook:
    """Returns a hook for ``DistributedDataParallel.register_comm_hook(None, hook)``.

    >>> with Communicator.create("gradients") as comm:  # on every rank
    ...     ddp = DistributedDataParallel(model, process_group=comm.group, broadcast_buffers=False)
    ...     ddp.register_comm_hook(None, gradient_hook(comm, lambda: len(loader.input_nodes)))

    The hook replaces each gradient by a weighted sum over ranks, added in the order of ranks: a
    rank's gradient times weight / (the sum of all ranks' weights). If the loss is the mean over a
    rank's own seed nodes, and the weight their number, every seed node of the step weighs the same.
    A rank of weight 0 (an empty minibatch) adds nothing, whatever its gradients hold. The bits do
    not depend on DistributedDataParallel's buckets, which change after the first step and so after
    every resume.

    The sum runs on the thread of the backward pass, so that a failure ends that pass with the
    communicator's error. Give DistributedDataParallel ``process_group=communicator.group`` and
    ``broadcast_buffers=False``, and make it inside `Communicator.guard`. It is never freed if
    ``weight`` or ``header`` refers to it.

    Args:
        communicator: one that nothing else uses at the same time.
        weight: returns this rank's weight in the current step, finite and not negative.
        header: returns the position of the step, for the check and for messages.
    """

    def hook(_: Any, bucket: Any) -> Any:
        total = communicator.all_reduce(bucket.buffer(), header(), weight=weight())
        done: Future[Tensor] = Future()
        done.set_result(total)
        return done

    # DistributedDataParallel compares annotations by identity, and postponed ones are strings.
    hook.__annotations__ = {"bucket": GradBucket, "return": torch.futures.Future[Tensor]}
    return hook


_connected = False  # whether the default process group was made here
_made = 0  # communicators of this process: equal on all ranks, as all make the same ones in order


def connect(timeout: float, backend: str, environment: Mapping[str, str] = os.environ) -> bool:
    """Makes torch's default process group from the launcher's environment, unless there is one.
    Returns whether there is one now: without a launcher (no WORLD_SIZE) the world is one rank.
    Raises ValueError if the backend is not available here, or the environment is incomplete."""
    global _connected
    if dist.is_initialized():
        return True
    check_backend(backend)
    if "WORLD_SIZE" not in environment:
        return False
    absent = [name for name in ("RANK", "MASTER_ADDR", "MASTER_PORT") if name not in environment]
    if absent:
        raise ValueError(f"WORLD_SIZE is set but not {', '.join(absent)}; start with torchrun, or set them")
    limit = timedelta(seconds=timeout)
    if environment.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        dist.init_process_group(backend, timeout=limit)
    else:  # in a new namespace, as torchrun's store outlives the ranks that it restarts
        rank, size = int(environment["RANK"]), int(environment["WORLD_SIZE"])
        address, port = environment["MASTER_ADDR"], int(environment["MASTER_PORT"])
        store = fresh_namespace(TCPStore(address, port, size, False, limit), rank, size, timeout)
        dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=limit)
    _connected = True
    return True


def make_channel(name: str, timeout: float, limit: int, host: int | None) -> Channel:
    global _made
    host = host_from(os.environ) if host is None else host
    process = ProcessInfo.own()
    if not dist.is_initialized():
        return Channel(name, None, None, [Peer(0, host, process)], 0, timeout, limit)
    rank, size = dist.get_rank(), dist.get_world_size()
    _made += 1
    store = _default_store()
    board = StatusBoard(store, f"pyg_batchgnn/{_made}", rank, size)
    ranks = board.join({"name": name, "host": host, "process": asdict(process)}, timeout)
    names = [theirs["name"] for theirs in ranks]
    if len(set(names)) > 1:
        common = max(names, key=names.count)
        raise DivergenceError(
            f"ranks make different communicators: {dict(enumerate(names))} (by rank); every rank must make "
            "the same ones in the same order, on its main thread",
            [rank for rank, name in enumerate(names) if name != common],
        )
    group = dist.new_group(timeout=timedelta(seconds=timeout), group_desc=f"pyg_batchgnn {name}")
    assert isinstance(group, dist.ProcessGroup)
    peers = [Peer(at, theirs["host"], ProcessInfo(**theirs["process"])) for at, theirs in enumerate(ranks)]
    channel = Channel(name, group, board, peers, rank, timeout, limit)
    addresses = gather_values(channel, endpoints(), Header(MessageKind.CONTROL))
    channel.peers = [
        replace(peer, endpoints=tuple(theirs)) for peer, theirs in zip(peers, addresses, strict=True)
    ]
    _share_messages(channel)
    channel.counters.reset()  # users count from their first exchange
    channel.last_exchange = 0
    return channel


def _share_messages(channel: Channel) -> None:
    """Sends messages through memory if all ranks are on one machine and can share some."""
    places = {(peer.host, peer.process.machine) for peer in channel.peers}
    if channel.size == 1 or len(places) > 1 or not channel.peers[0].process.machine:
        return
    try:
        blocks = share_on_host(Collectives(channel), block_bytes(channel.size) + LINE_BYTES)
    except CommError:
        if channel.broken is not None:
            raise
    else:
        channel.share_messages(blocks)


def check_backend(name: str) -> None:
    """Raises ValueError, with the reason and the available ones, unless a backend works here.
    ``name``: "gloo", "ccl", "mpi", one that an imported package has registered; or names by device,
    of which the CPU's is used: "cpu:ccl,cuda:nccl"."""
    problem = why_unavailable(_of_cpu(name))
    if problem is not None:
        names = sorted(one for one in dist.Backend.backend_list if why_unavailable(one) is None)
        available = ", ".join(sorted(names, key=lambda one: one != "gloo"))
        raise ValueError(f"backend is {name!r}: {problem}; available here: {available}")


def describe_backend(name: str) -> str:
    """Returns a backend's name, for ccl with the chosen transport and the reason."""
    choice = ccl.chosen_transport() if _of_cpu(name) == "ccl" else None
    return f"{name} over {choice}" if choice is not None else name


def why_unavailable(name: str) -> str | None:
    """Returns why a backend cannot be used here, or None if it can."""
    if name == "ccl":
        return ccl.why_unavailable()
    if name == "fake":
        return "it is torch's stand-in for tests, which moves nothing"
    if "cpu" not in dist.Backend.backend_capability.get(name, []):
        if name in dist.Backend.backend_list:
            return f"{name} moves tensors on GPUs, and these are on the CPU; take gloo or ccl"
        return "torch has no backend of that name"
    if not dist.is_backend_available(name) or (name == "mpi" and not dist.is_mpi_available()):
        return f"this torch was built without {name}"
    return None


def _of_cpu(name: str) -> str:
    if ":" not in name:
        return name.lower()
    pairs = dict(pair.lower().partition(":")[::2] for pair in name.split(","))
    return pairs.get("cpu", name)


_TOKEN, _PROPOSAL = "pyg_batchgnn/token/{}", "pyg_batchgnn/proposal"
_POLL = 0.005


def fresh_namespace(store: Store, rank: int, size: int, timeout: float) -> Store:
    """Returns a part of ``store`` that only the ranks of this attempt of a job use. Collective.
    Raises PeerError if not all ranks came within ``timeout`` seconds.

    torchrun keeps its store when it restarts failed ranks, with what earlier ranks wrote, for
    example addresses. It tells the new ranks nothing that only they know and that is the same on
    every host. So each rank writes a token of its own, and rank 0 proposes a namespace for the
    tokens that it sees. The namespace is valid once every rank has found its token in the proposal
    and accepted it.
    """
    token, namespace, known = uuid.uuid4().hex, "", list[str]()
    keys = [_TOKEN.format(number) for number in range(size)]
    store.set(keys[rank], token)

    def accepted(who: int | str) -> str:
        return f"pyg_batchgnn/{namespace}/accepted/{who}"

    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        is_valid = False
        if rank == 0 and store.check(keys):
            tokens = [store.get(key).decode() for key in keys]
            if tokens != known:
                namespace, known = uuid.uuid4().hex, tokens
                store.set(_PROPOSAL, json.dumps([namespace, tokens]))
                store.set(accepted(0), "")
            is_valid = store.check([accepted(number) for number in range(size)])
            if is_valid:
                store.set(accepted("all"), "")
        elif rank and store.check([_PROPOSAL]):
            proposed, tokens = json.loads(store.get(_PROPOSAL))
            if len(tokens) == size and tokens[rank] == token:
                if proposed != namespace:
                    namespace = proposed
                    store.set(accepted(rank), "")
                is_valid = store.check([accepted("all")])
        if is_valid:
            return PrefixStore(f"pyg_batchgnn/{namespace}", store)
        time.sleep(_POLL)
    others = range(1, size) if rank == 0 else ()  # only rank 0 knows who is missing
    absent = [number for number in others if not store.check([accepted(number)])]
    who = f"rank {', '.join(map(str, absent))}" if absent else "the other ranks"
    raise PeerError(f"{who} did not come to meet rank {rank} within {timeout:g} s", absent, waited=timeout)
