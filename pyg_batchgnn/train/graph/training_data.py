"""The features, labels and splits of a data set that training reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from pyg_batchgnn.data import FEATURES, Dataset, NodeSet, Relation, Schema
from pyg_batchgnn.train.config import (
    CacheKind,
    RemoteKind,
    TaskKind,
    TrainConfig,
    refuse_given,
)
from pyg_batchgnn.train.errors import TrainError
from pyg_batchgnn.train.model import ModelInputs
from pyg_batchgnn.train.task import PredictedLinks, PredictedNodes

#: The fields that mean nothing in a run without learned rows.
_OF_ROWS = ("embedding.columns", "embedding.rule", "embedding.learning_rate")


@dataclass(frozen=True, eq=False)
class TrainingData:
    """The attributes and splits that training reads.

    Attributes:
        schema: the node types and the relations.
        node_type: the node type that is predicted; for links that of their targets.
        link: the relation whose links are predicted, or None if nodes are.
        labels: [N_t, ...], the labels of the predicted nodes by their type; none for links.
        features: [N_t, F_t] of a floating-point type, by node type; types without are absent.
        learned: the number of columns of the learned rows of each node type that has them.
    """

    schema: Schema
    node_type: str
    link: Relation | None
    labels: Mapping[str, Tensor]
    features: Mapping[str, Tensor]
    learned: Mapping[str, int]

    @classmethod
    def of(cls, dataset: Dataset, config: TrainConfig) -> TrainingData:
        """Takes what a run reads from a data set.

        Raises:
            TrainError: the features have a type or shape that models cannot read, the labels are
                missing, a type has neither features nor learned rows, or an option is not for this
                graph.
        """
        link, labels = None, dict[str, Tensor]()
        if config.task.kind is TaskKind.LINKS:
            link = PredictedLinks.of(dataset, config.task).relation
            node_type = link[2]
        else:
            nodes = PredictedNodes.of(dataset, config.task)
            node_type, labels = nodes.node_type, {nodes.node_type: nodes.labels}
        features = {one.name: one.tables[FEATURES] for one in dataset.node_sets if FEATURES in one.tables}
        for one in dataset.node_sets:
            _check_features(dataset, one)
        names = _learned_types(dataset, config, features)
        if not names:
            because = f"but no nodes of {dataset.name} have learned rows; name their types with --embed"
            refuse_given(config, _OF_ROWS, f"{because}, or leave it out")
        learned = dict.fromkeys(names, config.embedding.columns or config.model.hidden)
        read = cls(dataset.schema, node_type, link, labels, features, learned)
        if not read.inputs.is_homogeneous:
            _refuse_options(dataset, config)
            _check_reached(dataset, config, read.inputs)
        return read

    @property
    def inputs(self) -> ModelInputs:
        """The inputs of the model."""
        columns = {name: int(x.shape[1]) for name, x in self.features.items()}
        return ModelInputs(self.schema, self.node_type, columns, self.learned, self.link)


def _check_features(dataset: Dataset, nodes: NodeSet) -> None:
    x = nodes.tables.get(FEATURES)
    if x is not None and (not x.is_floating_point() or x.dim() != 2):
        found = f"{str(x.dtype).removeprefix('torch.')} {list(x.shape)}"
        raise TrainError(
            f"{dataset.name}: the node features 'x'{_of_type(dataset, nodes.name)} are {found}, but models "
            "need floating-point numbers [N, F]; convert 'x' to float32"
        )
    if x is not None and not x.shape[1]:
        raise TrainError(
            f"{dataset.name}: the node features 'x'{_of_type(dataset, nodes.name)} are {list(x.shape)}, with "
            "no column that a model could read; leave 'x' out, then nodes have learned rows"
        )


def _learned_types(dataset: Dataset, config: TrainConfig, features: Mapping[str, Tensor]) -> list[str]:
    """Returns the node types that have learned rows, in the order of the types."""
    wanted, types = config.embedding.types, dataset.schema.node_types
    bare = [name for name in types if name not in features]
    if wanted == "auto":
        return bare
    named = {"all": types, "none": ()}.get(wanted, wanted) if isinstance(wanted, str) else wanted
    for name in named:
        if name not in types:
            raise TrainError(f"embedding.types names {name}, but {dataset.name} has {', '.join(types)}")
    for name in bare:
        if name not in named:
            raise TrainError(
                f"{dataset.name} has no node features 'x'{_of_type(dataset, name)}, and no learned rows are "
                f"wanted for them; leave --embed out, or name the type in it"
            )
    return [name for name in types if name in named]


def _refuse_options(dataset: Dataset, config: TrainConfig) -> None:
    """Refuses options of homogeneous graphs with features."""
    because = None
    if config.sampling.cache is not CacheKind.OFF:
        because = f"sampling.cache is {config.sampling.cache.value}"
    elif config.ranks.remote is not RemoteKind.EXACT:
        because = f"ranks.remote is {config.ranks.remote.value}"
    if because is not None:
        graph = "has named node types" if dataset.has_names else "has learned rows"
        raise TrainError(
            f"{because}, which is for homogeneous graphs with features, but {dataset.name} {graph}; leave "
            "it out"
        )


def _check_reached(dataset: Dataset, config: TrainConfig, inputs: ModelInputs) -> None:
    """Checks that relations lead to every type that a layer computes rows of.

    The last layer computes rows of the predicted types, the other layers of every type.
    """
    reached = {target for _, _, target in dataset.schema.relations}
    others = [name for name in dataset.schema.node_types if name not in reached]
    because = "no layer but the first can read them"
    if config.model.num_layers == 1:
        others = [name for name in others if name in inputs.output_types]
        because = "the layer computes no rows of them"
    if others:
        raise TrainError(
            f"{dataset.name}: no relation leads to {', '.join(others)}, so {because}; add --reverse, which "
            "adds the reverse of every relation"
        )


def _of_type(dataset: Dataset, name: str) -> str:
    return f" of type {name!r}" if dataset.has_names else ""
