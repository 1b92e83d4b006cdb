"""The task of predicting links: pairs that are links shall score higher than other pairs."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from pyg_batchgnn.data import Dataset, LinkSplit
from pyg_batchgnn.train.config.choices import Metric, TaskLoss
from pyg_batchgnn.train.config.table import TaskConfig
from pyg_batchgnn.train.errors import TrainError
from pyg_batchgnn.train.ranks import Ranks
from pyg_batchgnn.train.tasks import HITS, Evaluation, Task, count_not_finite, hits, mean_rank, rank_counts
from pyg_batchgnn.types import Relation, stored_reverse

#: The losses of links, with their names in reports.
LINK_LOSSES = {"bce": "binary cross entropy", "bpr": "BPR", "softmax": "softmax cross entropy"}


class LinkTask(Task):
    """Predicts links from the scores of pairs.

    A minibatch has P links, then K negatives of each link, in the order of the links. With in-batch
    negatives it has links alone, and the outputs are their log odds.

    - Binary cross entropy tells links from negatives.
    - BPR compares each link with its own negatives (Rendle et al., section 4).
    - Softmax finds each link among its negatives, its own or in-batch ones.

    ``columns``: of a node's row. ``metric``: chooses the best epoch. ``loss``: BCE, BPR or SOFTMAX.
    """

    metrics: ClassVar[tuple[Metric, ...]] = (Metric.MRR, *HITS)
    train_metric: ClassVar[Metric] = Metric.ACCURACY
    unit = "links"

    def __init__(self, columns: int, metric: Metric, loss: TaskLoss) -> None:
        self.columns = columns
        self.metric = metric
        self._loss = loss
        self.loss_label = f"{self.described} (nats{' per comparison' if loss is TaskLoss.BPR else ''})"

    @property
    def described(self) -> str:
        return LINK_LOSSES[self._loss]

    def targets(self, labels: Tensor) -> Tensor:
        return labels.bool()

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        if self._loss is TaskLoss.BCE:
            return F.binary_cross_entropy_with_logits(outputs, targets.to(outputs.dtype))
        return F.softplus(-self._ahead(outputs, targets)).mean()

    def _ahead(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Returns link score minus negative score: [P, K] for BPR; for softmax [P], from the
        negatives' logsumexp. Without negatives, the outputs: log odds."""
        links = outputs[targets]
        if len(links) == len(outputs):
            return outputs
        ahead = links.unsqueeze(1) - outputs[~targets].view(len(links), -1)
        return ahead if self._loss is TaskLoss.BPR else -(-ahead).logsumexp(dim=1)

    def weight(self, targets: Tensor) -> float:
        counted = {TaskLoss.BPR: ~targets, TaskLoss.SOFTMAX: targets}.get(self._loss)
        return float(len(targets) if counted is None else counted.sum())

    def train_score(self, outputs: Tensor, targets: Tensor) -> tuple[float, float]:
        is_told = self._loss is TaskLoss.BCE
        right = (outputs > 0) == targets if is_told else self._ahead(outputs, targets) > 0
        return float(right.sum()), float(right.numel())


class LinkRanking:
    """Adds up losses and ranks of links over the batches of an evaluation."""

    def __init__(self, task: LinkTask) -> None:
        self._task = task
        self._loss = self._weight = self._not_finite = 0.0
        self._among = 0
        self._sums = torch.zeros(2 + len(HITS), dtype=torch.float64)

    def add(self, links: Tensor, negatives: Tensor, first: int = 0) -> None:
        """Adds links. ``links``: [n] scores. ``negatives``: scores, [n, k] of each link's own, or
        [m] for all links. ``first``: position of the first link in the split. With [m], the loss
        compares the link at position i with negative i modulo m."""
        counts, own = rank_counts(links, negatives), negatives.dim() == 2
        found = [float(len(links)), float((1.0 / mean_rank(*counts)).sum())]
        found += [float(hits(*counts, k, own).sum()) for k in HITS.values()]
        self._sums += torch.tensor(found, dtype=torch.float64)
        self._among = negatives.size(-1)
        if own:
            self._not_finite += count_not_finite(torch.cat([links.unsqueeze(1), negatives], dim=1))
        else:
            self._not_finite += len(links) if count_not_finite(negatives) else count_not_finite(links)
            if not len(negatives):
                return
            negatives = negatives[torch.arange(first, first + len(links)) % len(negatives)]
        outputs = torch.cat([links, negatives.reshape(-1)])
        targets = torch.arange(len(outputs)) < len(links)
        if weight := self._task.weight(targets):
            self._loss += float(self._task.loss(outputs, targets)) * weight
            self._weight += weight

    def result(self, ranks: Ranks) -> Evaluation | None:
        """Returns loss and metrics over the links of all ranks, or None without links; collective.
        Hits@K is left out if all links have fewer than K negatives."""
        table = ranks.table([self._loss, self._weight, self._not_finite, *self._sums.tolist(), self._among])
        loss, weight, not_finite, count, reciprocal, *reached, _ = table.sum(dim=0).tolist()
        if not count:
            return None
        scores = {Metric.MRR: reciprocal / count}
        for (metric, k), found in zip(HITS.items(), reached, strict=True):
            if k <= table[:, -1].max():
                scores[metric] = found / count
        return Evaluation.of(loss / max(weight, 1.0), scores, count, not_finite)


_WORDS = 4  # random 64-bit words of one step of the generator


@dataclass(frozen=True, eq=False)
class GivenTargets:
    """Negative targets that the data set gives for each link of a split."""

    table: Tensor  # [n, k] int32 or int64

    @property
    def per_link(self) -> int:
        return int(self.table.size(1))

    def of(self, piece: slice) -> Tensor:
        """Returns [n, k] int64, the targets of the links at positions ``piece`` of the split."""
        return self.table[piece].to(torch.int64)


@dataclass(frozen=True, eq=False)
class DrawnTargets:
    """Negative targets, drawn when asked for, uniformly from all other targets. They depend only on
    the split's name and the link's position in it: every run, rank and slice gets the same ones."""

    split: str  # the names of relation and split
    targets: Tensor  # [n] int32 or int64, each link's own target
    num_targets: int  # the number of nodes of the target type, at least 2
    per_link: int  # targets to draw for each link
    existing: ExistingTargets | None = None  # which targets exist at each link's time; None: all

    def of(self, piece: slice) -> Tensor:
        """Returns [n, k] int64, the targets of the links at positions ``piece`` of the split."""
        own = self.targets[piece].to(torch.int64)
        steps_per_link = -(-self.per_link // _WORDS)
        words = np.random.Philox(key=zlib.crc32(self.split.encode()), counter=piece.start * steps_per_link)
        drawn = words.random_raw(len(own) * steps_per_link * _WORDS)
        drawn = drawn.reshape(len(own), steps_per_link * _WORDS)[:, : self.per_link]
        if self.existing is not None:
            return self.existing.others(own, piece, drawn)
        steps = torch.from_numpy((drawn % np.uint64(self.num_targets - 1)).astype(np.int64))
        return (own.unsqueeze(1) + 1 + steps) % self.num_targets


@dataclass(frozen=True, eq=False)
class ExistingTargets:
    """Which targets exist at the time of each link."""

    order: Tensor  # [N] int64, target ids by the time from which they exist
    place: Tensor  # [N] int64, the position of each target in `order`
    count: Tensor  # [n] int64, how many exist at each link's time, at least two

    @classmethod
    def of(cls, first: Tensor, times: Tensor) -> ExistingTargets:
        """Makes it for links at ``times``, [n] int64. ``first``: [N] int64, the time from which
        each target exists."""
        moments, order = first.sort(stable=True)
        place = torch.empty_like(order)
        place[order] = torch.arange(len(order))
        return cls(order, place, torch.searchsorted(moments, times, right=True).clamp(min=2))

    def others(self, own: Tensor, piece: slice, drawn: np.ndarray) -> Tensor:
        """Returns [n, k] int64, existing targets other than ``own``, [n]. ``piece``: the links'
        positions. ``drawn``: [n, k] uint64 random words."""
        count, place = self.count[piece], self.place[own]
        is_there = place < count
        steps = drawn % (count - is_there.long()).numpy().astype(np.uint64)[:, None]
        begin = torch.where(is_there, place + 1, 0).unsqueeze(1)
        return self.order[(begin + torch.from_numpy(steps.astype(np.int64))) % count.unsqueeze(1)]


@dataclass(frozen=True, eq=False)
class RankedLinks:
    """The links of a split with negatives, the same on every rank."""

    index: Tensor  # [2, n] int32 or int64, source and target ids
    #: [2, m] pairs for all links, or targets for each
    negatives: Tensor | GivenTargets | DrawnTargets

    def __len__(self) -> int:
        return int(self.index.size(1))


@dataclass(frozen=True, eq=False)
class PredictedLinks:
    """The links that a run predicts: one relation, by split."""

    dataset: str  # the data set's name, for messages
    relation: Relation
    reverse: Relation | None  # the relation with the same edges the other way, or None
    num_sources: int  # nodes of the source type
    num_targets: int  # nodes of the target type
    splits: Mapping[str, LinkSplit]  # the links by split
    ranked_among: int  # how many negative targets to draw per link where the data has none
    unit: ClassVar[str] = "links"

    @classmethod
    def of(cls, dataset: Dataset, config: TaskConfig) -> PredictedLinks:
        relation = named_relation(dataset, config.edge_type, "task.edge_type")
        sources, targets = (dataset.nodes_of(relation[end]).num_nodes for end in (0, 2))
        reverse = _reverse(dataset, relation, config)
        links, among = dataset.edges_of(relation).links, config.ranked_among
        return cls(dataset.name, relation, reverse, sources, targets, links, among)

    def split(self, name: str) -> LinkSplit:
        return self.splits.get(name, LinkSplit(torch.empty(2, 0, dtype=torch.int64)))

    def measured(self, name: str, existing: ExistingTargets | None = None) -> RankedLinks:
        links = self.split(name)
        if links.negative_targets is not None:
            return RankedLinks(links.index, GivenTargets(links.negative_targets))
        if links.negatives is not None:
            return RankedLinks(links.index, links.negatives)
        if len(links) == 0:
            return RankedLinks(links.index, torch.empty(2, 0, dtype=torch.int64))
        if self.num_targets < 2:
            raise TrainError(f"{self.dataset}: there are no other targets to rank the links of {name} among")
        split = f"{'/'.join(self.relation)}/{name}"
        drawn = DrawnTargets(split, links.index[1], self.num_targets, self.ranked_among, existing)
        return RankedLinks(links.index, drawn)


def named_relation(dataset: Dataset, wanted: tuple[str, ...] | None, field: str) -> Relation:
    """Returns the relation ``wanted``; None: the only one. Raises `TrainError` for an unknown name,
    or if several relations leave a choice. ``field``: the option's name for messages."""
    known = dataset.schema.relations
    names = "; ".join(",".join(one) for one in known)
    if wanted is None:
        if len(known) == 1:
            return known[0]
        raise TrainError(f"{dataset.name} has several relations: name one with --edge-type; it has {names}")
    if not dataset.has_names:
        raise TrainError(f"{field} is given, but {dataset.name} is a homogeneous graph; leave it out")
    if wanted not in known:
        raise TrainError(f"{field} is {','.join(wanted)}, but {dataset.name} has {names}")
    return wanted[0], wanted[1], wanted[2]


def _reverse(dataset: Dataset, relation: Relation, config: TaskConfig) -> Relation | None:
    """Returns the reverse that the configuration names. Without a name: in a homogeneous graph the
    relation itself, else the one with "rev_" before or taken off its name, or None."""
    source, _, target = relation
    if config.reverse_edge_type is not None:
        found = named_relation(dataset, config.reverse_edge_type, "task.reverse_edge_type")
        if (found[0], found[2]) != (target, source):
            raise TrainError(
                f"task.reverse_edge_type is {','.join(found)}, but the reverse of {','.join(relation)} leads "
                f"from {target} to {source}"
            )
        return found
    return stored_reverse(dataset.schema, relation) if dataset.has_names else relation
