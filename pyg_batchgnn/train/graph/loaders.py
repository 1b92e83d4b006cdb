"""The loaders of a run, all on one copy of the graph."""

from __future__ import annotations

from torch import Tensor

from pyg_batchgnn.loader import MacrobatchNeighborLoader
from pyg_batchgnn.train.config import LastMinibatch, TrainConfig
from pyg_batchgnn.train.graph.run_graph import MinibatchSettings, RunGraph


def training_loader(
    config: TrainConfig, graph: RunGraph, nodes: Tensor, ranks: int = 1
) -> tuple[MacrobatchNeighborLoader, list[str]]:
    """The shuffled loader of training minibatches, and notes for the user.

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
    """Minibatches of `nodes` in order, every one of them, with the fanout of evaluation.

    Raises:
        TrainError: the loader refuses an option.
    """
    return graph.loader(nodes, MinibatchSettings.of_evaluation(config))
