"""The loaders of a run. They share one copy of the graph."""

from __future__ import annotations

from torch import Tensor

from pyg_batchgnn.loader import MacrobatchNeighborLoader
from pyg_batchgnn.train.config import LastMinibatch, TrainConfig
from pyg_batchgnn.train.graph.minibatch_settings import MinibatchSettings
from pyg_batchgnn.train.graph.run_graph import RunGraph


def training_loader(
    config: TrainConfig, graph: RunGraph, nodes: Tensor, ranks: int = 1
) -> tuple[MacrobatchNeighborLoader, list[str]]:
    """Makes the shuffled loader of training minibatches.

    Returns:
        The loader, and lines that the user should read.

    Raises:
        TrainError: the loader refuses an option.
    """
    size, last = config.sampling.batch_size, config.sampling.last_batch
    notes = []
    if last is LastMinibatch.DROP and len(nodes) < size * ranks:
        last = LastMinibatch.KEEP
        on = "" if ranks == 1 else f" on {ranks} ranks"
        kept = "the one smaller minibatch is kept" if ranks == 1 else "smaller minibatches are kept"
        notes.append(f"only {len(nodes)} training nodes for minibatches of {size}{on}: {kept}")
    return graph.loader(nodes, MinibatchSettings.of_training(config, last)), notes


def evaluation_loader(config: TrainConfig, graph: RunGraph, nodes: Tensor) -> MacrobatchNeighborLoader:
    """Makes a loader of all of `nodes`, in their order, with the fanout of evaluation.

    Raises:
        TrainError: the loader refuses an option.
    """
    return graph.loader(nodes, MinibatchSettings.of_evaluation(config))
