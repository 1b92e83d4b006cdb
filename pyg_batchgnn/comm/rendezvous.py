"""The rendezvous of the ranks of one attempt of a job: a new namespace in the launcher's store.

torchrun keeps its store when it restarts failed ranks. The store then still holds what earlier
ranks wrote, for example the addresses at which they listened. torchrun tells the new ranks nothing
that only they know and that is the same on every host. So each rank writes a token of its own. Rank
0 proposes a namespace for the tokens that it sees. The namespace is valid once every rank has found
its token in the proposal and has accepted it.
"""

from __future__ import annotations

import json
import time
import uuid

from torch._C._distributed_c10d import PrefixStore, Store

from pyg_batchgnn.comm.errors import PeerError

_TOKEN, _PROPOSAL = "pyg_batchgnn/token/{}", "pyg_batchgnn/proposal"
_POLL = 0.005


def fresh_namespace(store: Store, rank: int, size: int, timeout: float) -> Store:
    """Returns a part of ``store`` that only the ranks of this attempt use. Collective.

    Raises:
        PeerError: not all ranks came within ``timeout`` seconds.
    """
    token = uuid.uuid4().hex
    store.set(_TOKEN.format(rank), token)
    rendezvous = _Rendezvous(store, rank, size)
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        namespace = rendezvous.lead() if rank == 0 else rendezvous.follow(token)
        if namespace is not None:
            return PrefixStore(f"pyg_batchgnn/{namespace}", store)
        time.sleep(_POLL)
    absent = rendezvous.absent()
    who = f"rank {', '.join(map(str, absent))}" if absent else "the other ranks"
    raise PeerError(f"{who} did not come to meet rank {rank} within {timeout:g} s", absent, waited=timeout)


class _Rendezvous:
    """One rank's view of the rendezvous."""

    def __init__(self, store: Store, rank: int, size: int) -> None:
        self._store = store
        self._rank = rank
        self._size = size
        self._namespace = ""
        self._tokens: list[str] = []

    def lead(self) -> str | None:
        """Polls once as rank 0: proposes a namespace whenever the tokens have changed. Returns the
        namespace once all ranks have accepted it."""
        keys = [_TOKEN.format(rank) for rank in range(self._size)]
        if not self._store.check(keys):
            return None
        tokens = [self._store.get(key).decode() for key in keys]
        if tokens != self._tokens:
            self._namespace, self._tokens = uuid.uuid4().hex, tokens
            self._store.set(_PROPOSAL, json.dumps([self._namespace, tokens]))
            self._accept(0)
        if self._store.check([self._accepted(rank) for rank in range(self._size)]):
            self._store.set(self._accepted("all"), "")
            return self._namespace
        return None

    def follow(self, token: str) -> str | None:
        """Polls once as another rank: accepts a proposal that holds this rank's token. Returns the
        namespace once all ranks have accepted it."""
        if not self._store.check([_PROPOSAL]):
            return None
        namespace, tokens = json.loads(self._store.get(_PROPOSAL))
        if len(tokens) != self._size or tokens[self._rank] != token:
            return None
        if namespace != self._namespace:
            self._namespace = namespace
            self._accept(self._rank)
        return namespace if self._store.check([self._accepted("all")]) else None

    def absent(self) -> list[int]:
        """Returns the ranks that rank 0 knows to be missing. The other ranks know of none."""
        if self._rank > 0:
            return []
        return [rank for rank in range(1, self._size) if not self._store.check([self._accepted(rank)])]

    def _accept(self, rank: int) -> None:
        self._store.set(self._accepted(rank), "")

    def _accepted(self, who: int | str) -> str:
        return f"pyg_batchgnn/{self._namespace}/accepted/{who}"
