"""Evaluation of links: their ranks among pairs that are no links, from rows of all nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from pyg_batchgnn.train.graph import EmbeddedRows, RunGraph
from pyg_batchgnn.train.model import LinkNetwork
from pyg_batchgnn.train.ranks import Ranks
from pyg_batchgnn.train.task import Evaluation, LinkTask, RankedLinks

#: Numbers that the rows of a piece of pairs take together.
_NUMBERS = 1 << 24


@dataclass(frozen=True, eq=False)
class MeasuredLinks:
    """The links of a split, on which a run is measured.

    Attributes:
        network: of the run.
        graph: of the run.
        task: of the run.
        links: with negatives, the same on every rank.
    """

    network: LinkNetwork
    graph: RunGraph
    task: LinkTask
    links: RankedLinks

    def __len__(self) -> int:
        return len(self.links)

    def evaluate(self, ranks: Ranks, stop: Callable[[], bool] = lambda: False) -> Evaluation | None:
        """Returns loss and metrics; collective.

        Each node is computed from all its neighbours. The result is None if there are no links, or
        if `stop` asks on every rank for an early end.
        """
        rows = embed_all(self.network, self.graph) if len(self) else None
        if rows is None or stop():
            return None
        return rank_links(self.network, rows, self.links, self.task, ranks)


def embed_all(network: LinkNetwork, graph: RunGraph) -> EmbeddedRows:
    """Computes the rows of all nodes with the model in evaluation mode; collective."""
    return graph.embedded(network.infer_rows(graph.all_nodes()))


@torch.no_grad()
def rank_links(
    network: LinkNetwork, rows: EmbeddedRows, links: RankedLinks, task: LinkTask, ranks: Ranks
) -> Evaluation | None:
    """Ranks links among their negatives; collective. Each rank takes an equal share of them.

    Args:
        network: gives the decoder.
        rows: of all nodes.
        links: with negatives, the same on every rank.
        task: of the network.
        ranks: of the run.
    """
    ranking, index = task.ranking(), links.index.to(torch.int64)
    scorer = PairScorer(network, rows, task.columns)
    others = links.negatives
    if not isinstance(others, Tensor):
        for piece in shares(len(links), ranks, scorer.pairs_at_a_time // (1 + others.per_link)):
            targets = torch.cat([index[1, piece, None], others.of(piece)], dim=1)
            scores = scorer.scores(index[0, piece], targets)
            ranking.add_with_own(scores[:, 0], scores[:, 1:])
        return ranking.result(ranks)
    negatives = scorer.of_all_ranks(others.to(torch.int64), ranks)
    for piece in shares(len(links), ranks, scorer.pairs_at_a_time):
        scores = scorer.scores(index[0, piece], index[1, piece, None])
        ranking.add_with_shared(scores[:, 0], negatives, piece.start)
    return ranking.result(ranks)


@dataclass(frozen=True, eq=False)
class PairScorer:
    """Scores pairs of nodes.

    Attributes:
        network: gives the decoder.
        rows: of all nodes.
        columns: of a row.
    """

    network: LinkNetwork
    rows: EmbeddedRows
    columns: int

    @property
    def pairs_at_a_time(self) -> int:
        """The number of pairs whose rows are held together."""
        return max(1, _NUMBERS // self.columns)

    @torch.no_grad()
    def scores(self, sources: Tensor, targets: Tensor) -> Tensor:
        """Returns [n, k], the scores of pairs; collective over ranks.

        Args:
            sources: [n] int64 original ids.
            targets: [n, k] int64 original ids, k for each source.
        """
        source_type, _, target_type = self.network.relation
        left = self.rows.of(source_type, sources).unsqueeze(1)
        rows = self.rows.of(target_type, targets.reshape(-1))
        right = rows.view(*targets.shape, rows.size(-1))
        found: Tensor = self.network.decoder(left, right)
        return found

    @torch.no_grad()
    def all_scores(self, sources: Tensor, targets: Tensor) -> Tensor:
        """Returns [n, m], the score of each source with each target; collective over ranks.

        Args:
            sources: [n] int64 original ids.
            targets: [m] int64 original ids.
        """
        source_type, _, target_type = self.network.relation
        left, right = self.rows.of(source_type, sources), self.rows.of(target_type, targets)
        found: Tensor = self.network.decoder(left.unsqueeze(1), right.unsqueeze(0))
        return found

    def of_all_ranks(self, pairs: Tensor, ranks: Ranks) -> Tensor:
        """Returns [m], the scores of pairs [2, m] that all ranks score together; collective."""
        pieces = shares(pairs.size(1), ranks, self.pairs_at_a_time)
        own = [self.scores(pairs[0, piece], pairs[1, piece, None])[:, 0] for piece in pieces]
        scores = torch.cat(own)
        return scores if ranks.is_alone else ranks.training.all_gather(scores).rows


def shares(count: int, ranks: Ranks, size: int) -> Iterator[slice]:
    """Yields this rank's part of a list in pieces; as many on every rank, the last ones maybe
    empty.

    Args:
        count: the length of the list.
        ranks: of the run.
        size: the most items of a piece.
    """
    size = max(1, size)
    begin, end = (count * rank // ranks.size for rank in (ranks.rank, ranks.rank + 1))
    longest = -(-count // ranks.size)
    for start in range(begin, begin + max(1, longest), size):
        yield slice(min(start, end), min(start + size, end))
