"""The features of halo nodes, which never change."""

from __future__ import annotations

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.comm import Header, MessageKind
from pyg_batchgnn.data import NODES
from pyg_batchgnn.history.embedding_cache import FoundRows
from pyg_batchgnn.history.halo import Halo
from pyg_batchgnn.store import Columns, DistFeatureStore, RowRequest

#: The attribute that layer 1 reads.
FEATURES = "x"
#: The bytes of rows that are received at once.
_PIECE = 16 << 20


class HaloFeatures:
    """The features of halo nodes, fetched once from their owners.

    Args:
        halo: of the rank's part.
        lines: at most this many nodes have a row, those with the most edges into the part. None:
            all of them.

    Attributes:
        fetched: the rows that came from other hosts.
        fetched_bytes: their bytes, the ids that were asked for included.
    """

    def __init__(self, halo: Halo, lines: int | None) -> None:
        chosen = halo.most_needed(lines)
        self._node = halo.internal[chosen]
        self._line = torch.full((halo.num_halo,), ops.NO_LINE, dtype=torch.int32)
        self._line[chosen] = torch.arange(chosen.numel(), dtype=torch.int32)
        self._rows: Tensor | None = None
        self._store: DistFeatureStore | None = None
        self._version = -1
        self.fetched = self.fetched_bytes = 0

    @property
    def nbytes(self) -> int:
        """The bytes of rows and of what finds them."""
        rows = 0 if self._rows is None else self._rows.nbytes
        return self._node.nbytes + self._line.nbytes + rows

    def fetch(self, store: DistFeatureStore) -> None:
        """Fetches the rows in bounded pieces, unless they are here as the store has them.

        It is collective.

        Raises:
            ValueError: the rows came from another store before.
        """
        if self._store is not None and store is not self._store:
            raise ValueError(
                "history: these caches have the features of halo nodes from another feature store; give "
                "all loaders that share caches the same feature store, or make other HistoricalCaches"
            )
        if store is self._store and store.version == self._version:
            return
        self._store, self._version = store, store.version
        own = store.own.attributes[NODES].get(FEATURES)
        if own is None:
            self._rows = None
            return
        reader = store.reader({NODES: Columns([FEATURES])})
        wire = reader.format(NODES).wire_bytes
        self._rows = own.new_empty(self._node.numel(), *own.shape[1:])
        size = max(1, _PIECE // max(1, wire))
        for number in range(int(store.comm.max(-(-self._node.numel() // size)))):
            at = slice(number * size, (number + 1) * size)
            read = reader.read({NODES: RowRequest(self._node[at])}, Header(MessageKind.FEATURES))
            self._rows[at] = read.blocks[NODES].attributes[FEATURES]
            self.fetched += read.fetched[NODES]
            self.fetched_bytes += read.fetched[NODES] * (wire + self._node.element_size())

    def search(self, number: Tensor) -> FoundRows:
        """Finds the rows of halo nodes.

        Args:
            number: [n] int64, their numbers among the halo nodes of the part, from 0.
        """
        line = ops.gather_rows(self._line, number)
        return FoundRows.of(line)

    def load(self, found: FoundRows) -> Tensor:
        """Returns a copy of the rows that a search found, [f, F]."""
        if self._rows is None:
            raise ValueError(f"the graph has no node attribute {FEATURES!r}, which layer 1 reads")
        return ops.gather_rows(self._rows, found.line)

    def check(self, table: Tensor) -> None:
        """Raises ValueError unless a table has the features of own nodes as the store has them."""
        store = self._store
        own = None if store is None else store.own.attributes[NODES].get(FEATURES)
        if own is None or own.data_ptr() != table.data_ptr() or own.shape[1:] != table.shape[1:]:
            raise ValueError(
                f"layer 1 reads the attribute {FEATURES!r} as the store has it, because that of halo nodes "
                f"was fetched from there, but it got other rows [{', '.join(map(str, table.shape))}]; "
                f"change the rows of the store with put_tensor, or add a layer"
            )
