"""The links that a run learns to predict: those of one relation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from pyg_batchgnn.data import Dataset, LinkSplit, Relation, stored_reverse
from pyg_batchgnn.train.config import TaskConfig
from pyg_batchgnn.train.errors import TrainError
from pyg_batchgnn.train.task.ranked_links import DrawnTargets, GivenTargets, RankedLinks

#: The targets that each link of a split without negatives is ranked among.
_DRAWN = 100


@dataclass(frozen=True, eq=False)
class PredictedLinks:
    """The links of the relation that a run predicts.

    Attributes:
        dataset: the name of their data set, for messages.
        relation: the names of the relation.
        reverse: the relation that holds the same edges the other way, or None.
        num_sources: the number of nodes of the source type.
        num_targets: the number of nodes of the target type.
        splits: the links of each split.
    """

    dataset: str
    relation: Relation
    reverse: Relation | None
    num_sources: int
    num_targets: int
    splits: Mapping[str, LinkSplit]

    @classmethod
    def of(cls, dataset: Dataset, config: TaskConfig) -> PredictedLinks:
        """Returns the links that a configuration names.

        Raises:
            TrainError: it names no relation and the data set has several, or the data set has no
                such relation.
        """
        relation = _relation(dataset, config.edge_type, "task.edge_type")
        sources, targets = (dataset.nodes_of(relation[end]).num_nodes for end in (0, 2))
        reverse = _reverse(dataset, relation, config)
        return cls(dataset.name, relation, reverse, sources, targets, dataset.edges_of(relation).links)

    def split(self, name: str) -> LinkSplit:
        """Returns the links of a split; none where there is no such split."""
        return self.splits.get(name, LinkSplit(torch.empty(2, 0, dtype=torch.int64)))

    def measured(self, name: str) -> RankedLinks:
        """Returns the links of a split with negatives.

        Links that come without are ranked among 100 other targets each, drawn at random. They are
        the same in every run and on every rank.
        """
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
        return RankedLinks(links.index, DrawnTargets(split, links.index[1], self.num_targets, _DRAWN))


def _relation(dataset: Dataset, wanted: tuple[str, ...] | None, field: str) -> Relation:
    """Returns the relation that is predicted."""
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
    """Returns the named relation; without a name the same one in a homogeneous graph, else that of
    the same name with "rev_" in front, or without it, if there is one."""
    source, _, target = relation
    if config.reverse_edge_type is not None:
        found = _relation(dataset, config.reverse_edge_type, "task.reverse_edge_type")
        if (found[0], found[2]) != (target, source):
            raise TrainError(
                f"task.reverse_edge_type is {','.join(found)}, but the reverse of {','.join(relation)} leads "
                f"from {target} to {source}"
            )
        return found
    return stored_reverse(dataset.schema, relation) if dataset.has_names else relation
