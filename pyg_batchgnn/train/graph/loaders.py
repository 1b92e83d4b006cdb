"""The loaders of a run. They share one copy of the graph."""

from __future__ import annotations

from torch import Tensor

from pyg_batchgnn.loader import MacrobatchLinkNeighborLoader, MacrobatchNeighborLoader
from pyg_batchgnn.train.config import LastMinibatch, TrainConfig
from pyg_batchgnn.train.graph.minibatch_settings import MinibatchSettings
from pyg_batchgnn.train.graph.run_graph import RunGraph
from pyg_batchgnn.train.task import PredictedLinks


def training_loader(
    config: TrainConfig, graph: RunGraph, nodes: Tensor, ranks: int = 1
) -> tuple[MacrobatchNeighborLoader, list[str]]:
    """Makes the shuffled loader of training minibatches.

    Returns:
        The loader, and lines that the user should read.

    Raises:
        TrainError: the loader refuses an option.
    """
    last, notes = _last_minibatch(config, len(nodes), ranks, "nodes")
    return graph.loader(nodes, MinibatchSettings.of_training(config, last)), notes


def evaluation_loader(config: TrainConfig, graph: RunGraph, nodes: Tensor) -> MacrobatchNeighborLoader:
    """Makes a loader of all of `nodes`, in their order, with the fanout of evaluation.

    Raises:
        TrainError: the loader refuses an option.
    """
    return graph.loader(nodes, MinibatchSettings.of_evaluation(config))


def link_training_loader(
    config: TrainConfig, graph: RunGraph, links: PredictedLinks, ranks: int = 1
) -> tuple[MacrobatchLinkNeighborLoader, list[str]]:
    """Makes the shuffled loader of training links with their negatives.

    Returns:
        The loader, and lines that the user should read.

    Raises:
        TrainError: the loader refuses an option.
    """
    last, notes = _last_minibatch(config, len(links.split("train")), ranks, "links")
    return graph.link_loader(links, MinibatchSettings.of_training(config, last)), notes


def _last_minibatch(
    config: TrainConfig, count: int, ranks: int, unit: str
) -> tuple[LastMinibatch, list[str]]:
    """Returns what becomes of a smaller minibatch. The only one is always kept, and a line says
    so."""
    size, last = config.sampling.batch_size, config.sampling.last_batch
    if last is LastMinibatch.KEEP or count >= size * ranks:
        return last, []
    on = "" if ranks == 1 else f" on {ranks} ranks"
    kept = "the one smaller minibatch is kept" if ranks == 1 else "smaller minibatches are kept"
    return LastMinibatch.KEEP, [f"only {count} training {unit} for minibatches of {size}{on}: {kept}"]
