"""The diagnosis of a failed exchange: which peer is at fault, from what one rank can see."""

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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from torch import Tensor
from torch.distributed import PrefixStore, Store  # type: ignore[attr-defined]

from pyg_batchgnn.comm.errors import CommError, PeerError


#: Hundredths of a second for which a dying process is given time to end.
_MOMENTS = 10


@dataclass(frozen=True)
class Peer:
    """A rank, as it introduced itself when the communicator was made."""

    rank: int
    host: int
    process: ProcessInfo
    endpoints: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"rank {self.rank} (host {self.host}, process {self.process.pid})"


@dataclass(frozen=True)
class Evidence:
    rank: int  # this rank
    communicator: str  # its name
    exchange: int  # the number of the exchange
    purpose: str  # what the exchange was for
    #: waited, timeout: seconds
    waited: float
    timeout: float
    timed_out: bool  # whether the exchange ran out of time
    text: str  # the backend's error
    #: the last status of all ranks, None where the store does not answer
    statuses: Mapping[int, RankStatus] | None
    elsewhere: Mapping[int, str]  # what ranks do in other communicators, by rank


def diagnose(evidence: Evidence, peers: Sequence[Peer]) -> Failure:
    """Names the ranks at fault, as far as can be seen, and says why.

    The candidates are tried in this order: processes of this machine that are gone (or stopped,
    after a timeout), the peer whose address the backend's error names, ranks that closed or never
    entered the exchange, and finally ranks that entered it and have not gone on.
    """
    statuses = evidence.statuses or {}
    others = [
        peer
        for peer in peers
        if peer.rank != evidence.rank
        and not (peer.rank in statuses and finished(statuses[peer.rank], evidence.exchange))
    ]
    liveness = {peer.rank: peer.process.liveness() for peer in others}
    suspect = {Liveness.GONE, Liveness.STOPPED} if evidence.timed_out else {Liveness.GONE}
    guilty = [peer for peer in others if liveness[peer.rank] in suspect]
    named = set(endpoints_in(evidence.text))
    if not guilty:
        guilty = [peer for peer in others if named & set(peer.endpoints)]
    if not guilty and evidence.statuses:
        guilty = _behind(evidence, others)
        guilty = guilty or [one for one in others if statuses[one.rank].exchange == evidence.exchange]
        liveness.update(_settled(guilty) if not evidence.timed_out else {})
    sentences = [f"{peer} {_observed(evidence, peer, liveness[peer.rank])}" for peer in guilty]
    if not guilty:
        sentences = ["the peer that failed could not be identified"]
    if evidence.statuses is None:
        sentences.append("the store does not answer: the process that hosts it may be the one that is gone")
    return Failure(
        evidence.rank,
        tuple(peer.rank for peer in guilty),
        evidence.exchange,
        "; ".join([*sentences, _ending(evidence)]),
    )


def finished(status: RankStatus, exchange: int) -> bool:
    """Returns whether a rank finished an exchange and then closed, which is allowed."""
    return status.phase is RankPhase.CLOSED and status.exchange >= exchange


def _settled(guilty: Sequence[Peer]) -> dict[int, Liveness]:
    """Returns what became of ranks whose connection is gone. A process that is killed closes its
    connections a moment before others see that it is gone."""
    for _ in range(_MOMENTS):
        liveness = {peer.rank: peer.process.liveness() for peer in guilty}
        if not liveness or Liveness.RUNNING not in liveness.values():
            break
        time.sleep(0.01)
    return liveness


def _behind(evidence: Evidence, others: Sequence[Peer]) -> list[Peer]:
    statuses = evidence.statuses or {}
    return [
        peer
        for peer in others
        if statuses[peer.rank].exchange < evidence.exchange
        or statuses[peer.rank].phase is not RankPhase.ENTERED
    ]


def _observed(evidence: Evidence, peer: Peer, liveness: Liveness) -> str:
    facts = []
    if liveness in (Liveness.GONE, Liveness.STOPPED):
        facts.append(f"{liveness.value}")
    elif set(endpoints_in(evidence.text)) & set(peer.endpoints):
        facts.append("closed its connection")
    status = (evidence.statuses or {}).get(peer.rank)
    if status is not None:
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


def _first_sentence(text: str) -> str:
    """Removes gloo's source file and advice from a text."""
    line = text.splitlines()[0] if text else ""
    return re.sub(r"^\[[^\]]*/[^\]]*\] ", "", line).split(". ", 1)[0]


def _ending(evidence: Evidence) -> str:
    ending = f"rank {evidence.rank} waited {evidence.waited:.1f} s of {evidence.timeout:.0f} s "
    ending += f"in communicator {evidence.communicator!r}"
    if said := _first_sentence(evidence.text):
        ending += "" if evidence.timed_out else f"; the transport says: {said}"
    return ending


# The status board: each rank writes which exchange it enters, so that others can name who is
# missing.
#
# The board is a thin layer over torch's key-value store. The store does not answer a ``set``, so
# writing does not wait for it. The store may stop answering at any time, because the rank that
# hosts it was killed or stopped. So a thread that may be left behind does the reading, and a
# failure to read is never an error of its own. Ranks that share memory write there what they enter
# (`StatusLines`), and only the rest to the store.


#: The key that the first rank to leave sets.
_LEFT = "left"


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
    phase: RankPhase  # what it did
    text: str  # what the exchange was for, or why no other one follows


@dataclass(frozen=True)
class Failure:
    """The first failure that a rank of the communicator met. All other failures follow from it."""

    rank: int  # the rank that reported it
    ranks: tuple[int, ...]  # the ranks at fault
    exchange: int  # the number of the exchange
    text: str  # what happened


class StatusBoard:
    """The status of all ranks of one communicator.

    Args:
        store: torch's key-value store. The board opens connections of its own, because a connection
            that waits for an answer blocks every other use of it.
        prefix: the communicator's namespace in the store, the same on every rank.
        rank, size: as in the process group.
    """

    def __init__(self, store: Store, prefix: str, rank: int, size: int) -> None:
        self._rank, self._size = rank, size
        self._writer = PrefixStore(prefix, _clone(store))
        self._reader = StoreReader(PrefixStore(prefix, _clone(store)))
        self._lost = False  # whether the store has refused a status
        self._lines: StatusLines | None = None

    def join(self, introduction: dict[str, Any], timeout: float) -> list[dict[str, Any]]:
        """Introduces this rank and waits for all others. Collective. ``introduction``: JSON values
        about this rank. Returns the introductions of all ranks, by rank. Raises PeerError if a rank
        has not come in time."""
        self._writer.set(f"status/{self._rank}", _encode(RankStatus(0, RankPhase.JOINED, "")))
        self._writer.set(f"introduction/{self._rank}", json.dumps(introduction))
        keys = [f"introduction/{rank}" for rank in range(self._size)]
        started, pause = time.monotonic(), 0.002
        while not self._writer.check(keys):
            if time.monotonic() - started > timeout:
                absent = [rank for rank, key in enumerate(keys) if not self._writer.check([key])]
                if absent:
                    raise _never_came(absent, introduction.get("name"), timeout)
            time.sleep(pause)
            pause = min(2 * pause, 0.1)
        return [json.loads(self._writer.get(key)) for key in keys]

    def share(self, lines: StatusLines | None) -> None:
        """Lets this rank write in memory from now on what it enters, or no longer. Every rank does
        the same before its next exchange."""
        self._lines = lines
        if lines is not None:  # what the store has of the exchanges so far would grow old
            self._write(RankStatus(0, RankPhase.JOINED, ""))

    def enter(self, exchange: int, text: str) -> None:
        """Writes that this rank enters an exchange. Called before every exchange."""
        if self._lines is None:
            self._write(RankStatus(exchange, RankPhase.ENTERED, text))
        else:
            self._lines.write(exchange, text)

    def leave(self, phase: RankPhase, exchange: int, text: str) -> None:
        """Writes that this rank will enter no other exchange, and why."""
        self._write(RankStatus(exchange, phase, text))
        self._set(_LEFT, str(self._rank))

    def _write(self, status: RankStatus) -> None:
        self._set(f"status/{self._rank}", _encode(status))

    def _set(self, key: str, value: str) -> None:
        if self._lost:
            return
        try:
            self._writer.set(key, value)
        except RuntimeError:  # the exchange itself will tell whether peers are gone too
            self._lost = True

    def report(self, failure: Failure, seconds: float) -> Failure | None:
        """Writes a failure unless another rank has written one before. Returns the failure that is
        on the board, or None where the store does not answer."""
        text = json.dumps(asdict(failure))
        answer = self._reader.ask(lambda store: store.compare_set("failure", "", text), seconds)
        return _failure(answer) if answer else None

    def failure(self, seconds: float) -> Failure | None:
        """Returns the first failure that any rank wrote, or None."""

        def look(store: Store) -> bytes | None:
            return store.get("failure") if store.check(["failure"]) else None

        answer = self._reader.ask(look, seconds)
        return _failure(answer) if answer else None

    def anybody_left(self, seconds: float) -> bool:
        return bool(self._reader.ask(lambda store: store.check([_LEFT]), seconds))

    def statuses(self, seconds: float) -> dict[int, RankStatus] | None:
        """Returns the last status of every rank, or None where the store does not answer."""
        keys = [f"status/{rank}" for rank in range(self._size)]
        answer = self._reader.ask(lambda store: store.multi_get(keys), seconds)
        return (
            None if answer is None else {rank: self._latest(rank, text) for rank, text in enumerate(answer)}
        )

    def _latest(self, rank: int, stored: bytes) -> RankStatus:
        """Returns the last status of a rank, given that in the store."""
        status = _decode(stored)
        entered = None if self._lines is None else self._lines.read(rank)
        if entered is None or status.phase in (RankPhase.CLOSED, RankPhase.FAILED):
            return status
        return RankStatus(entered[0], RankPhase.ENTERED, entered[1])


def _never_came(absent: list[int], name: Any, timeout: float) -> PeerError:
    return PeerError(
        f"rank {', '.join(map(str, absent))} never came to make communicator {name!r} within "
        f"{timeout:.0f} s; every rank must make the same communicators in the same order, so see the "
        "output of those ranks, or raise the timeout",
        absent,
        waited=timeout,
    )


def _clone(store: Store) -> Store:
    """Opens another connection to the store. A store without connections is returned itself."""
    try:
        copy: Store = store.clone()  # type: ignore[attr-defined]  # not in torch's own stubs
    except (RuntimeError, NotImplementedError):
        return store
    copy.set_timeout(timedelta(seconds=5))  # keys that are read exist: only a stopped store waits
    return copy


def _encode(status: RankStatus) -> str:
    return f"{status.exchange}|{status.phase.value}|{status.text}"


def _decode(text: bytes) -> RankStatus:
    exchange, phase, rest = text.decode().split("|", 2)
    return RankStatus(int(exchange), RankPhase(phase), rest)


def _failure(text: bytes) -> Failure:
    record = json.loads(text)
    try:
        return Failure(int(record["rank"]), tuple(record["ranks"]), record["exchange"], record["text"])
    except (KeyError, TypeError) as error:
        raise CommError(f"the store holds a failure that cannot be read: {text!r}") from error


# The last exchange that each rank entered, in memory that all ranks of a channel share.
#
# Writing there takes a few microseconds. Writing to the store wakes the process that hosts it,
# too: an eighth of the time of a small exchange with four ranks.


#: The bytes of a line: two places, each of which has a number, a text, and a checksum of both.
_PLACES, _TEXT = 2, 116
_TOLD = struct.Struct(f"=q{_TEXT}s")
LINE_BYTES = _PLACES * (_TOLD.size + 4)
#: How often places are read while both change.
_TRIES = 100


class StatusLines:
    """The lines of all ranks. A rank writes in its two places in turn, so that one of them is whole
    at any time. By its checksum a reader knows that a place is whole, in whatever order processors
    see the bytes. ``lines``: uint8 [LINE_BYTES] by rank, zeros at first."""

    def __init__(self, lines: Mapping[int, Tensor], rank: int) -> None:
        self._places = {at: line.numpy().reshape(_PLACES, -1) for at, line in lines.items()}
        self._rank = rank

    def write(self, exchange: int, text: str) -> None:
        """Writes that this rank enters an exchange, numbered from 1; keeps 116 bytes of the
        text."""
        told = _TOLD.pack(exchange, text.encode()[:_TEXT])
        place = told + _checksum(told)
        self._places[self._rank][exchange % _PLACES] = np.frombuffer(place, dtype=np.uint8)

    def read(self, rank: int) -> tuple[int, str] | None:
        """Returns the number and text of the last exchange that a rank entered; None before the
        first."""
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


T = TypeVar("T")


class StoreReader:
    """Asks the store without waiting too long, from several threads at once. A question that is not
    answered in time keeps its thread and the connection. Until it is answered, later questions
    return None at once."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._asking = threading.Lock()
        self._pending: threading.Thread | None = None

    def ask(self, question: Callable[[Store], T], seconds: float) -> T | None:
        """Returns the answer, or None if it takes longer, other threads' questions included."""
        started = time.monotonic()
        if not self._asking.acquire(timeout=seconds):
            return None
        try:
            return self._ask(question, max(0.0, seconds - (time.monotonic() - started)))
        finally:
            self._asking.release()

    def _ask(self, question: Callable[[Store], T], seconds: float) -> T | None:
        if self._pending is not None and self._pending.is_alive():
            return None
        answers: list[T] = []

        def run() -> None:
            with contextlib.suppress(RuntimeError):  # the store is gone: no answer
                answers.append(question(self._store))

        self._pending = threading.Thread(target=run, name="comm status", daemon=True)
        self._pending.start()
        self._pending.join(seconds)
        return answers[0] if answers else None


_PROC = Path("/proc")
_HOST_VARIABLES = ("GROUP_RANK", "SLURM_NODEID")


def host_from(environment: Mapping[str, str]) -> int:
    """Returns the number of the host as the launcher counts (torchrun's GROUP_RANK, Slurm's
    SLURM_NODEID), or 0 without a launcher. The host's name is never used. Containers of one machine
    may have several names, and two machines may have the same name."""
    for variable in _HOST_VARIABLES:
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
    """The identity of a process. A later process with the same number has another identity."""

    machine: str  # identity of the running kernel and of the namespace of process numbers
    pid: int  # the process number
    started: int  # clock ticks from the start of the kernel to the start of the process

    @classmethod
    def own(cls) -> ProcessInfo:
        pid = os.getpid()
        return cls(_machine(), pid, _stat(pid)[1])

    def liveness(self) -> Liveness:
        """Returns whether the process still runs; unknown on another machine."""
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
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


def _stat(pid: int) -> tuple[str, int]:
    """Returns the state's letter and the start time. The name before may hold spaces and
    brackets."""
    try:
        words = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except ProcessLookupError as gone:  # it ended between opening and reading
        raise FileNotFoundError(pid) from gone
    return words[0], int(words[19])


# The local addresses of a process's TCP connections.
#
# A transport's error names the address of a connection's other end. With the addresses of all
# ranks it can be turned into a rank.


def endpoints() -> list[str]:
    """Returns the local addresses of this process's TCP sockets, each as ``address port``. The list
    is empty where /proc does not list them."""
    try:
        sockets = {_socket(entry) for entry in (_PROC / "self/fd").iterdir()}
        lines = [line for name in ("tcp", "tcp6") for line in _table(_PROC / "self/net" / name)]
    except OSError:
        return []
    return sorted({_address(words[1]) for words in map(str.split, lines) if words[9] in sockets})


def endpoints_in(text: str) -> list[str]:
    found = []
    for address, port in re.findall(r"\[([0-9a-fA-F.:]+)\]:(\d+)", text):
        try:
            found.append(_endpoint(address, int(port)))
        except ValueError:
            continue
    return found


def _socket(entry: Path) -> str:
    """Returns the inode of an open socket, or "" for anything else."""
    try:
        found = re.fullmatch(r"socket:\[(\d+)\]", str(entry.readlink()))
    except OSError:
        return ""
    return found.group(1) if found else ""


def _table(path: Path) -> list[str]:
    return path.read_text().splitlines()[1:] if path.exists() else []


def _address(text: str) -> str:
    """Converts the kernel's hexadecimal form, words of four bytes in the machine's order."""
    address, port = text.split(":")
    words = [bytes.fromhex(address[at : at + 8])[::-1] for at in range(0, len(address), 8)]
    return _endpoint(str(ipaddress.ip_address(b"".join(words))), int(port, 16))


def _endpoint(address: str, port: int) -> str:
    ip = ipaddress.ip_address(address)
    mapped = ip.ipv4_mapped if isinstance(ip, ipaddress.IPv6Address) else None
    return f"{mapped or ip} {port}"
