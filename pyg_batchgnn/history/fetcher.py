"""The fetcher of the historical mode: own rows are read where they lie.

The features of halo nodes are fetched once.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyg_batchgnn.data import NODES
from pyg_batchgnn.fetch import Fetched, FetchGroup
from pyg_batchgnn.history.caches import HistoricalCaches
from pyg_batchgnn.history.minibatch import HistoricalMinibatch
from pyg_batchgnn.store import DistFeatureStore


class OwnRowFetcher:
    """Makes historical minibatches, which read the attributes of own nodes in place.

    Making it is collective: the features of halo nodes are fetched.

    Args:
        store: the store that has them.
        names: the node attributes that are wanted.
        caches: of the rank.
    """

    def __init__(self, store: DistFeatureStore, names: Sequence[str], caches: HistoricalCaches) -> None:
        self._tables = {name: store.own.attributes[NODES][name] for name in names}
        self._store, self._caches = store, caches
        caches.features.fetch(store)

    @property
    def row_bytes(self) -> list[int]:
        """The bytes that a node's attributes take on the wire, by type: none."""
        return [0]

    def fetch(self, group: FetchGroup) -> Fetched:
        """Returns the group's minibatches with the attributes of their own nodes; see `Fetcher`.

        It is collective if rows of the store were written.
        """
        self._caches.features.fetch(self._store)
        made = [HistoricalMinibatch.of_part(one, self._caches, self._tables) for one in group.minibatches]
        return Fetched(list(made))
