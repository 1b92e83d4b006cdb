"""The graph of a run in one process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor
from torch_geometric.data import Data, HeteroData

from pyg_batchgnn.cache import AggregationCache
from pyg_batchgnn.data import FEATURES, Dataset
from pyg_batchgnn.embed import Embedding
from pyg_batchgnn.sample import PygNeighborSampler
from pyg_batchgnn.store import CscGraph, TypedGraph
from pyg_batchgnn.train.config import ReplacementKind, TrainConfig
from pyg_batchgnn.train.graph.aggregation import aggregates_exist, aggregation_cache
from pyg_batchgnn.train.graph.embedded_rows import EmbeddedRows, RowsHere
from pyg_batchgnn.train.graph.features import feature_table
from pyg_batchgnn.train.graph.minibatch_settings import MinibatchSettings
from pyg_batchgnn.train.graph.run_graph import RunGraph
from pyg_batchgnn.train.graph.training_data import TrainingData
from pyg_batchgnn.train.model import GraphNetwork, ModelInputs


class WholeGraph(RunGraph):
    """A graph that one rank holds whole.

    Args:
        config: of the run.
        inputs: what the model reads of the nodes of each type.
        data: the features, and the edges of named relations.
        topology: the in-edges of each node, for the samplers.
        label: [N, ...], the labels of each node of the predicted type; None if links are predicted.
        cache: aggregates of the features, or None in a run without a cache.
        notes: lines about the cache that the user should read.
        embedding: the learned rows, or None in a run without them.
    """

    def __init__(
        self,
        config: TrainConfig,
        inputs: ModelInputs,
        data: Data | HeteroData,
        topology: CscGraph | TypedGraph,
        label: Tensor | None,
        cache: AggregationCache | None,
        notes: list[str],
        embedding: Embedding | None,
    ) -> None:
        super().__init__(config, inputs, cache, notes, embedding=embedding)
        self.data = data
        self.topology = topology
        self.label = label

    @classmethod
    def of(cls, dataset: Dataset, config: TrainConfig) -> WholeGraph:
        """Takes what training needs of a data set: edges, features and labels.

        Raises:
            TrainError: the data set has no features or labels that training can use.
        """
        read = TrainingData.of(dataset, config)
        topology, data = _topology(dataset), _data(dataset, read, config)
        cache, notes = aggregation_cache(config, (topology, _x(data)), aggregates_exist(config))
        embedding = Embedding(data, read.learned, seed=config.run.seed) if read.learned else None
        return cls(
            config,
            read.inputs,
            data,
            topology,
            read.labels.get(read.inputs.node_type),
            cache,
            notes,
            embedding,
        )

    def labels(self, network: GraphNetwork, batch: Any) -> Tensor:
        return self.owned_labels()[network.seeds(batch)]

    def owned_labels(self) -> Tensor:
        assert self.label is not None, "runs that predict links read no labels"
        return self.label

    def embedded(self, rows: Mapping[str, Tensor]) -> EmbeddedRows:
        return RowsHere(rows)

    def _whole_data(self) -> tuple[CscGraph | TypedGraph, Any]:
        data = self._with_learned_rows(self.data)
        if not self.inputs.schema.has_names:
            return self.topology, _x(data)
        return self.topology, {name: data[name].x for name in data.node_types if FEATURES in data[name]}

    def _data(self) -> Data | HeteroData:
        return self.data

    def _arguments(self, settings: MinibatchSettings) -> dict[str, Any]:
        """Returns the sampler. It has all minibatches, with any schedule."""
        run = self.config.run
        sampler = PygNeighborSampler(
            self.topology,
            list(settings.fanout),
            replace=self.config.sampling.replacement is ReplacementKind.WITH,
            seed=run.seed,
            threads=run.threads,
        )
        return {"neighbor_sampler": sampler}


def _x(data: Data | HeteroData) -> Any:
    """Returns the features of the only type, or None."""
    return data.node_stores[0].get(FEATURES)


def _topology(dataset: Dataset) -> CscGraph | TypedGraph:
    """Returns the in-edges of each node, with the names of types if they have any."""
    counts = {nodes.name: nodes.num_nodes for nodes in dataset.node_sets}
    edges = {one.relation: one.edge_index for one in dataset.edge_sets}
    graph = TypedGraph.from_edge_indices(dataset.schema, counts, edges).advise_huge_pages()
    return graph if dataset.has_names else CscGraph(graph.relations[0])


def _data(dataset: Dataset, read: TrainingData, config: TrainConfig) -> Data | HeteroData:
    """Returns the features, and the edges of named relations."""
    data: Any = HeteroData() if dataset.has_names else Data()
    for nodes in dataset.node_sets:
        store = data[nodes.name] if dataset.has_names else data
        store.num_nodes = nodes.num_nodes
        if nodes.name in read.features:
            store.x = feature_table(read.features[nodes.name], config)
    if dataset.has_names:
        for edges in dataset.edge_sets:
            data[edges.relation].edge_index = edges.edge_index  # so that the relation is known
    return data
