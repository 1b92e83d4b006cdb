"""Evaluation on sampled minibatches: each node once, and the same samples every time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from pyg_batchgnn.loader import MacrobatchNeighborLoader
from pyg_batchgnn.train.graph import LabelSource
from pyg_batchgnn.train.model import GraphNetwork, NetworkOutput
from pyg_batchgnn.train.ranks import Ranks

# Samples depend on the epoch. All evaluations use the same one, so equal weights give equal
# accuracy.
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


def count_correct(logits: Tensor, labels: Tensor) -> int:
    """Returns the number of rows of `logits` [S, C] with the largest value in the column of their
    label."""
    return int((logits.argmax(dim=1) == labels).sum())


def accuracy(
    network: GraphNetwork,
    loader: MacrobatchNeighborLoader,
    labels: LabelSource,
    ranks: Ranks,
    stop: Callable[[], bool] = lambda: False,
) -> float | None:
    """Returns the share of the nodes of all ranks' loaders that are classified right; collective.

    Args:
        network: evaluated.
        loader: this rank's nodes. Each node is in one rank's loader.
        labels: the source of a minibatch's labels.
        ranks: of the run.
        stop: called after each minibatch. If it returns True, on every rank, evaluation ends early.

    Returns:
        The share, or None if there are no nodes or evaluation ended early.
    """
    correct = total = 0
    for batch, output in infer(network, loader):
        wanted = labels(network, batch)
        correct += count_correct(output.logits, wanted)
        total += len(wanted)
        if stop():
            return None
    correct, total = ranks.table([correct, total]).sum(dim=0).long().tolist()
    return correct / total if total else None
