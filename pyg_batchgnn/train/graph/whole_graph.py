"""The graph of a run in one process."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from pyg_batchgnn.cache import AggregationCache
from pyg_batchgnn.data import Dataset
from pyg_batchgnn.loader import MacrobatchNeighborLoader
from pyg_batchgnn.sample import PygNeighborSampler, Replacement
from pyg_batchgnn.store import CscGraph, graph_from_pyg
from pyg_batchgnn.train.config import LayerSource, TrainConfig
from pyg_batchgnn.train.errors import TrainError
from pyg_batchgnn.train.graph.aggregation import aggregation_cache, kept
from pyg_batchgnn.train.graph.features import feature_table
from pyg_batchgnn.train.graph.requirements import training_features, training_labels
from pyg_batchgnn.train.graph.run_graph import MinibatchSettings, loader_arguments
from pyg_batchgnn.train.model import GraphNetwork


@dataclass(frozen=True)
class WholeGraph:
    """What a run of one rank holds of its graph, shared by its loaders.

    Attributes:
        config: of the run.
        data: features, and the edges where PyG batches are made.
        topology: in-edges grouped by destination, for the samplers.
        label: [N] int64.
        cache: aggregates of the features, where the run has them.
        notes: on the cache.
    """

    config: TrainConfig
    data: Data
    topology: CscGraph
    label: Tensor
    cache: AggregationCache | None = None
    notes: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, dataset: Dataset, config: TrainConfig) -> WholeGraph:
        """What training needs of `dataset` (edges, features, labels) and nothing that would only be carried
        along.

        Raises:
            TrainError: the features or labels are missing, or are not what training needs.
        """
        x, labels = training_features(dataset), training_labels(dataset)
        edges = Data(edge_index=dataset.edge_index, num_nodes=dataset.num_nodes)
        topology = graph_from_pyg(edges).advise_huge_pages()
        data = Data(x=feature_table(x, config), num_nodes=dataset.num_nodes)
        if config.model.layers is LayerSource.PYG:
            data.edge_index = dataset.edge_index.to(torch.int64)
        cache, notes = aggregation_cache(config, (topology, data.x), kept(config))
        return cls(config, data, topology, labels, cache, notes)

    def loader(self, nodes: Tensor, batches: MinibatchSettings) -> MacrobatchNeighborLoader:
        """See `RunGraph`. One rank has all minibatches whatever the schedule."""
        replace, run = self.config.sampling.replacement is Replacement.WITH, self.config.run
        try:
            sampler = PygNeighborSampler(self.topology, list(batches.fanout), replace, run.seed, run.threads)
            arguments = loader_arguments(self.config, nodes, batches, self.cache)
            return MacrobatchNeighborLoader(self.data, neighbor_sampler=sampler, **arguments)
        except (ValueError, NotImplementedError) as error:
            raise TrainError(str(error)) from error

    def labels(self, network: GraphNetwork, batch: Any) -> Tensor:
        """See `LabelSource`."""
        return self.label[network.seeds(batch)]
