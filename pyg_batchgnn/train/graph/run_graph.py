"""The graph of a run, as its loaders read it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Protocol

import torch
from torch import Tensor

from pyg_batchgnn.cache import AggregationCache, AllNodes
from pyg_batchgnn.embed import Embedding
from pyg_batchgnn.history import HistoricalCaches
from pyg_batchgnn.loader import MacrobatchLinkNeighborLoader, MacrobatchNeighborLoader
from pyg_batchgnn.train.config import LastMinibatch, TaskLoss, TrainConfig
from pyg_batchgnn.train.errors import as_train_error
from pyg_batchgnn.train.graph.embedded_rows import EmbeddedRows
from pyg_batchgnn.train.graph.minibatch_settings import MinibatchSettings
from pyg_batchgnn.train.model import GraphNetwork, ModelInputs
from pyg_batchgnn.train.task import PredictedLinks


class LabelSource(Protocol):
    """The source of a minibatch's labels."""

    def __call__(self, network: GraphNetwork, batch: Any) -> Tensor:
        """Returns [S, ...], the rows of the labels "y" of the minibatch's seed nodes."""


class RunGraph(ABC):
    """A graph that is held whole, or in parts over the ranks. All loaders of a run share it.

    Args:
        config: of the run.
        inputs: what the model reads of the nodes of each type.
        cache: aggregates of the features, or None in a run without a cache.
        notes: lines about the graph that the user should read.
        history: the caches of halo nodes' rows, or None in a run without them.
        embedding: the learned rows, or None in a run without them.
    """

    def __init__(
        self,
        config: TrainConfig,
        inputs: ModelInputs,
        cache: AggregationCache | None,
        notes: list[str],
        history: HistoricalCaches | None = None,
        embedding: Embedding | None = None,
    ) -> None:
        self.config = config
        self.inputs = inputs
        self.cache = cache
        self.notes = notes
        self.history = history
        self.embedding = embedding

    def loader(self, nodes: Tensor, settings: MinibatchSettings) -> MacrobatchNeighborLoader:
        """Makes a loader of minibatches; collective.

        Args:
            nodes: [n] original ids of the seed nodes, which are of the predicted type.
            settings: of the minibatches.

        Raises:
            TrainError: the loader refuses an option.
        """
        nodes = nodes.to(torch.int64)
        is_named = self.inputs.schema.has_names
        with as_train_error(ValueError, NotImplementedError):
            return MacrobatchNeighborLoader(
                self._data(),
                input_nodes=(self.inputs.node_type, nodes) if is_named else nodes,
                aggregation_cache=self.cache if settings.cached else None,
                **self._loader_arguments(settings),
                **self._node_arguments(settings),
            )

    def link_loader(self, links: PredictedLinks, settings: MinibatchSettings) -> MacrobatchLinkNeighborLoader:
        """Makes a loader of minibatches of the training links; collective.

        A minibatch does not see the edges of its own links, nor their reverses.

        Args:
            links: those that the run predicts.
            settings: of the minibatches.

        Raises:
            TrainError: the loader refuses an option.
        """
        task, index = self.config.task, links.split("train").index.to(torch.int64)
        mode = "triplet" if task.loss is TaskLoss.BPR else "binary"
        excluded = True if links.reverse is None else {links.relation: links.reverse}
        is_named = self.inputs.schema.has_names
        with as_train_error(ValueError, NotImplementedError):
            return MacrobatchLinkNeighborLoader(
                self._data(),
                edge_label_index=(links.relation, index) if is_named else index,
                neg_sampling=(mode, task.negatives),
                exclude_seed_edges=excluded if is_named else "reverse",
                **self._loader_arguments(settings),
            )

    def _loader_arguments(self, settings: MinibatchSettings) -> dict[str, Any]:
        """Returns the arguments that loaders of nodes and of links share."""
        sampling = self.config.sampling
        return {
            "num_neighbors": list(settings.fanout),
            "batch_size": settings.size,
            "shuffle": settings.shuffle,
            "drop_last": settings.last is LastMinibatch.DROP,
            "macrobatch_size": sampling.macrobatch_size,
            "fetch_size": sampling.fetch_size,
            "memory_budget": sampling.memory_budget,
            "prefetch": sampling.prefetch,
            "embedding": self.embedding,
            "export": "native",
            **self._arguments(settings),
        }

    def _node_arguments(self, settings: MinibatchSettings) -> dict[str, Any]:  # noqa: ARG002
        """Returns the arguments that only a loader of nodes has."""
        return {}

    @abstractmethod
    def labels(self, network: GraphNetwork, batch: Any) -> Tensor:
        """Returns [S, ...], the rows of the labels "y" of the minibatch's seed nodes."""

    def all_nodes(self) -> AllNodes:
        """Returns the nodes that this rank owns, for the inference of all nodes; collective."""
        config = self.config
        return AllNodes(self._whole_data(), config.run.threads, config.sampling.memory_budget)

    def _with_learned_rows(self, data: Any) -> Any:
        """Returns a graph whose features have the present learned rows behind them; collective."""
        for name in self.inputs.learned:
            assert self.embedding is not None, "there are learned rows"
            data = self.embedding.as_features(data, node_type=name)
        return data

    @abstractmethod
    def owned_labels(self) -> Tensor:
        """Returns [n, ...], the rows of the labels "y" of the nodes of `all_nodes`."""

    @abstractmethod
    def embedded(self, rows: Mapping[str, Tensor]) -> EmbeddedRows:
        """Returns rows that were computed for the nodes of `all_nodes`, by node type, for reading
        by original id; collective."""

    @abstractmethod
    def _whole_data(self) -> Any:
        """Returns the edges and the features as `AllNodes` takes them."""

    @abstractmethod
    def _data(self) -> Any:
        """Returns the loader's first argument."""

    @abstractmethod
    def _arguments(self, settings: MinibatchSettings) -> dict[str, Any]:
        """Returns the loader's other arguments that depend on where the graph lies."""
