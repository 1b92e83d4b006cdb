"""Evaluation of links: their ranks among pairs that are no links, from rows of all nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from pyg_batchgnn.train.graph import EmbeddedRows, RunGraph
from pyg_batchgnn.train.loop.pair_scorer import PairScorer
from pyg_batchgnn.train.model import LinkNetwork
from pyg_batchgnn.train.ranks import Ranks
from pyg_batchgnn.train.task import Evaluation, LinkTask, RankedLinks

#: The most pairs of a piece of the links with negatives of their own.
_PAIRS = 1 << 22


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
    """Computes the rows of all nodes of the types that links join, with the model in evaluation
    mode; collective."""
    return graph.embedded(network.infer_embeddings(graph.all_nodes(), network.embedded_types))


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
    scorer = PairScorer(network, rows, task.columns, ranks)
    others = links.negatives
    if not isinstance(others, Tensor):
        size = min(scorer.rows_at_a_time, _PAIRS // (1 + others.per_link))
        for piece in shares(len(links), ranks, size):
            targets = torch.cat([index[1, piece, None], others.of(piece)], dim=1)
            scores = _scores(scorer, index[0, piece], targets)
            ranking.add_with_own(scores[:, 0], scores[:, 1:])
        return ranking.result(ranks)
    negatives = _of_all_ranks(scorer, others.to(torch.int64))
    for piece in shares(len(links), ranks, scorer.rows_at_a_time):
        scores = _scores(scorer, index[0, piece], index[1, piece, None])
        ranking.add_with_shared(scores[:, 0], negatives, piece.start)
    return ranking.result(ranks)


def _scores(scorer: PairScorer, sources: Tensor, targets: Tensor) -> Tensor:
    """Returns [n, k], the scores of pairs; collective.

    Args:
        scorer: of the run.
        sources: [n] int64 original ids.
        targets: [n, k] int64 original ids, k for each source.
    """
    source = torch.arange(len(sources)).repeat_interleave(targets.size(1))
    return scorer.scores(scorer.fetch_sources(sources), source, targets.reshape(-1)).view_as(targets)


def _of_all_ranks(scorer: PairScorer, pairs: Tensor) -> Tensor:
    """Returns [m], the scores of pairs [2, m] that all ranks score together; collective."""
    ranks = scorer.ranks
    pieces = shares(pairs.size(1), ranks, scorer.rows_at_a_time)
    scores = torch.cat([_scores(scorer, pairs[0, piece], pairs[1, piece, None])[:, 0] for piece in pieces])
    return scores if ranks.is_alone else ranks.training.all_gather(scores).rows


def shares(count: int, ranks: Ranks, size: int) -> Iterator[slice]:
    """Yields this rank's part of a list in pieces.

    Every rank gets the same number of pieces; its last ones may be empty.

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
