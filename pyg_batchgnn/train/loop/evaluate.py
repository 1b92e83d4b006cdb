"""Evaluation on sampled minibatches: each node once, and the same samples every time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from pyg_batchgnn.loader import MacrobatchNeighborLoader
from pyg_batchgnn.train.graph import LabelSource
from pyg_batchgnn.train.model import GraphNetwork, NetworkOutput
from pyg_batchgnn.train.ranks import Ranks
from pyg_batchgnn.train.task import Evaluation, NodeTask, Scoring

# Samples depend on the epoch. All evaluations use the same one, so equal weights give equal
# metrics.
_EPOCH = 0


def infer(network: GraphNetwork, loader: MacrobatchNeighborLoader) -> Iterator[tuple[Any, NetworkOutput]]:
    """Yields each minibatch and the output for its seed nodes, with the model in evaluation
    mode."""
    was_training = network.model.training
    network.model.eval()
    loader.set_epoch(_EPOCH)
    try:
        for batch in loader:
            with torch.no_grad():
                output = network.outputs(batch)
            yield batch, output
    finally:
        network.model.train(was_training)


def evaluate(
    network: GraphNetwork,
    loader: MacrobatchNeighborLoader,
    labels: LabelSource,
    task: NodeTask,
    ranks: Ranks,
    stop: Callable[[], bool] = lambda: False,
) -> Evaluation | None:
    """Returns loss and metrics of the nodes of all ranks' loaders; collective.

    Args:
        network: evaluated.
        loader: this rank's nodes. Each node is in one rank's loader.
        labels: the source of a minibatch's labels.
        task: of the network.
        ranks: of the run.
        stop: called after each minibatch. If it returns True, on every rank, evaluation ends early.

    Returns:
        The evaluation, or None if there are no nodes or evaluation ended early.
    """
    scoring = Scoring(task)
    for batch, output in infer(network, loader):
        scoring.add(output.logits, labels(network, batch))
        if stop():
            return None
    return scoring.result(ranks)
