"""The diagnosis of a failed exchange: which peer is at fault, from what one rank can see."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyg_batchgnn.comm.endpoints import endpoints_in
from pyg_batchgnn.comm.process_info import Liveness, ProcessInfo
from pyg_batchgnn.comm.status_board import Failure, RankPhase, RankStatus

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
    """The facts that a rank sees when an exchange fails.

    Attributes:
        rank: this rank.
        communicator: its name.
        exchange: the number of the exchange.
        purpose: what the exchange was for.
        waited, timeout: seconds.
        timed_out: whether the exchange ran out of time.
        text: the backend's error.
        statuses: the last status of all ranks, None where the store does not answer.
        elsewhere: what ranks do in other communicators, by rank.
    """

    rank: int
    communicator: str
    exchange: int
    purpose: str
    waited: float
    timeout: float
    timed_out: bool
    text: str
    statuses: Mapping[int, RankStatus] | None
    elsewhere: Mapping[int, str]


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
        guilty = _behind(evidence, others) or _not_moved_on(evidence, others)
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
    """Returns whether a rank took part in an exchange to its end and then closed, which is
    allowed."""
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


def _not_moved_on(evidence: Evidence, others: Sequence[Peer]) -> list[Peer]:
    statuses = evidence.statuses or {}
    return [peer for peer in others if statuses[peer.rank].exchange == evidence.exchange]


def _observed(evidence: Evidence, peer: Peer, liveness: Liveness) -> str:
    """Returns what is known of a rank at fault: its process and its last status."""
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
    """Returns the text without the source file that gloo begins with and the advice that it ends
    with."""
    line = text.splitlines()[0] if text else ""
    return re.sub(r"^\[[^\]]*/[^\]]*\] ", "", line).split(". ", 1)[0]


def _ending(evidence: Evidence) -> str:
    ending = f"rank {evidence.rank} waited {evidence.waited:.1f} s of {evidence.timeout:.0f} s "
    ending += f"in communicator {evidence.communicator!r}"
    if said := _first_sentence(evidence.text):
        ending += "" if evidence.timed_out else f"; the transport says: {said}"
    return ending
