"""Models in the trainer: threads, dropout, precision, and what their minibatches carry."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from pyg_batchgnn.data import Dataset
from pyg_batchgnn.train.config import (
    MatrixProduct,
    ModelConfig,
    ModelKind,
    Precision,
    RunConfig,
    SamplingConfig,
    TrainConfig,
)
from pyg_batchgnn.train.job import TrainingJob
from pyg_batchgnn.train.progress import PhaseClock, RunProgress
from pyg_batchgnn.train.trainer import train_step
from tests.support.training_runs import job_alone

STEPS = 6


def config(kind: ModelKind, **model: float) -> TrainConfig:
    return TrainConfig(
        model=replace(ModelConfig(kind=kind, num_layers=2, hidden=16), **model),  # type: ignore[arg-type]
        sampling=SamplingConfig(fanout=(4, 3), batch_size=64),
        run=RunConfig(threads=1, seed=4, matrix_product=MatrixProduct.NATIVE),
    )


def losses(job: TrainingJob) -> list[float]:
    """Returns the losses of the first few steps, by minibatch."""
    seen, before = [], 0.0
    progress = RunProgress()
    job.network.model.train()
    for batch in job.train_loader:
        progress.add(torch.tensor([train_step(job, batch, PhaseClock(), progress)], dtype=torch.float64))
        seen.append(progress.loss - before)
        before = progress.loss
        if len(seen) == STEPS:
            break
    return seen


@pytest.mark.parametrize("kind", list(ModelKind))
def test_threads_change_no_bit_of_native_training(kind: ModelKind, small_graph: Dataset) -> None:
    jobs = []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        chosen = config(kind)
        jobs.append(job_alone(replace(chosen, run=replace(chosen.run, threads=threads)), small_graph))
        losses(jobs[-1])
    first, *others = (job.network.model.state_dict() for job in jobs)
    for other in others:
        assert all(torch.equal(value, other[name]) for name, value in first.items())


def test_dropout_repeats_and_depends_on_the_seed(small_graph: Dataset) -> None:
    def run(seed: int, disturb: int) -> list[float]:
        chosen = config(ModelKind.SAGE)
        job = job_alone(replace(chosen, run=replace(chosen.run, seed=seed)), small_graph)
        torch.manual_seed(disturb)
        return losses(job)

    assert run(0, disturb=1) == run(0, disturb=2)
    assert run(0, disturb=1) != run(1, disturb=1)


def test_native_training_draws_nothing_from_torch(small_graph: Dataset) -> None:
    job = job_alone(config(ModelKind.GAT), small_graph)
    before = torch.get_rng_state()
    losses(job)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("kind", list(ModelKind))
def test_bfloat16_follows_float32(kind: ModelKind, small_graph: Dataset) -> None:
    full = config(kind, dropout=0.0)
    half = job_alone(replace(full, run=replace(full.run, precision=Precision.BFLOAT16)), small_graph)
    assert half.train_loader.data.x.dtype is torch.bfloat16
    found = losses(half)
    assert found == pytest.approx(losses(job_alone(full, small_graph)), rel=0.05)
    assert all(parameter.dtype is torch.float32 for parameter in half.network.model.parameters())
    assert half.network.outputs(next(iter(half.val.loader))).logits.dtype is torch.float32


def test_native_minibatches_carry_nothing_that_is_not_read(small_graph: Dataset) -> None:
    job = job_alone(config(ModelKind.SAGE), small_graph)
    for loader in (job.train_loader, job.val.loader, job.test.loader):
        batch = next(iter(loader))
        assert batch.edge is None and batch.coo is None
        assert batch.block.keys() == {"x"} and batch.row is batch.node
        assert batch.block["x"] is job.train_loader.data.x
