"""The graph of a run in one process."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from pyg_batchgnn.cache import AggregationCache
from pyg_batchgnn.data import Dataset
from pyg_batchgnn.sample import PygNeighborSampler, Replacement
from pyg_batchgnn.store import CscGraph, graph_from_pyg
from pyg_batchgnn.train.config import LayerSource, TrainConfig
from pyg_batchgnn.train.graph.aggregation import aggregates_exist, aggregation_cache
from pyg_batchgnn.train.graph.features import feature_table
from pyg_batchgnn.train.graph.minibatch_settings import MinibatchSettings
from pyg_batchgnn.train.graph.run_graph import RunGraph
from pyg_batchgnn.train.graph.training_data import TrainingData
from pyg_batchgnn.train.model import GraphNetwork


class WholeGraph(RunGraph):
    """A graph that one rank holds whole.

    Args:
        config: of the run.
        data: the features, and the edges if the loader makes PyG minibatches.
        topology: the in-edges of each node, for the samplers.
        label: [N, ...], the labels of each node.
        cache: aggregates of the features, or None in a run without a cache.
        notes: lines about the cache that the user should read.
    """

    def __init__(
        self,
        config: TrainConfig,
        data: Data,
        topology: CscGraph,
        label: Tensor,
        cache: AggregationCache | None,
        notes: list[str],
    ) -> None:
        super().__init__(config, cache, notes)
        self.data = data
        self.topology = topology
        self.label = label

    @classmethod
    def of(cls, dataset: Dataset, config: TrainConfig) -> WholeGraph:
        """Takes what training needs of a data set: edges, features and labels.

        Raises:
            TrainError: the data set has no features or labels that training can use.
        """
        read = TrainingData.of(dataset)
        edges = Data(edge_index=dataset.edge_index, num_nodes=dataset.num_nodes)
        topology = graph_from_pyg(edges).advise_huge_pages()
        data = Data(x=feature_table(read.features, config), num_nodes=dataset.num_nodes)
        if config.model.layers is LayerSource.PYG:
            data.edge_index = dataset.edge_index.to(torch.int64)
        cache, notes = aggregation_cache(config, (topology, data.x), aggregates_exist(config))
        return cls(config, data, topology, read.labels, cache, notes)

    def labels(self, network: GraphNetwork, batch: Any) -> Tensor:
        return self.label[network.seeds(batch)]

    def owned_labels(self) -> Tensor:
        return self.label

    def _whole_data(self) -> tuple[CscGraph, Tensor]:
        return self.topology, self.data.x

    def _data(self) -> Data:
        return self.data

    def _arguments(self, settings: MinibatchSettings) -> dict[str, Any]:
        """Returns the sampler. It has all minibatches, with either schedule."""
        run = self.config.run
        sampler = PygNeighborSampler(
            self.topology,
            list(settings.fanout),
            replace=self.config.sampling.replacement is Replacement.WITH,
            seed=run.seed,
            threads=run.threads,
        )
        return {"neighbor_sampler": sampler}
