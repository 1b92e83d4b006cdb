"""Errors of communication, and the diagnosis of a failed exchange: which peer is at fault."""

from __future__ import annotations

import contextlib
import ipaddress
import json
import os
import re
import struct
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import psutil
from torch import Tensor
from torch.distributed import PrefixStore, Store  # type: ignore[attr-defined]


class CommError(RuntimeError):
    """The communication between ranks failed. The message names the rank, the exchange and the
    reason. ``ranks``: the ranks at fault, ascending, as far as they are known."""

    def __init__(self, message: str, ranks: Iterable[int] = ()) -> None:
        super().__init__(message)
        self.ranks = tuple(sorted(set(ranks)))


class PeerError(CommError):
    """A peer is dead, stopped, silent or gone, or raised an error of its own. ``exchange``: the
    number of the failed exchange, 0 before the first. ``waited``: seconds in it."""

    def __init__(
        self, message: str, ranks: Iterable[int] = (), exchange: int = 0, waited: float = 0.0
    ) -> None:
        super().__init__(message, ranks)
        self.exchange, self.waited = exchange, waited


class DivergenceError(CommError):
    """Ranks called different operations, or the same one with another header."""


class AgreementError(CommError):
    """Ranks were given different arguments."""


class BrokenCommunicatorError(CommError):
    """The communicator was used after an error or after it was closed."""


T = TypeVar("T")

#: Hundredths of a second for which a dying process is given time to end.
_MOMENTS = 10


@dataclass(frozen=True)
class Peer:
    """A rank of a communicator, as it introduced itself."""

    rank: int
    host: int
    process: ProcessInfo
    endpoints: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"rank {self.rank} (host {self.host}, process {self.process.pid})"


class RankPhase(Enum):
    """The last thing that a rank did."""

    JOINED = "joined"
    ENTERED = "entered"
    CLOSED = "closed"
    FAILED = "failed"


@dataclass(frozen=True)
class RankStatus:
    """The last status that a rank wrote."""

    exchange: int  # the number of its last exchange
    phase: RankPhase
    text: str  # what the exchange was for, or why no other one follows

    def finished(self, exchange: int) -> bool:
        """Returns whether the rank finished an exchange and then closed, which is allowed."""
        return self.phase is RankPhase.CLOSED and self.exchange >= exchange


@dataclass(frozen=True)
class Failure:
    """The first failure in a communicator, of which all others are consequences."""

    rank: int  # the rank that reported it
    ranks: tuple[int, ...]  # the ranks at fault
    exchange: int
    text: str


@dataclass(frozen=True)
class Evidence:
    rank: int  # this rank
    communicator: str
    exchange: int
    purpose: str  # what the exchange was for
    waited: float  # seconds
    timeout: float  # seconds
    timed_out: bool
    text: str  # the backend's error
    statuses: Mapping[int, RankStatus] | None  # of all ranks; None where the store does not answer
    elsewhere: Mapping[int, str]  # what ranks do in other communicators, by rank


def diagnose(evidence: Evidence, peers: Sequence[Peer]) -> Failure:
    """Names the ranks at fault, as far as can be seen, with the reason. Candidates in this order:
    ended processes of this machine (or stopped ones, after a timeout), the peer whose address is in
    the backend's error, ranks that closed or never entered the exchange, and ranks that entered it
    and have not gone on."""
    statuses, exchange = evidence.statuses or {}, evidence.exchange
    finished = {rank for rank, status in statuses.items() if status.finished(exchange)}
    others = [peer for peer in peers if peer.rank not in {evidence.rank, *finished}]
    liveness = {peer.rank: peer.process.liveness() for peer in others}
    suspect = {Liveness.GONE, Liveness.STOPPED} if evidence.timed_out else {Liveness.GONE}
    guilty = [peer for peer in others if liveness[peer.rank] in suspect]
    named = set(endpoints_in(evidence.text))
    if not guilty:
        guilty = [peer for peer in others if named & set(peer.endpoints)]
    if not guilty and statuses:
        inside = {rank for rank, status in statuses.items() if status.phase is RankPhase.ENTERED}
        inside -= {rank for rank, status in statuses.items() if status.exchange < exchange}
        guilty = [peer for peer in others if peer.rank not in inside]
        guilty = guilty or [peer for peer in others if statuses[peer.rank].exchange == exchange]
        liveness.update(_settled(guilty) if not evidence.timed_out else {})
    sentences = [f"{peer} {_observed(evidence, peer, liveness[peer.rank])}" for peer in guilty]
    if not guilty:
        sentences = ["the peer that failed could not be identified"]
    if evidence.statuses is None:
        sentences.append("the store does not answer: the process that hosts it may be the one that is gone")
    ending = f"rank {evidence.rank} waited {evidence.waited:.1f} s of {evidence.timeout:.0f} s "
    ending += f"in communicator {evidence.communicator!r}"
    if evidence.text and not evidence.timed_out:  # without gloo's source file and advice
        said = re.sub(r"^\[[^\]]*/[^\]]*\] ", "", evidence.text.splitlines()[0]).split(". ", 1)[0]
        ending += f"; the transport says: {said}" if said else ""
    ranks = tuple(peer.rank for peer in guilty)
    return Failure(evidence.rank, ranks, exchange, "; ".join([*sentences, ending]))


def _settled(guilty: Sequence[Peer]) -> dict[int, Liveness]:
    """Returns the state of ranks whose connection is lost. It waits a moment: the connections of a
    killed process close before others see that it has ended."""
    for _ in range(_MOMENTS):
        liveness = {peer.rank: peer.process.liveness() for peer in guilty}
        if Liveness.RUNNING not in liveness.values():
            break
        time.sleep(0.01)
    return liveness


def _observed(evidence: Evidence, peer: Peer, liveness: Liveness) -> str:
    facts = []
    if liveness in (Liveness.GONE, Liveness.STOPPED):
        facts.append(liveness.value)
    elif set(endpoints_in(evidence.text)) & set(peer.endpoints):
        facts.append("closed its connection")
    if (status := (evidence.statuses or {}).get(peer.rank)) is not None:
        facts.append(_last(evidence, status))
    if doing := evidence.elsewhere.get(peer.rank):
        facts.append(doing)
    return " and ".join(facts)


def _last(evidence: Evidence, status: RankStatus) -> str:
    at = f"exchange {evidence.exchange} ({evidence.purpose})"
    if status.phase in (RankPhase.CLOSED, RankPhase.FAILED):
        reason = f": {status.text}" if status.text else ""
        return f"{status.phase.value} after exchange {status.exchange}{reason}"
    if status.exchange == evidence.exchange:
        return f"entered {at} and never left it"
    if status.exchange > evidence.exchange:
        return f"went on to exchange {status.exchange} ({status.text})"
    last = f"; it last entered exchange {status.exchange} ({status.text})" if status.exchange else ""
    return f"never entered {at}{last}"


#: The key that the first rank to leave sets.
_LEFT = "left"


class StatusBoard:
    """The last status of each rank of a communicator, in torch's key-value store. Writing does not
    wait, as the store does not answer a ``set``. Reading may wait for a host that was killed or
    stopped: a thread reads, which may be left behind, and a failed read is no error. Ranks that
    share memory write there instead (`StatusLines`). The board has its own connections, as a
    request that waits blocks a connection."""

    def __init__(self, store: Store, prefix: str, rank: int, size: int) -> None:
        self._rank, self._size = rank, size
        self._writer = PrefixStore(prefix, _clone(store))
        self._reader = StoreReader(PrefixStore(prefix, _clone(store)))
        self._lost = False  # whether the store has refused a status
        self._lines: StatusLines | None = None

    def join(self, introduction: dict[str, Any], timeout: float) -> list[dict[str, Any]]:
        """Introduces this rank by JSON values, waits for all others, and returns all introductions
        by rank. Collective. Raises PeerError if a rank has not come in time."""
        self._write(RankStatus(0, RankPhase.JOINED, ""))
        self._writer.set(f"introduction/{self._rank}", json.dumps(introduction))
        keys = [f"introduction/{rank}" for rank in range(self._size)]
        started, pause = time.monotonic(), 0.002
        while not self._writer.check(keys):
            if time.monotonic() - started > timeout:
                absent = [rank for rank, key in enumerate(keys) if not self._writer.check([key])]
                if absent:
                    raise PeerError(
                        f"rank {', '.join(map(str, absent))} never came to make communicator "
                        f"{introduction.get('name')!r} within {timeout:.0f} s; every rank must make the same "
                        "communicators in the same order, so see the output of those ranks, or raise the "
                        "timeout",
                        absent,
                        waited=timeout,
                    )
            time.sleep(pause)
            pause = min(2 * pause, 0.1)
        return [json.loads(self._writer.get(key)) for key in keys]

    def share(self, lines: StatusLines | None) -> None:
        """Writes the exchanges that this rank enters to shared memory from now on; to the store for
        None. Every rank calls it before the same exchange."""
        self._lines = lines
        if lines is not None:  # what the store has of the exchanges so far would grow old
            self._write(RankStatus(0, RankPhase.JOINED, ""))

    def enter(self, exchange: int, text: str) -> None:
        """Records that this rank enters an exchange. ``text``: names the exchange in messages."""
        if self._lines is None:
            self._write(RankStatus(exchange, RankPhase.ENTERED, text))
        else:
            self._lines.write(exchange, text)

    def leave(self, phase: RankPhase, exchange: int, text: str) -> None:
        """Records that this rank enters no more exchanges. ``text``: the reason."""
        self._write(RankStatus(exchange, phase, text))
        self._set(_LEFT, str(self._rank))

    def _write(self, status: RankStatus) -> None:
        self._set(f"status/{self._rank}", f"{status.exchange}|{status.phase.value}|{status.text}")

    def _set(self, key: str, value: str) -> None:
        if not self._lost:
            try:
                self._writer.set(key, value)
            except RuntimeError:  # the exchange itself will tell whether peers are gone too
                self._lost = True

    def report(self, failure: Failure, seconds: float) -> None:
        """Writes a failure unless another rank has written one before."""
        text = json.dumps(asdict(failure))
        self._reader.ask(lambda store: store.compare_set("failure", "", text), seconds)

    def failure(self, seconds: float) -> Failure | None:
        """Returns the first failure that a rank reported, or None."""
        text = self._reader.ask(
            lambda store: store.get("failure") if store.check(["failure"]) else b"", seconds
        )
        if not text:
            return None
        try:
            said = json.loads(text)
            return Failure(int(said["rank"]), tuple(said["ranks"]), said["exchange"], said["text"])
        except (ValueError, KeyError, TypeError) as error:
            raise CommError(f"the store holds a failure that cannot be read: {text!r}") from error

    def anybody_left(self, seconds: float) -> bool:
        return bool(self._reader.ask(lambda store: store.check([_LEFT]), seconds))

    def statuses(self, seconds: float) -> dict[int, RankStatus] | None:
        """Returns the last status of every rank; None if the store does not answer."""
        keys = [f"status/{rank}" for rank in range(self._size)]
        found = self._reader.ask(lambda store: store.multi_get(keys), seconds)
        return None if found is None else {rank: self._latest(rank, text) for rank, text in enumerate(found)}

    def _latest(self, rank: int, stored: bytes) -> RankStatus:
        exchange, phase, text = stored.decode().split("|", 2)
        status = RankStatus(int(exchange), RankPhase(phase), text)
        entered = None if self._lines is None else self._lines.read(rank)
        if entered is None or status.phase in (RankPhase.CLOSED, RankPhase.FAILED):
            return status
        return RankStatus(entered[0], RankPhase.ENTERED, entered[1])


def _clone(store: Store) -> Store:
    """Returns another connection to the store; the store itself if it has no connections."""
    try:
        copy: Store = store.clone()  # type: ignore[attr-defined]  # not in torch's own stubs
    except (RuntimeError, NotImplementedError):
        return store
    copy.set_timeout(timedelta(seconds=5))  # keys that are read exist: only a stopped store waits
    return copy


#: The bytes of a line: two places, each of which has a number, a text, and a checksum of both.
_PLACES, _TEXT = 2, 116
_TOLD = struct.Struct(f"=q{_TEXT}s")
LINE_BYTES = _PLACES * (_TOLD.size + 4)
#: How often places are read while both change.
_TRIES = 100


class StatusLines:
    """The last exchange that each rank entered, in memory that all ranks share, which is faster
    than the store. A rank writes to two places in turn, each with a checksum, so that a reader
    finds one that is complete, whatever order processors see the bytes in. ``lines``: uint8
    [LINE_BYTES] by rank, zeros at first."""

    def __init__(self, lines: Mapping[int, Tensor], rank: int) -> None:
        self._places = {at: line.numpy().reshape(_PLACES, -1) for at, line in lines.items()}
        self._rank = rank

    def write(self, exchange: int, text: str) -> None:
        """Writes that this rank enters exchange number ``exchange``, and 116 bytes of the text."""
        told = _TOLD.pack(exchange, text.encode()[:_TEXT])
        place = told + _checksum(told)
        self._places[self._rank][exchange % _PLACES] = np.frombuffer(place, dtype=np.uint8)

    def read(self, rank: int) -> tuple[int, str] | None:
        """Returns (number, text) of the last exchange that a rank entered, or None."""
        for _ in range(_TRIES):
            places = [place.tobytes() for place in self._places[rank]]
            told = [place[:-4] for place in places if _checksum(place[:-4]) == place[-4:]]
            if told:
                number, text = max(map(_TOLD.unpack, told))
                return number, text.rstrip(b"\0").decode(errors="replace")
            if not any(map(any, places)):
                break
        return None


def _checksum(told: bytes) -> bytes:
    return zlib.crc32(told).to_bytes(4, sys.byteorder)


class StoreReader:
    """Asks the store with a time limit, from several threads. A request without an answer keeps its
    thread and the connection, and until it is answered, later ones return None at once."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._asking = threading.Lock()
        self._pending: threading.Thread | None = None

    def ask(self, request: Callable[[Store], T], seconds: float) -> T | None:
        """Returns the response, or None if there is none in time or no thread can be started."""
        started = time.monotonic()
        if not self._asking.acquire(timeout=seconds):
            return None
        try:
            if self._pending is not None and self._pending.is_alive():
                return None
            found: list[T] = []

            def run() -> None:
                with contextlib.suppress(RuntimeError):  # the store is gone: no response
                    found.append(request(self._store))

            asking = threading.Thread(target=run, name="comm status", daemon=True)
            asking.start()
            self._pending = asking
            asking.join(max(0.0, seconds - (time.monotonic() - started)))
            return found[0] if found else None
        except RuntimeError:  # there is no memory for a thread
            return None
        finally:
            self._asking.release()


def host_from(environment: Mapping[str, str]) -> int:
    """Returns the launcher's number of this host (torchrun's GROUP_RANK, Slurm's SLURM_NODEID), or
    0. Host names are not used: a machine may have several, and two machines the same."""
    for variable in ("GROUP_RANK", "SLURM_NODEID"):
        if value := environment.get(variable):
            if not value.isdecimal():
                raise ValueError(f"{variable} must be a number from 0, not {value!r}")
            return int(value)
    return 0


class Liveness(Enum):
    RUNNING = "is running"
    STOPPED = "is stopped (SIGSTOP, or a debugger)"
    GONE = "no longer exists"
    UNKNOWN = "cannot be seen from here"


@dataclass(frozen=True)
class ProcessInfo:
    """The identity of a process, which differs from a later process's of the same number."""

    machine: str  # identity of the running kernel and of the namespace of process numbers
    pid: int
    started: int  # clock ticks from the start of the kernel; unlike psutil's, never corrected

    @classmethod
    def own(cls) -> ProcessInfo:
        return cls(_machine(), os.getpid(), _stat(os.getpid())[1])

    def liveness(self) -> Liveness:
        """Returns whether the process still runs; `UNKNOWN` on another machine."""
        if not self.machine or self.machine != _machine():
            return Liveness.UNKNOWN
        try:
            state, started = _stat(self.pid)
        except OSError:
            return Liveness.GONE
        if started != self.started or state in "ZXx":
            return Liveness.GONE
        return Liveness.STOPPED if state in "Tt" else Liveness.RUNNING


def _machine() -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


def _stat(pid: int) -> tuple[str, int]:
    """Returns (state letter, start time); the process name before them may contain spaces."""
    words = Path(f"/proc/{pid}/stat").read_bytes().decode("latin-1").rpartition(")")[2].split()
    return words[0], int(words[19])


def endpoints() -> list[str]:
    """Returns the local addresses of this process's TCP sockets, as ``address port``. Errors of the
    transport name the other end's address, and so the rank."""
    try:
        found = psutil.Process().net_connections("tcp")
    except (psutil.Error, OSError):
        return []
    return sorted({_endpoint(one.laddr.ip, one.laddr.port) for one in found if one.laddr})


def endpoints_in(text: str) -> list[str]:
    found = []
    for address, port in re.findall(r"\[([0-9a-fA-F.:]+)\]:(\d+)", text):
        with contextlib.suppress(ValueError):
            found.append(_endpoint(address, int(port)))
    return found


def _endpoint(address: str, port: int) -> str:
    ip = ipaddress.ip_address(address)
    mapped = ip.ipv4_mapped if isinstance(ip, ipaddress.IPv6Address) else None
    return f"{mapped or ip} {port}"
