"""One process group, its board and its counters: every exchange is a `Step` of a `Channel`."""

from __future__ import annotations

import contextlib
import ctypes
import threading
import time
import weakref
from collections.abc import Iterator, Sequence

import torch.distributed as dist

from pyg_batchgnn.comm.board import Board, Failure, Note, RankState
from pyg_batchgnn.comm.counters import CommCounters
from pyg_batchgnn.comm.diagnosis import Peer, Scene, blame, finished
from pyg_batchgnn.comm.errors import BrokenCommunicatorError, CommError, PeerError
from pyg_batchgnn.comm.header import Header, Operation, Purpose
from pyg_batchgnn.comm.process_info import Liveness
from pyg_batchgnn.comm.step import Step
from pyg_batchgnn.comm.transport import INT_LIMIT, Transport
from pyg_batchgnn.comm.wait import TransportError, TransportTimeout

#: While waiting, peers are looked after this often, in seconds.
_LOOK = 0.5

#: Channels of this process: what a silent peer does in another one is part of the story.
_CHANNELS: weakref.WeakSet[Channel] = weakref.WeakSet()


class PeerFailure(Exception):  # noqa: N818
    """Another rank has written down a failure, or a process of this machine is gone."""

    def __init__(self, failure: Failure | None) -> None:
        super().__init__("a peer failed")
        self.failure = failure


class Channel:
    """Numbered exchanges between the ranks of one process group.

    Args:
        name: what users call the communicator.
        group: the process group, None in a world of one rank.
        board: where ranks note what they enter, None in a world of one rank.
        peers: all ranks, this one included.
        rank: of this process.
        timeout: seconds. A wait ends a little earlier (a twentieth, at most a second), so that the error that
            names the peer is there by then.
        limit: bytes that one call of the backend may carry.
    """

    def __init__(
        self,
        name: str,
        group: dist.ProcessGroup | None,
        board: Board | None,
        peers: Sequence[Peer],
        rank: int,
        timeout: float,
        limit: int = INT_LIMIT,
    ) -> None:
        self.name, self.rank, self.size = name, rank, len(peers)
        self.peers, self.timeout, self.group, self.board = list(peers), timeout, group, board
        self.counters = CommCounters()
        self.exchange = 0  # number of the last one entered
        self.broken: CommError | None = None
        self.stopping = threading.Event()
        self._reserve = min(1.0, timeout / 20)
        self.transport = Transport(group, rank, self.size, timeout - self._reserve, self._look, limit)
        self._last_look = 0.0
        _CHANNELS.add(self)

    @contextlib.contextmanager
    def step(
        self, operation: Operation, header: Header, row_bytes: int = 0, dtype: int = -1
    ) -> Iterator[Step]:
        """One exchange, from its note on the board to its last byte. Whatever goes wrong inside breaks the
        channel: ranks no longer stand at the same point.

        Raises:
            PeerError, DivergenceError: what became of it.
            BrokenCommunicatorError: it broke, or was closed, earlier.
        """
        if self.broken is not None:
            raise BrokenCommunicatorError(
                f"communicator {self.name!r} cannot be used any more: {self.broken}", self.broken.ranks
            )
        self.exchange += 1
        purpose = Purpose(self.exchange, operation, header, row_bytes, dtype)
        if self.board is not None:
            self.board.enter(self.exchange, str(purpose))
        step = Step(self, purpose)
        try:
            yield step
        except (TransportError, TransportTimeout, PeerFailure) as error:
            story, explained = self._explain(step, error)
            raise self.fail(explained, story) from error
        except BaseException as error:
            raised = error if isinstance(error, CommError) else None
            self.fail(raised or CommError(_own_story(self.rank, purpose, error), [self.rank]))
            raise

    def fail(self, error: CommError, story: str = "") -> CommError:
        """Breaks the channel: tells the others (the story, or the error's own words), and leaves the process
        group as it is for ever. Destroying a group in the middle of a collective would wait for it."""
        if self.broken is None:
            self.broken = error
            if self.board is not None:
                story = story or str(error)
                self.board.report(Failure(self.rank, error.ranks, self.exchange, story), self._reserve)
                self.board.leave(RankState.FAILED, self.exchange, story)
            _abandon(self.group)
        return error

    def close(self, reason: str = "") -> None:
        """Leaves. A whole group is destroyed, a broken one was abandoned. Never waits for peers."""
        if self.broken is not None:
            return
        self.broken = CommError(reason or "it was closed", [self.rank])
        self.stopping.set()
        if self.board is not None:
            self.board.leave(RankState.CLOSED, self.exchange, reason)
        if self.group is not None and dist.is_initialized():  # the user may have destroyed all groups
            dist.destroy_process_group(self.group)
        self.group = None

    def notes(self, seconds: float) -> dict[int, Note] | None:
        return None if self.board is None else self.board.notes(seconds)

    def _look(self, waited: float) -> None:
        """Looks after the peers while this rank waits."""
        if self.stopping.is_set():
            raise TransportError("this process is ending")
        if waited < _LOOK:
            self._last_look = 0.0
        if waited - self._last_look < _LOOK or self.board is None:
            return
        self._last_look = waited
        failure = self.board.failure(self._reserve)
        if failure is not None or self._somebody_died():
            raise PeerFailure(failure)

    def _somebody_died(self) -> bool:
        """Whether a process of this machine is gone that did not first finish this exchange and close."""
        gone = [peer.rank for peer in self.peers if peer.process.life() is Liveness.GONE]
        notes = self.notes(self._reserve) if gone else None
        return any(notes is None or not finished(notes[rank], self.exchange) for rank in gone)

    def _explain(self, step: Step, error: Exception) -> tuple[str, PeerError]:
        """What happened, and the error that says so: another rank's finding, where there is one, or ours."""
        waited = time.monotonic() - step.entered
        failure = error.failure if isinstance(error, PeerFailure) else None
        if failure is None and self.board is not None:
            failure = self.board.failure(self._reserve / 2)
        if failure is None:
            failure = self._blame(step, error, waited)
            if self.board is not None:  # who told of it and ended while this rank looked is not at fault
                failure = self.board.failure(self._reserve / 2) or failure
        if failure.rank == self.rank:
            ranks, text = failure.ranks, failure.text
        else:
            ranks = failure.ranks or (failure.rank,)
            text = f"{failure.text} (reported by rank {failure.rank} in exchange {failure.exchange}; "
            text += f"rank {self.rank} waited {waited:.1f} s of {self.timeout:.0f} s)"
        where = f"exchange {self.exchange} of communicator {self.name!r} ({step.purpose}) failed"
        remedy = "see the output of the rank that is named; start again from the last checkpoint"
        return failure.text, PeerError(f"{where}: {text}; {remedy}", ranks, self.exchange, waited)

    def _blame(self, step: Step, error: Exception, waited: float) -> Failure:
        text = str(error) if isinstance(error, TransportError) else ""
        timed_out = isinstance(error, TransportTimeout) or "timed out" in text.lower()
        notes = self.notes(self._reserve / 2)
        scene = Scene(
            *(self.rank, self.name, self.exchange, str(step.purpose), waited, self.timeout, timed_out, text),
            notes=notes,
            elsewhere=_elsewhere(self, self._reserve / 2) if notes else {},
        )
        return blame(scene, self.peers)


def _elsewhere(channel: Channel, seconds: float) -> dict[int, str]:
    """What ranks last did in this process's other communicators."""
    found: dict[int, list[str]] = {}
    for other in sorted(_CHANNELS, key=lambda other: other.name):
        if other is channel or other.board is None:
            continue
        for rank, note in (other.board.notes(seconds) or {}).items():
            if note.state is RankState.ENTERED:
                text = f"exchange {note.exchange} of communicator {other.name!r} ({note.text})"
                found.setdefault(rank, []).append(f"last entered {text}")
    return {rank: " and ".join(texts) for rank, texts in found.items()}


def _own_story(rank: int, purpose: Purpose, error: BaseException) -> str:
    what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return f"rank {rank} met {what} in exchange {purpose.exchange} ({purpose})"


_abandoned = 0


def groups_abandoned() -> int:
    """How many process groups are kept for ever, because they broke in the middle of a collective."""
    return _abandoned


def _abandon(group: dist.ProcessGroup | None) -> None:
    """Keeps a group from ever being destroyed, at the interpreter's end too."""
    global _abandoned
    if group is not None:
        _abandoned += 1
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(group))
