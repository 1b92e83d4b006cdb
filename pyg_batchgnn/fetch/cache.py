"""A static cache of the remote rows that minibatches are most likely to need, fetched once.

The rows are chosen before the first epoch (`choose_rows`).
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from pyg_batchgnn.comm import Header, MessageKind
from pyg_batchgnn.data import Group
from pyg_batchgnn.fetch.cached_rows import CachedRows, CacheSplit
from pyg_batchgnn.store import RowBlock, RowReader, RowRequest


class FeatureCache:
    """The rows of some remote nodes, by node type.

    Args:
        nodes: by group of nodes, [c] int64 internal ids, ascending. Types that are left out have
            no rows here.

    Attributes:
        rows: the rows by group; only types that have any.
        version: the store's version when the rows were read.
    """

    def __init__(self, nodes: Mapping[Group, Tensor]) -> None:
        self.rows = {group: CachedRows(node) for group, node in nodes.items() if node.numel()}
        self.version = -1

    @property
    def nbytes(self) -> int:
        """The bytes of rows and ids."""
        return sum(rows.nbytes for rows in self.rows.values())

    def fill(self, reader: RowReader, version: int) -> None:
        """Reads all rows from their owners, in bounded pieces; collective."""
        pieces = [
            (group, at) for group, rows in self.rows.items() for at in rows.begin_fill(reader.format(group))
        ]
        self.version, header = version, Header(MessageKind.FEATURES)
        for number in range(int(reader.comm.max(len(pieces)))):
            if number >= len(pieces):
                reader.read({}, header)
                continue
            group, at = pieces[number]
            rows = self.rows[group]
            rows.fill(at, reader.read({group: RowRequest(rows.node[at])}, header).blocks[group])

    def split(self, nodes: Mapping[Group, Tensor]) -> dict[Group, CacheSplit]:
        """Splits ascending ids by whether their rows are here, for the types that have rows here.

        Args:
            nodes: by group, [n] int64 internal ids.
        """
        return {group: self.rows[group].split(node) for group, node in nodes.items() if group in self.rows}

    def put(self, blocks: Mapping[Group, RowBlock], splits: Mapping[Group, CacheSplit]) -> None:
        """Writes the rows that are here behind those that are not."""
        for group, split in splits.items():
            self.rows[group].put(blocks[group], split)
