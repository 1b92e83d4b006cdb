"""Where the ranks of one attempt of a job meet: a corner of the launcher's store that is new.

torchrun keeps its store when it starts failed ranks again, and what the ranks before them wrote with it:
where they listened, for one. It tells the new ranks nothing that is theirs alone and the same on every host.
So each says that it is here under a name of its own, the first one proposes a corner for the names that it
sees, and the corner counts once every rank has found its name in the proposal and said so.
"""

from __future__ import annotations

import json
import time
import uuid

from torch._C._distributed_c10d import PrefixStore, Store

from pyg_batchgnn.comm.errors import PeerError

_HERE, _PROPOSAL = "pyg_batchgnn/here/{}", "pyg_batchgnn/proposal"
_POLL = 0.005


def fresh_corner(store: Store, rank: int, size: int, timeout: float) -> Store:
    """A part of `store` for this attempt's ranks; collective.

    Raises:
        PeerError: not all ranks came within `timeout` seconds.
    """
    mine = uuid.uuid4().hex
    store.set(_HERE.format(rank), mine)
    meeting = _Meeting(store, rank, size)
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        corner = meeting.lead() if rank == 0 else meeting.follow(mine)
        if corner is not None:
            return PrefixStore(f"pyg_batchgnn/{corner}", store)
        time.sleep(_POLL)
    absent = meeting.absent()
    who = f"rank {', '.join(map(str, absent))}" if absent else "the other ranks"
    raise PeerError(f"{who} did not come to meet rank {rank} within {timeout:g} s", absent, waited=timeout)


class _Meeting:
    """One rank's view of the meeting."""

    def __init__(self, store: Store, rank: int, size: int) -> None:
        self._store = store
        self._rank = rank
        self._size = size
        self._corner = ""
        self._names: list[str] = []

    def lead(self) -> str | None:
        """The first rank's look: propose a corner whenever other names are seen; the one that all have
        accepted."""
        here = [_HERE.format(rank) for rank in range(self._size)]
        if not self._store.check(here):
            return None
        names = [self._store.get(key).decode() for key in here]
        if names != self._names:
            self._corner, self._names = uuid.uuid4().hex, names
            self._store.set(_PROPOSAL, json.dumps([self._corner, names]))
            self._accept(0)
        if self._store.check([self._accepted(rank) for rank in range(self._size)]):
            self._store.set(self._accepted("all"), "")
            return self._corner
        return None

    def follow(self, mine: str) -> str | None:
        """Another rank's look: accept a proposal for this rank; the corner that all have accepted."""
        if not self._store.check([_PROPOSAL]):
            return None
        corner, names = json.loads(self._store.get(_PROPOSAL))
        if len(names) != self._size or names[self._rank] != mine:
            return None
        if corner != self._corner:
            self._corner = corner
            self._accept(self._rank)
        return corner if self._store.check([self._accepted("all")]) else None

    def absent(self) -> list[int]:
        """Ranks that the first one knows to be missing; others know nothing."""
        if self._rank > 0:
            return []
        return [rank for rank in range(1, self._size) if not self._store.check([self._accepted(rank)])]

    def _accept(self, rank: int) -> None:
        self._store.set(self._accepted(rank), "")

    def _accepted(self, who: int | str) -> str:
        return f"pyg_batchgnn/{self._corner}/accepted/{who}"
