"""A training step, timed by phase."""

from __future__ import annotations

import math
from typing import Any

from pyg_batchgnn.train.config import TrainConfig
from pyg_batchgnn.train.errors import TrainError
from pyg_batchgnn.train.loop.job import TrainingJob
from pyg_batchgnn.train.measure import Phase, PhaseClock, RunProgress, StepFigures
from pyg_batchgnn.train.task import count_not_finite


def train_step(job: TrainingJob, batch: Any, clock: PhaseClock, progress: RunProgress) -> StepFigures:
    """Runs forward pass, backward pass and update on this rank's minibatch; collective.

    The time in which the backward pass waits for other ranks counts as exchange.

    Args:
        job: of the run. Its weights change.
        batch: of this rank.
        clock: receives the seconds of each phase.
        progress: tells the epoch and the step.
    """
    before, waited = clock.work(), job.replica.waited()
    with clock.measure(Phase.FORWARD):
        targets = job.task.targets(job.labels(job.network, batch))
        seeds, weight = len(targets), job.task.weight(targets)
        logits = job.replica.logits(batch, weight, progress.epoch, progress.step)
        loss = job.task.loss(logits, targets) if seeds else logits.sum()
    with clock.measure(Phase.BACKWARD):
        job.optimiser.zero_grad(set_to_none=True)
        loss.backward()
    clock.move(Phase.BACKWARD, Phase.EXCHANGE, job.replica.waited() - waited)
    with clock.measure(Phase.OPTIMISER):
        if job.rows is not None:
            job.rows.step(weight)
        job.optimiser.step()
    score, score_of = job.task.train_score(logits.detach(), targets) if seeds else (0.0, 0.0)
    return StepFigures(
        seeds > 0,
        seeds,
        weight,
        loss.item() * weight if not count_not_finite(logits.detach()) else math.nan,
        score,
        score_of,
        *job.network.sampled(batch),
        clock.work() - before,
    )


def diverged(what: str, config: TrainConfig, kept: str) -> TrainError:
    """Returns the error for a run whose numbers are not finite any more.

    Args:
        what: tells which number, and where.
        config: of the run.
        kept: tells what is left of the run.
    """
    rate = config.optimiser.learning_rate
    return TrainError(
        f"{what}; lower --lr (optimiser.learning_rate is {rate}), or look for NaN and huge values in the "
        f"features; {kept}"
    )
