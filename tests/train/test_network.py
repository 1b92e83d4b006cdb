"""Models in the trainer: threads, dropout, precision, and graphs of several types."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from pyg_batchgnn.data import Dataset, EdgeSet, NodeSet, TypedGeneratorSpec, generate_typed
from pyg_batchgnn.train.checkpoint import PhaseClock, RunProgress
from pyg_batchgnn.train.config.choices import MatrixProduct, ModelKind, Precision
from pyg_batchgnn.train.config.table import (
    EmbeddingConfig,
    ModelConfig,
    OptimiserConfig,
    RunConfig,
    SamplingConfig,
    TaskConfig,
)
from pyg_batchgnn.train.config.train_config import TrainConfig
from pyg_batchgnn.train.errors import TrainError
from pyg_batchgnn.train.job import TrainingJob
from pyg_batchgnn.train.ranks import Ranks
from pyg_batchgnn.train.trainer import train_step
from pyg_batchgnn.train.training_data import TrainingData
from tests.support.tiers import in_all
from tests.support.training_runs import job_alone

STEPS = 6


def config(kind: ModelKind, **model: float) -> TrainConfig:
    return TrainConfig(
        model=replace(ModelConfig(kind=kind, num_layers=2, hidden=16), **model),  # type: ignore[arg-type]
        sampling=SamplingConfig(fanout=(4, 3), batch_size=64),
        run=RunConfig(threads=1, seed=4, matrix_product=MatrixProduct.NATIVE),
    )


def losses(job: TrainingJob) -> list[float]:
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


@pytest.mark.parametrize("kind", [ModelKind.SAGE, *in_all(*list(ModelKind)[1:])])
def test_bfloat16_follows_float32(kind: ModelKind, small_graph: Dataset) -> None:
    full = config(kind, dropout=0.0)
    half = job_alone(replace(full, run=replace(full.run, precision=Precision.BFLOAT16)), small_graph)
    assert half.train_loader.data.x.dtype is torch.bfloat16
    found = losses(half)
    assert found == pytest.approx(losses(job_alone(full, small_graph)), rel=0.05)
    assert all(parameter.dtype is torch.float32 for parameter in half.network.model.parameters())
    assert half.network.outputs(next(iter(half.val.loader))).logits.dtype is torch.float32


@pytest.fixture(scope="module")
def papers() -> Dataset:
    return generate_typed(TypedGeneratorSpec(papers=400, seed=2, classes=3, features=8))


def typed_config(node_type: str, kind: ModelKind = ModelKind.SAGE, **more: object) -> TrainConfig:
    chosen = TrainConfig(
        model=ModelConfig(kind=kind, num_layers=2, hidden=16, dropout=0.0),
        sampling=SamplingConfig(fanout=(4, 3), batch_size=64),
        task=TaskConfig(node_type=node_type),
        optimiser=OptimiserConfig(learning_rate=0.02),
        run=RunConfig(threads=1, seed=4, matrix_product=MatrixProduct.NATIVE),
    )
    return replace(chosen, **more)  # type: ignore[arg-type]


def trained(job: TrainingJob, epochs: int) -> list[float]:
    found = []
    job.network.model.train()
    for epoch in range(epochs):
        progress = RunProgress(epoch=epoch)
        for batch in job.train_loader:
            figures = train_step(job, batch, PhaseClock(), progress)
            progress.add(torch.tensor([figures], dtype=torch.float64))
        found.append(progress.mean_loss)
    return found


@pytest.mark.parametrize(
    ("node_type", "kind", "precision"),
    [("paper", ModelKind.GAT, Precision.BFLOAT16), ("author", ModelKind.GIN, Precision.FLOAT32)],
)
def test_classes_and_labels_are_learned(
    papers: Dataset, node_type: str, kind: ModelKind, precision: Precision
) -> None:
    chosen = typed_config(node_type, kind, embedding=EmbeddingConfig(learning_rate=0.05))
    job = job_alone(replace(chosen, run=replace(chosen.run, precision=precision)), papers)
    ranks = Ranks.join(chosen.ranks)
    begin = job.val.evaluate(ranks, lambda: False)
    trained(job, 6)
    end = job.val.evaluate(ranks, lambda: False)
    assert begin is not None and end is not None and end.loss < begin.loss
    assert job.task.improves(end.scores[job.task.metric], begin.scores[job.task.metric])


def test_what_the_predicted_nodes_depend_on_has_a_gradient_in_every_minibatch() -> None:
    """A type without nodes, a relation without edges, and nodes of which no edge leads on."""
    none = torch.empty(2, 0, dtype=torch.int64)
    sets = (
        NodeSet("a", 4, {"y": torch.tensor([0, 1, 0, 1])}, {"train": torch.arange(4)}, 2),
        NodeSet("b", 3, {"x": torch.rand(3, 5)}),
        NodeSet("c", 0, {"x": torch.rand(0, 2)}),
    )
    edges = (
        EdgeSet(("b", "to", "a"), torch.tensor([[0], [1]])),
        EdgeSet(("a", "to", "b"), none),
        EdgeSet(("c", "to", "b"), none),
        EdgeSet(("b", "to", "c"), none),
    )
    for kind in (ModelKind.SAGE, ModelKind.GAT, ModelKind.GIN):
        chosen = typed_config("a", kind, sampling=SamplingConfig(fanout=(2, 2), batch_size=1))
        job = job_alone(chosen, Dataset("odd", sets, edges))
        job.network.model.train()
        for batch in job.train_loader:
            job.network.model.zero_grad()
            job.network.outputs(batch).logits.sum().backward()
            for name, parameter in job.network.model.named_parameters():
                assert (parameter.grad is not None) == parameter.requires_grad, (kind, name)
        frozen = {n for n, one in job.network.model.named_parameters() if not one.requires_grad}
        assert any("convs.1.a__to__b" in name for name in frozen)
        assert not any("convs.0.a__to__b" in name for name in frozen)
        assert "project.lins.c.weight" in job.network.model.state_dict()


def test_a_homogeneous_graph_without_features_learns_rows() -> None:
    x: Tensor = torch.arange(60) % 2
    edges = torch.stack([torch.arange(58), torch.arange(2, 60)])
    graph = Dataset.homogeneous("bare", 60, edges, nodes={"y": x}, splits={"train": torch.arange(60)})
    found = trained(job_alone(typed_config("node", task=TaskConfig()), graph), 8)
    assert found[-1] < found[0] / 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"task": TaskConfig()}, "name the one to predict with --node-type; those with labels 'y' are"),
        ({"task": TaskConfig(node_type="book")}, "task.node_type is book, but .* has author, field"),
        ({"task": TaskConfig(node_type="field")}, "'y' of type 'field' are missing"),
        ({"embedding": EmbeddingConfig(types=("author",))}, "features 'x' of type 'field', and no learned"),
        ({"embedding": EmbeddingConfig(types=("x",))}, "embedding.types names x, but"),
    ],
)
def test_what_does_not_fit_the_types_is_named(
    papers: Dataset, changes: dict[str, object], message: str
) -> None:
    with pytest.raises(TrainError, match=message):
        TrainingData.of(papers, replace(typed_config("paper"), **changes))  # type: ignore[arg-type]
