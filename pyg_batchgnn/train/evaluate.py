"""Sampled inference: each node once, with the fanout of evaluation, always the same samples."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from pyg_batchgnn.loader import MacrobatchNeighborLoader
from pyg_batchgnn.train.network import Network, Output

# Samples depend on the epoch, so every evaluation is of the same one: equal weights give equal accuracy.
_EPOCH = 0


def infer(network: Network, loader: MacrobatchNeighborLoader) -> Iterator[tuple[Tensor, Output]]:
    """The seed nodes of each minibatch, [S] int64, and the output for them; the model is in evaluation mode
    meanwhile."""
    was_training = network.model.training
    network.model.eval()
    loader.set_epoch(_EPOCH)
    try:
        for batch in loader:
            with torch.no_grad():
                output = network.outputs(batch)
            yield network.seeds(batch), output
    finally:
        network.model.train(was_training)


def count_correct(logits: Tensor, labels: Tensor) -> int:
    """Rows of `logits` [S, C] whose largest column is their label [S]."""
    return int((logits.argmax(dim=1) == labels).sum())


def accuracy(
    network: Network, loader: MacrobatchNeighborLoader, labels: Tensor, stop: object | None = None
) -> float | None:
    """Share of the loader's nodes that are classified right; None where there are no nodes.

    Args:
        labels: [N] int64, of all nodes.
        stop: where its truth value turns true, evaluation ends early with None.
    """
    correct = total = 0
    for seeds, output in infer(network, loader):
        correct += count_correct(output.logits, labels[seeds])
        total += len(seeds)
        if stop:
            return None
    return correct / total if total else None
