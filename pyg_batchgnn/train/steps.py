"""One training step, timed by phase."""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F
from torch import Tensor
from torch.optim import Optimizer

from pyg_batchgnn.train.checkpoint import Progress
from pyg_batchgnn.train.evaluate import count_correct
from pyg_batchgnn.train.network import Network
from pyg_batchgnn.train.phases import Phase, PhaseClock


def train_step(
    network: Network,
    optimiser: Optimizer,
    batch: Any,
    labels: Tensor,
    clock: PhaseClock,
    progress: Progress,
) -> None:
    """Forward, backward and update on one minibatch; its figures are added to `progress`.

    Args:
        labels: [N] int64, of all nodes of the graph.
    """
    with clock.measure(Phase.FORWARD):
        logits = network.outputs(batch).logits
        wanted = labels[network.seeds(batch)]
        loss = F.cross_entropy(logits, wanted)
    with clock.measure(Phase.BACKWARD):
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
    with clock.measure(Phase.OPTIMISER):
        optimiser.step()
    nodes, edges = network.sampled(batch)
    progress.step += 1
    progress.loss_sum += loss.item() * len(wanted)
    progress.correct += count_correct(logits.detach(), wanted)
    progress.seeds += len(wanted)
    progress.nodes += nodes
    progress.edges += edges
