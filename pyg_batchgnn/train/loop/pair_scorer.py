"""Scores of given pairs of nodes, from rows that lie with their owners."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pyg_batchgnn.train.graph import EmbeddedRows
from pyg_batchgnn.train.model import LinkNetwork
from pyg_batchgnn.train.ranks import Ranks

#: The most numbers in the rows of targets that are fetched together.
_NUMBERS = 1 << 24
#: The most numbers in the rows of pairs that are scored together. They stay in the caches.
_SCORED = 1 << 19


@dataclass(frozen=True, eq=False)
class PairScorer:
    """Scores pairs of nodes; collective over ranks.

    Attributes:
        network: gives the decoder and the relation.
        rows: of all nodes.
        columns: of a row.
        ranks: of the run.
    """

    network: LinkNetwork
    rows: EmbeddedRows
    columns: int
    ranks: Ranks

    @property
    def rows_at_a_time(self) -> int:
        """The most rows that are held together, beside those of the graph."""
        return max(1, _NUMBERS // self.columns)

    def fetch_sources(self, ids: Tensor) -> Tensor:
        """Returns [n, columns], the rows of sources, [n] int64 original ids."""
        return self.rows.of(self.network.relation[0], ids)

    @torch.no_grad()
    def scores(self, sources: Tensor, source: Tensor, targets: Tensor) -> Tensor:
        """Returns [p] float32, the scores of pairs.

        Each rank fetches the row of each distinct target once.

        Args:
            sources: [n, columns], the rows of sources.
            source: [p] int64, the row of each pair's source in ``sources``.
            targets: [p] int64, the original id of each pair's target.
        """
        target_type, size = self.network.relation[2], self.rows_at_a_time
        ordered, order = targets.sort()
        distinct, number = torch.unique_consecutive(ordered, return_inverse=True)
        found, block = torch.empty(len(order)), max(1, _SCORED // self.columns)
        rounds = int(self.ranks.table([-(-len(distinct) // size)]).max())
        for begin in range(0, rounds * size, size):
            fetched = self.rows.of(target_type, distinct[begin : begin + size])
            first, last = torch.searchsorted(number, torch.tensor([begin, begin + size])).tolist()
            for at in range(first, last, block):
                some = slice(at, min(at + block, last))
                left = sources.index_select(0, source[order[some]])
                found[order[some]] = self.network.decoder(left, fetched.index_select(0, number[some] - begin))
        return found
