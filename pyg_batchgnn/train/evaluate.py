"""Sampled inference: each node once, with the fanout of evaluation, always the same samples."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch_geometric.data import Data

from pyg_batchgnn.loader import MacrobatchNeighborLoader
from pyg_batchgnn.train.models import ModelOutput, PrefixModel

# Samples depend on the epoch, so every evaluation is of the same one: equal weights give equal accuracy.
_EPOCH = 0


def infer(model: PrefixModel, loader: MacrobatchNeighborLoader) -> Iterator[tuple[Data, ModelOutput]]:
    """Each minibatch with the model's output for its seeds; `model` is in evaluation mode meanwhile."""
    was_training = model.training
    model.eval()
    loader.set_epoch(_EPOCH)
    try:
        for batch in loader:
            with torch.no_grad():
                output = model.outputs(
                    batch.x, batch.edge_index, batch.num_sampled_nodes, batch.num_sampled_edges
                )
            yield batch, output
    finally:
        model.train(was_training)


def count_correct(logits: Tensor, labels: Tensor) -> int:
    """Rows of `logits` [S, C] whose largest column is their label [S]."""
    return int((logits.argmax(dim=1) == labels).sum())


def accuracy(
    model: PrefixModel, loader: MacrobatchNeighborLoader, stop: object | None = None
) -> float | None:
    """Share of the loader's nodes that `model` classifies right; None where there are no nodes.

    Args:
        stop: where its truth value turns true, evaluation ends early with None.
    """
    correct = total = 0
    for batch, output in infer(model, loader):
        correct += count_correct(output.logits, batch.y[: batch.batch_size])
        total += int(batch.batch_size)
        if stop:
            return None
    return correct / total if total else None
