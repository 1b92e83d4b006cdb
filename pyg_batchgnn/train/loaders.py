"""The loaders of a run, all on one copy of the graph."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch_geometric.data import Data

from pyg_batchgnn.data import Dataset
from pyg_batchgnn.loader import MacrobatchNeighborLoader
from pyg_batchgnn.sample import PygNeighborSampler, Replacement
from pyg_batchgnn.store import CscGraph, graph_from_pyg
from pyg_batchgnn.train.config import LastBatch, LayerSource, TrainConfig
from pyg_batchgnn.train.errors import TrainError
from pyg_batchgnn.train.features import feature_table


@dataclass(frozen=True)
class SampledGraph:
    """What a run holds of its graph.

    Attributes:
        data: features, and the edges where PyG batches are made.
        topology: in-edges grouped by destination, for the samplers.
        labels: [N] int64.
    """

    data: Data
    topology: CscGraph
    labels: Tensor

    @classmethod
    def of(cls, dataset: Dataset, config: TrainConfig) -> SampledGraph:
        """What training needs of `dataset` (edges, features, labels) and nothing that would only be carried
        along.

        Raises:
            TrainError: there are no features.
        """
        if dataset.x is None:
            raise TrainError(f"{dataset.name} has no node features, which every model here needs")
        edges = Data(edge_index=dataset.edge_index, num_nodes=dataset.num_nodes)
        topology = graph_from_pyg(edges).advise_huge_pages()
        data = Data(x=feature_table(dataset.x, config), num_nodes=dataset.num_nodes)
        if config.model.layers is LayerSource.PYG:
            data.edge_index = dataset.edge_index.to(torch.int64)
        return cls(data, topology, dataset.y)


def training_loader(
    config: TrainConfig, graph: SampledGraph, nodes: Tensor
) -> tuple[MacrobatchNeighborLoader, list[str]]:
    """The shuffled loader of training minibatches, and notes for the user.

    Raises:
        TrainError: the loader refuses an option.
    """
    sampling = config.sampling
    drop = sampling.last_batch is LastBatch.DROP
    notes = []
    if drop and len(nodes) < sampling.batch_size:
        drop = False
        notes.append(
            f"only {len(nodes)} training nodes for minibatches of {sampling.batch_size}: "
            "the one smaller minibatch is kept"
        )
    return _loader(config, graph, nodes, sampling.fanout, sampling.batch_size, True, drop), notes


def evaluation_loader(config: TrainConfig, graph: SampledGraph, nodes: Tensor) -> MacrobatchNeighborLoader:
    """Minibatches of `nodes` in order, every one of them, with the fanout of evaluation.

    Raises:
        TrainError: the loader refuses an option.
    """
    return _loader(config, graph, nodes, config.test_fanout, config.test_batch_size, False, False)


def _loader(
    config: TrainConfig,
    graph: SampledGraph,
    nodes: Tensor,
    fanout: tuple[int, ...],
    batch_size: int,
    shuffle: bool,
    drop_last: bool,
) -> MacrobatchNeighborLoader:
    sampling, run = config.sampling, config.run
    is_native = config.model.layers is LayerSource.NATIVE
    replace = sampling.replacement is Replacement.WITH
    try:
        sampler = PygNeighborSampler(graph.topology, list(fanout), replace, run.seed, run.threads)
        return MacrobatchNeighborLoader(
            graph.data,
            num_neighbors=list(fanout),
            input_nodes=nodes.to(torch.int64),
            neighbor_sampler=sampler,
            batch_size=batch_size,
            shuffle=shuffle,
            drop_last=drop_last,
            macrobatch_size=sampling.macrobatch_size,
            fetch_size=sampling.fetch_size,
            memory_budget=sampling.memory_budget,
            prefetch=sampling.prefetch,
            export="native" if is_native else "pyg",
        )
    except (ValueError, NotImplementedError) as error:
        raise TrainError(str(error)) from error
