"""One training step, timed by phase."""

from __future__ import annotations

import hashlib

import torch
import torch.nn.functional as F
from torch.optim import Optimizer
from torch_geometric.data import Data

from pyg_batchgnn.train.checkpoint import Progress
from pyg_batchgnn.train.evaluate import count_correct
from pyg_batchgnn.train.models import PrefixModel
from pyg_batchgnn.train.phases import Phase, PhaseClock


def seed_dropout(seed: int, epoch: int, step: int) -> None:
    """Seed torch's default generator for one step.

    Dropout then depends on (seed, epoch, step) alone: not on what else drew random numbers, nor on whether
    the run was interrupted.
    """
    digest = hashlib.blake2b(f"{seed}/{epoch}/{step}".encode(), digest_size=8).digest()
    torch.manual_seed(int.from_bytes(digest, "little"))


def train_step(
    model: PrefixModel, optimiser: Optimizer, batch: Data, clock: PhaseClock, progress: Progress
) -> None:
    """Forward, backward and update on one minibatch; its figures are added to `progress`."""
    labels = batch.y[: batch.batch_size]
    with clock.measure(Phase.FORWARD):
        logits = model(batch.x, batch.edge_index, batch.num_sampled_nodes, batch.num_sampled_edges)
        loss = F.cross_entropy(logits, labels)
    with clock.measure(Phase.BACKWARD):
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
    with clock.measure(Phase.OPTIMISER):
        optimiser.step()
    progress.step += 1
    progress.loss_sum += loss.item() * len(labels)
    progress.correct += count_correct(logits.detach(), labels)
    progress.seeds += len(labels)
    progress.nodes += int(sum(batch.num_sampled_nodes))
    progress.edges += int(sum(batch.num_sampled_edges))
