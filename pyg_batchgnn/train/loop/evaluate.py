"""Sampled inference: each node once, with the fanout of evaluation, always the same samples."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from pyg_batchgnn.loader import MacrobatchNeighborLoader
from pyg_batchgnn.train.graph import LabelSource
from pyg_batchgnn.train.model import GraphNetwork, NetworkOutput
from pyg_batchgnn.train.ranks import Ranks

# Samples depend on the epoch, so every evaluation is of the same one: equal weights give equal accuracy.
_EPOCH = 0


def infer(network: GraphNetwork, loader: MacrobatchNeighborLoader) -> Iterator[tuple[Any, NetworkOutput]]:
    """Each minibatch and the output for its seeds; the model is in evaluation mode meanwhile."""
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
    """Rows of `logits` [S, C] whose largest column is their label [S]."""
    return int((logits.argmax(dim=1) == labels).sum())


def accuracy(
    network: GraphNetwork,
    loader: MacrobatchNeighborLoader,
    labels: LabelSource,
    ranks: Ranks,
    stop: Callable[[], bool] = lambda: False,
) -> float | None:
    """Share of the nodes of all ranks' loaders that are classified right; None where there are none.

    Args:
        labels: of a minibatch's seeds.
        ranks: that evaluate together; every node is counted by the one that has it.
        stop: asked after each minibatch; once it says so, on every rank, evaluation ends early with None.
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
