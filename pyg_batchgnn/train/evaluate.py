"""Evaluation: of nodes on sampled minibatches or from all neighbours, and of links."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor

from pyg_batchgnn.data import Dataset
from pyg_batchgnn.loader import MacrobatchLinkNeighborLoader
from pyg_batchgnn.nn import ModelOutput
from pyg_batchgnn.store import SortedNodes
from pyg_batchgnn.train.errors import TrainError
from pyg_batchgnn.train.link_tasks import ExistingTargets, LinkRanking, LinkTask, PredictedLinks, RankedLinks
from pyg_batchgnn.train.network import GraphNetwork, LinkNetwork, NativeNetwork, RowNetwork
from pyg_batchgnn.train.ranks import Ranks
from pyg_batchgnn.train.run_graph import (
    AnyLoader,
    EmbeddedNodes,
    EmbeddedRows,
    RunGraph,
    first_times_of,
    link_times,
)
from pyg_batchgnn.train.tasks import Evaluation, NodeTask, Scoring

# Samples depend on the epoch. Evaluations share one, so equal weights give equal metrics.
_EPOCH = 0


def infer(network: GraphNetwork, loader: AnyLoader) -> Iterator[tuple[Any, ModelOutput]]:
    """Yields each minibatch and its `ModelOutput`, one row per seed, in evaluation mode."""
    for batch in evaluated(network, loader):
        with torch.no_grad():
            output = network.outputs(batch)
        yield batch, output


def evaluated(network: GraphNetwork, loader: AnyLoader) -> Iterator[Any]:
    """Yields the minibatches of an evaluation. The model is in evaluation mode meanwhile."""
    was_training = network.model.training
    network.model.eval()
    loader.set_epoch(_EPOCH)
    try:
        yield from loader
    finally:
        network.model.train(was_training)


ROWS = 1 << 16  # Rows of outputs that are processed together.


def infer_all(network: NativeNetwork, graph: RunGraph) -> tuple[SortedNodes, EmbeddedNodes, EmbeddedNodes]:
    """Computes every node from all its neighbours, in evaluation mode; collective. Returns this
    rank's nodes, their logits, and their rows before the last layer."""
    nodes = graph.all_nodes()
    output, own = network.infer(nodes), nodes.node_of(graph.inputs.node_type)
    logits, hidden = (EmbeddedNodes(own, rows, nodes) for rows in (output.logits, output.hidden))
    return SortedNodes.of(own), logits, hidden


@dataclass(frozen=True, eq=False)
class MeasuredNodes:
    """The nodes or edges of a split, with all that is needed to evaluate the model on them."""

    network: RowNetwork
    graph: RunGraph
    task: NodeTask
    nodes: Tensor  # [n] int64 original ids, the same on every rank
    loader: AnyLoader | None  # this rank's minibatches of the nodes; None: from all neighbours

    def __len__(self) -> int:
        return len(self.nodes)

    def compute(self) -> tuple[SortedNodes, EmbeddedNodes, EmbeddedNodes] | None:
        """Returns `infer_all`, which several splits can share, or None if minibatches are sampled;
        collective."""
        if self.loader is not None:
            return None
        assert isinstance(self.network, NativeNetwork), "edges are computed from minibatches"
        return infer_all(self.network, self.graph)

    def evaluate(
        self, ranks: Ranks, stop: Callable[[], bool] = lambda: False, computed: Any = None
    ) -> Evaluation | None:
        """Returns loss and metrics over all ranks; None without nodes, or if ``stop`` returned
        True. Collective. ``computed``: the result of `compute`; None computes it here."""
        scoring = Scoring(self.task)
        if self.loader is not None:
            for batch, output in infer(self.network, self.loader):
                scoring.add(output.logits, self.graph.labels(self.network, batch))
                if stop():
                    return None
            return scoring.result(ranks)
        found = (computed or self.compute()) if len(self) else None
        if found is None or stop():
            return None
        labels, (own, logits, _) = self.graph.owned_labels(), found
        for row in own.find(self.nodes).row.split(ROWS):
            scoring.add(logits.at(row), labels[row])
        return scoring.result(ranks)


_NUMBERS = 1 << 24  # The most elements in the rows of targets that are fetched together.
_SCORED = 1 << 19  # The most elements in rows of pairs scored together; they fit the caches.


@dataclass(frozen=True, eq=False)
class PairScorer:
    """Scores pairs of nodes from their rows, which lie on all ranks."""

    network: LinkNetwork  # gives the decoder and the relation
    rows: EmbeddedRows  # the rows of all nodes
    columns: int  # columns of a row
    ranks: Ranks

    @property
    def rows_at_a_time(self) -> int:
        return max(1, _NUMBERS // self.columns)

    @torch.no_grad()
    def scores(self, sources: Tensor | EmbeddedNodes, source: Tensor, targets: Tensor) -> Tensor:
        """Returns [p] float32, the score of each pair; collective. Each rank fetches the row of
        each distinct target once.

        ``sources``: the rows of the source nodes, [n, columns] or with their nodes. ``source``: [p]
        int64, each pair's row in them. ``targets``: [p] int64 original ids.
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
                row = source[order[some]]
                left = sources.at(row) if isinstance(sources, EmbeddedNodes) else sources.index_select(0, row)
                found[order[some]] = self.network.decoder(left, fetched.index_select(0, number[some] - begin))
        return found


_PAIRS = 1 << 22  # The most pairs that are scored together when links have negatives of their own.


@dataclass(frozen=True, eq=False)
class MeasuredLinks:
    network: LinkNetwork
    graph: RunGraph
    task: LinkTask
    links: RankedLinks  # links and negatives, the same on every rank

    def __len__(self) -> int:
        return len(self.links)

    def compute(self) -> EmbeddedRows:
        return embed_all(self.network, self.graph)

    def evaluate(
        self, ranks: Ranks, stop: Callable[[], bool] = lambda: False, computed: Any = None
    ) -> Evaluation | None:
        rows = (computed or self.compute()) if len(self) else None
        if rows is None or stop():
            return None
        ranking, others = LinkRanking(self.task), self.links.negatives
        index = self.links.index.to(torch.int64)
        scorer = PairScorer(self.network, rows, self.task.columns, ranks)
        if not isinstance(others, Tensor):
            size = min(scorer.rows_at_a_time, _PAIRS // (1 + others.per_link))
            for piece in shares(len(self), ranks, size):  # of which each rank takes an equal one
                targets = torch.cat([index[1, piece, None], others.of(piece)], dim=1)
                scores = _scores(scorer, index[0, piece], targets)
                ranking.add(scores[:, 0], scores[:, 1:])
            return ranking.result(ranks)
        negatives = _of_all_ranks(scorer, others.to(torch.int64))
        for piece in shares(len(self), ranks, scorer.rows_at_a_time):
            scores = _scores(scorer, index[0, piece], index[1, piece, None])
            ranking.add(scores[:, 0], negatives, piece.start)
        return ranking.result(ranks)


def embed_all(network: LinkNetwork, graph: RunGraph) -> EmbeddedRows:
    nodes = graph.all_nodes()
    return graph.embedded(nodes, network.infer_embeddings(nodes, network.embedded_types))


def _scores(scorer: PairScorer, sources: Tensor, targets: Tensor) -> Tensor:
    """Returns [n, k], the scores of each source with k targets; collective. ``sources``: [n] int64,
    ``targets``: [n, k] int64, original ids."""
    source = torch.arange(len(sources)).repeat_interleave(targets.size(1))
    rows = scorer.rows.of(scorer.network.relation[0], sources)
    return scorer.scores(rows, source, targets.reshape(-1)).view_as(targets)


def _of_all_ranks(scorer: PairScorer, pairs: Tensor) -> Tensor:
    ranks = scorer.ranks
    pieces = shares(pairs.size(1), ranks, scorer.rows_at_a_time)
    scores = torch.cat([_scores(scorer, pairs[0, piece], pairs[1, piece, None])[:, 0] for piece in pieces])
    return scores if ranks.is_alone else ranks.training.all_gather(scores).rows


def shares(count: int, ranks: Ranks, size: int) -> Iterator[slice]:
    size = max(1, size)
    begin, end = (count * rank // ranks.size for rank in (ranks.rank, ranks.rank + 1))
    longest = -(-count // ranks.size)
    for start in range(begin, begin + max(1, longest), size):
        yield slice(min(start, end), min(start + size, end))


@dataclass(frozen=True, eq=False)
class MeasuredTimedLinks:
    """The links of a split, each evaluated at its time, in a run with ``time_attr``."""

    network: LinkNetwork
    task: LinkTask
    count: int  # the number of links
    #: this rank's minibatches of links at their times, with the targets to rank them among
    loader: MacrobatchLinkNeighborLoader

    @classmethod
    def of(
        cls,
        dataset: Dataset,
        links: PredictedLinks,
        split: str,
        network: LinkNetwork,
        graph: RunGraph,
        task: LinkTask,
    ) -> MeasuredTimedLinks:
        name = str(graph.config.sampling.time_attr)
        times = link_times(dataset, links, split, name)
        first = first_times_of(dataset, links.relation[2], name)
        existing = None if first is None else ExistingTargets.of(first, times)
        ranked = links.measured(split, existing)
        if len(ranked) and isinstance(ranked.negatives, Tensor):
            raise TrainError(
                f"{dataset.name}: all links of {split} are ranked among the same pairs, which have no time; "
                f"give negative_targets for each link, or none, with which they are drawn"
            )
        count = len(ranked)
        table = torch.empty(0, 1, dtype=torch.int64)
        if not isinstance(ranked.negatives, Tensor):
            table = ranked.negatives.of(slice(0, count))
        loader = graph.link_loader(links, ranked.index, times, table)
        return cls(network, task, count, loader)

    def __len__(self) -> int:
        return self.count

    def compute(self) -> None:
        """Returns None: splits share nothing, as each link has its own time."""

    def evaluate(
        self, ranks: Ranks, stop: Callable[[], bool] = lambda: False, computed: Any = None
    ) -> Evaluation | None:
        assert computed is None, "nothing is shared"
        ranking = LinkRanking(self.task)
        for positions, scores in score_pairs(self.network, self.loader):
            if count := len(positions):
                ranking.add(scores[:count], scores[count:].view(count, -1))
            if stop():
                return None
        return ranking.result(ranks)


def score_pairs(
    network: LinkNetwork, loader: MacrobatchLinkNeighborLoader
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yields, for each minibatch, [P] int64 positions of its links in the loader's input, and their
    scores [P], followed by the scores of their negatives, if it has some."""
    for batch in evaluated(network, loader):
        positions = network.seeds(batch)
        if len(positions):
            with torch.no_grad():
                yield positions, network.outputs(batch).logits
        else:
            network.leave_out(batch)
            yield positions, torch.empty(0)


def rows_at(
    network: LinkNetwork, graph: RunGraph, node_type: str, nodes: Tensor, time: int, columns: int
) -> Iterator[EmbeddedNodes]:
    """Yields the rows of some nodes of a type, from sampled neighbours not later than ``time``;
    collective. Each rank yields its own minibatches, after one item without nodes."""
    yield EmbeddedNodes(torch.empty(0, dtype=torch.int64), torch.empty(0, columns))
    loader = graph.evaluation_loader(nodes, node_type, torch.full((len(nodes),), time))
    for batch in evaluated(network, loader):
        reached = batch.nodes_of(node_type)
        seeds = reached.node[: reached.nodes_per_hop[0]]
        if len(seeds):
            with torch.no_grad():
                rows = network.encoder.outputs_by_type(batch)[node_type].logits[: len(seeds)].float()
            yield EmbeddedNodes(seeds, rows)
        else:
            network.leave_out(batch)


#: What a run is evaluated on: the nodes, edges or links of a split.
Measured: TypeAlias = MeasuredNodes | MeasuredLinks | MeasuredTimedLinks
