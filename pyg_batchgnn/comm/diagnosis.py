"""From what can be seen after a failure to an error that names the peer."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyg_batchgnn.comm.board import Failure, Note, RankState
from pyg_batchgnn.comm.process_info import Liveness, ProcessInfo, endpoints_in

#: Hundredths of a second that a dying process is given to be gone.
_MOMENTS = 10


@dataclass(frozen=True)
class Peer:
    """What is known of a rank since the communicator was made."""

    rank: int
    host: int
    process: ProcessInfo
    endpoints: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"rank {self.rank} (host {self.host}, process {self.process.pid})"


@dataclass(frozen=True)
class Scene:
    """What a rank sees when an exchange fails."""

    rank: int
    communicator: str
    exchange: int
    purpose: str
    waited: float  # seconds
    timeout: float  # seconds
    timed_out: bool
    text: str  # the backend's
    notes: Mapping[int, Note] | None  # of all ranks; None: the store does not answer
    elsewhere: Mapping[int, str]  # what ranks do in other communicators


def blame(scene: Scene, peers: Sequence[Peer]) -> Failure:
    """Names the ranks at fault, as far as can be seen, and says why.

    In this order: processes of this machine that are gone (or stopped, after a timeout), the peer whose
    address the backend's error names, ranks that closed or never entered the exchange, and at last those that
    entered and have not gone on.
    """
    notes = scene.notes or {}
    others = [
        peer
        for peer in peers
        if peer.rank != scene.rank and not (peer.rank in notes and finished(notes[peer.rank], scene.exchange))
    ]
    lives = {peer.rank: peer.process.life() for peer in others}
    wanted = {Liveness.GONE, Liveness.STOPPED} if scene.timed_out else {Liveness.GONE}
    guilty = [peer for peer in others if lives[peer.rank] in wanted]
    named = set(endpoints_in(scene.text))
    if not guilty:
        guilty = [peer for peer in others if named & set(peer.endpoints)]
    if not guilty and scene.notes:
        guilty = _behind(scene, others) or _not_moved_on(scene, others)
        lives.update(_settled(guilty) if not scene.timed_out else {})
    sentences = [f"{peer} {_what(scene, peer, lives[peer.rank])}" for peer in guilty]
    if not guilty:
        sentences = ["the peer that failed could not be made out"]
    if scene.notes is None:
        sentences.append("the store does not answer: the process that hosts it may be the one that is gone")
    return Failure(
        scene.rank,
        tuple(peer.rank for peer in guilty),
        scene.exchange,
        "; ".join([*sentences, _ending(scene)]),
    )


def _settled(guilty: Sequence[Peer]) -> dict[int, Liveness]:
    """What became of ranks whose connection is gone: a process that is killed closes its connections a moment
    before it is seen to be gone."""
    for _ in range(_MOMENTS):
        lives = {peer.rank: peer.process.life() for peer in guilty}
        if not lives or Liveness.RUNNING not in lives.values():
            break
        time.sleep(0.01)
    return lives


def finished(note: Note, exchange: int) -> bool:
    """Whether a rank took part in an exchange to its end and then closed, as it may."""
    return note.state is RankState.CLOSED and note.exchange >= exchange


def _behind(scene: Scene, others: Sequence[Peer]) -> list[Peer]:
    notes = scene.notes or {}
    return [
        peer
        for peer in others
        if notes[peer.rank].exchange < scene.exchange or notes[peer.rank].state is not RankState.ENTERED
    ]


def _not_moved_on(scene: Scene, others: Sequence[Peer]) -> list[Peer]:
    notes = scene.notes or {}
    return [peer for peer in others if notes[peer.rank].exchange == scene.exchange]


def _what(scene: Scene, peer: Peer, life: Liveness) -> str:
    """What is known of a rank at fault: its process, and its last note."""
    facts = []
    if life in (Liveness.GONE, Liveness.STOPPED):
        facts.append(f"{life.value}")
    elif set(endpoints_in(scene.text)) & set(peer.endpoints):
        facts.append("closed its connection")
    note = (scene.notes or {}).get(peer.rank)
    if note is not None:
        facts.append(_last(scene, note))
    if doing := scene.elsewhere.get(peer.rank):
        facts.append(doing)
    return " and ".join(facts)


def _last(scene: Scene, note: Note) -> str:
    at = f"exchange {scene.exchange} ({scene.purpose})"
    if note.state in (RankState.CLOSED, RankState.FAILED):
        reason = f": {note.text}" if note.text else ""
        return f"{note.state.value} after exchange {note.exchange}{reason}"
    if note.exchange == scene.exchange:
        return f"entered {at} and never left it"
    if note.exchange > scene.exchange:
        return f"went on to exchange {note.exchange} ({note.text})"
    last = f"; it last entered exchange {note.exchange} ({note.text})" if note.exchange else ""
    return f"never entered {at}{last}"


def _first_sentence(text: str) -> str:
    """Without the source file that gloo begins with and the advice that it ends with."""
    line = text.splitlines()[0] if text else ""
    return re.sub(r"^\[[^\]]*/[^\]]*\] ", "", line).split(". ", 1)[0]


def _ending(scene: Scene) -> str:
    ending = f"rank {scene.rank} waited {scene.waited:.1f} s of {scene.timeout:.0f} s "
    ending += f"in communicator {scene.communicator!r}"
    if not scene.timed_out:
        ending += f"; the transport says: {_first_sentence(scene.text) or 'nothing'}"
    return ending
