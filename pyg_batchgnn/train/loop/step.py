"""One training step, timed by phase."""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F

from pyg_batchgnn.train.loop.evaluate import count_correct
from pyg_batchgnn.train.loop.job import TrainingJob
from pyg_batchgnn.train.measure import Phase, PhaseClock, RunProgress, StepFigures


def train_step(job: TrainingJob, batch: Any, clock: PhaseClock, progress: RunProgress) -> StepFigures:
    """Forward, backward and update on this rank's minibatch; collective.

    What the backward pass waits for other ranks is put down as an exchange.
    """
    before, waited = clock.work(), job.replica.waited()
    with clock.measure(Phase.FORWARD):
        logits = job.replica.logits(batch, progress.epoch, progress.step)
        wanted = job.labels(job.network, batch)
        loss = F.cross_entropy(logits, wanted) if len(wanted) else logits.sum()
    with clock.measure(Phase.BACKWARD):
        job.optimiser.zero_grad(set_to_none=True)
        loss.backward()
    clock.move(Phase.BACKWARD, Phase.EXCHANGE, job.replica.waited() - waited)
    with clock.measure(Phase.OPTIMISER):
        job.optimiser.step()
    seeds = len(wanted)
    return StepFigures(
        seeds > 0,
        seeds,
        loss.item() * seeds,
        count_correct(logits.detach(), wanted) if seeds else 0,
        *job.network.sampled(batch),
        clock.work() - before,
    )
