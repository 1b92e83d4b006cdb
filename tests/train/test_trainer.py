"""Training of every task, its end by patience, by a signal or by numbers that are not finite."""

from __future__ import annotations

import copy
import json
import math
import os
import signal
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from pyg_batchgnn.data import Dataset, load_dataset, write_folder
from pyg_batchgnn.embed import SparseAdam
from pyg_batchgnn.train.checkpoint import Checkpoint, PhaseClock, RunProgress
from pyg_batchgnn.train.config.table import (
    ModelConfig,
    OptimiserConfig,
    RunConfig,
    SamplingConfig,
    TaskConfig,
)
from pyg_batchgnn.train.config.train_config import TrainConfig, assign
from pyg_batchgnn.train.errors import TrainError
from pyg_batchgnn.train.job import check_optimiser
from pyg_batchgnn.train.run_folder import RunFolder
from pyg_batchgnn.train.trainer import StopRequest, train_step
from tests.support.bare_graphs import with_labels, with_values
from tests.support.launched_runs import assert_ended, assert_same_tensors, launch, train
from tests.support.tiers import in_all
from tests.support.training_runs import SMALL, batchgnn, job_alone, mistake, records, weights


def test_a_second_interrupt_is_not_polite() -> None:
    with StopRequest(), pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)


@pytest.fixture(scope="module")
def folders(small_graph: Dataset, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("tasks")
    for name, graph in (("labels", with_labels(small_graph)), ("values", with_values(small_graph))):
        write_folder(graph, folder / name)
    return {name: folder / name for name in ("labels", "values")}


@pytest.mark.parametrize(
    ("make", "task", "loss"),
    [
        (with_labels, TaskConfig(), lambda out, y: F.binary_cross_entropy_with_logits(out, y.float())),
        (with_values, TaskConfig(), F.mse_loss),
        (
            lambda graph: graph,
            TaskConfig(class_weights=(1.0, 2.0, 3.0, 4.0)),
            partial(F.cross_entropy, weight=torch.tensor([1.0, 2.0, 3.0, 4.0])),
        ),
    ],
    ids=["labels", "values", "class weights"],
)
def test_steps_are_those_of_a_script(make: Any, task: TaskConfig, loss: Any, small_graph: Dataset) -> None:
    dataset = make(small_graph)
    config = TrainConfig(
        model=ModelConfig(num_layers=2, hidden=16),
        sampling=SamplingConfig(fanout=(4, 3), batch_size=64),
        task=task,
        optimiser=OptimiserConfig(learning_rate=0.01, weight_decay=0.001),
        run=RunConfig(threads=1),
    )
    job = job_alone(config, dataset)
    script = copy.deepcopy(job.network)
    optimiser = torch.optim.Adam(script.model.parameters(), lr=0.01, weight_decay=0.001, fused=True)
    progress, y, expected, seeds = RunProgress(), dataset.nodes.tables["y"], 0.0, 0
    for batch in job.train_loader:
        job.network.model.train()
        progress.add(torch.tensor([train_step(job, batch, PhaseClock(), progress)], dtype=torch.float64))
        optimiser.zero_grad()
        value = loss(script.model(batch), y[batch.node[: batch.batch_size]])
        value.backward()
        optimiser.step()
        expected += value.item() * job.task.weight(y[batch.node[: batch.batch_size]])
        seeds += batch.batch_size
    assert progress.loss == pytest.approx(expected) and progress.seeds == seeds > 500
    for mine, theirs in zip(job.network.model.parameters(), script.model.parameters(), strict=True):
        assert torch.equal(mine, theirs)


@pytest.mark.parametrize(
    ("kind", "options", "schedule", "of_schedule"),
    [
        ("SGD", ("momentum=0.9", "nesterov=true"), "StepLR", ("step_size=2", "gamma=0.5")),
        ("AdamW", ("betas=0.8:0.9", "eps=1e-6"), "OneCycleLR", ("max_lr=0.1", "total_steps=40")),
        ("rmsprop", (), "MultiStepLR", ("milestones=1:3",)),
    ],
)
def test_torchs_optimisers_and_schedules_by_name(
    kind: str, options: Any, schedule: str, of_schedule: Any, small_graph: Dataset
) -> None:
    config = TrainConfig(
        model=ModelConfig(num_layers=2, hidden=16),
        sampling=SamplingConfig(fanout=(4, 3), batch_size=64),
        optimiser=OptimiserConfig(kind, options, 0.02, 0.0, schedule, of_schedule, "step", 0.5),
        run=RunConfig(threads=1),
    )
    check_optimiser(config)
    job = job_alone(config, small_graph)
    script = copy.deepcopy(job.network)
    weights: Any = list(script.model.parameters())
    optimiser: Any = {
        "SGD": lambda: torch.optim.SGD(weights, 0.02, momentum=0.9, nesterov=True, fused=True),
        "AdamW": lambda: torch.optim.AdamW(weights, 0.02, betas=(0.8, 0.9), eps=1e-6, fused=True),
        "rmsprop": lambda: torch.optim.RMSprop(weights, 0.02),
    }[kind]()
    moves: Any = {
        "StepLR": lambda: torch.optim.lr_scheduler.StepLR(optimiser, 2, 0.5),
        "OneCycleLR": lambda: torch.optim.lr_scheduler.OneCycleLR(optimiser, 0.1, 40),
        "MultiStepLR": lambda: torch.optim.lr_scheduler.MultiStepLR(optimiser, [1, 3]),
    }[schedule]()
    progress, y, clipped = RunProgress(), small_graph.nodes.tables["y"], 0
    for batch in job.train_loader:
        job.network.model.train()
        train_step(job, batch, PhaseClock(), progress)
        optimiser.zero_grad()
        F.cross_entropy(script.model(batch), y[batch.node[: batch.batch_size]]).backward()
        clipped += bool(torch.nn.utils.clip_grad_norm_(weights, 0.5) > 0.5)
        optimiser.step()
        moves.step()
        assert job.optimiser.param_groups[0]["lr"] == optimiser.param_groups[0]["lr"]
    assert clipped, "some gradients were scaled down"
    for mine, theirs in zip(job.network.model.parameters(), weights, strict=True):
        torch.testing.assert_close(mine, theirs)  # norms of pieces differ in their last bits


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"kind": "lbfgs"}, "--optimizer is lbfgs, which is none that a run can use; choose among ASGD, "),
        ({"options": ("momentum=0.9",)}, "--optimizer adam: .*'momentum'; correct --optimizer-options"),
        ({"kind": "sgd", "options": ("nesterov",)}, "--optimizer-options: 'nesterov' is not of the form"),
        ({"schedule": "LambdaLR"}, "--lr-schedule is LambdaLR, which is none .* choose among ConstantLR"),
        ({"schedule": "StepLR"}, "--lr-schedule StepLR: .*'step_size'; correct --lr-schedule-options"),
        (
            {"schedule": "StepLR", "schedule_options": ("step_size=x",)},
            "do not go with a step .*; correct them",
        ),
        ({"schedule": "ReduceLROnPlateau", "schedule_every": "step"}, "looks at validations; take epoch"),
        ({"schedule_options": ("gamma=0.5",)}, "optimiser.schedule_options is gamma=0.5, but there is no"),
    ],
)
def test_what_torch_has_not(given: dict[str, Any], said: str) -> None:
    with pytest.raises(TrainError, match=said):
        check_optimiser(TrainConfig(optimiser=OptimiserConfig(**given)))


def test_a_schedule_moves_the_rate_of_learned_rows_too() -> None:
    said = ["task.node_type=paper", "model.num_layers=1", "sampling.fanout=3", "embedding.learning_rate=0.1"]
    said += ["optimiser.schedule=exponentiallr", "optimiser.schedule_options=gamma=0.5"]
    job = job_alone(assign(TrainConfig(), said), load_dataset("generated-typed:papers=60"))
    assert job.rows is not None
    for rate in (0.05, 0.025):
        job.optimiser.step()
        job.move_rate("step")  # it moves after epochs
        job.move_rate("epoch")
        assert job.rows.rule == SparseAdam(rate)


def test_a_schedule_that_follows_the_metric(graph_folder: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    moves = ["--lr-schedule", "ReduceLROnPlateau"]
    moves += ["--lr-schedule-options", "factor=0.5,patience=0,threshold=9"]
    assert batchgnn(*train(graph_folder, run, "--epochs", 3, *moves)) == 0
    rates = [record["train"]["learning_rate"] for record in records(run)]
    assert rates == [0.003, 0.003, 0.0015]  # nothing is ten times as good as the first epoch


def run_on(ranks: int, command: list[str]) -> None:
    if ranks == 1:
        assert batchgnn(*command) == 0
        return
    (seen,) = launch(ranks, {"arguments": command})
    assert_ended(seen, 0)


@pytest.mark.parametrize(("kind", "metric"), [("labels", "roc_auc"), *in_all(("values", "rmse"))])
def test_ranks_train_and_measure_as_one_process_does(
    kind: str, metric: str, folders: dict[str, Path], tmp_path: Path
) -> None:
    """A rank more changes the order of sums alone, if all neighbours are taken."""
    options = ["--schedule", "global", "--fanout", "-1,-1", "--dropout", 0, "--test-fanout", "-1,-1"]
    options += ["--last-batch", "keep", "--precision", "float32"]
    runs = {ranks: tmp_path / str(ranks) for ranks in (1, 2)}
    for ranks, run in runs.items():
        command = train(folders[kind], run, *options, "--batch-size", 96 // ranks)
        run_on(ranks, command)
    one, two = (json.loads((run / "result.json").read_text()) for run in runs.values())
    assert one["metric"] == two["metric"] == metric and one["best_epoch"] == two["best_epoch"]
    for split in ("val", "test"):
        assert two[split] == pytest.approx(one[split], rel=1e-3)
    for mine, theirs in zip(*map(records, runs.values()), strict=True):
        assert mine["train"] == pytest.approx(theirs["train"], rel=1e-3)
    better = one["val"][metric] > 0.8 if kind == "labels" else one["val"][metric] < 0.9
    assert better, one["val"]


def test_values_stay_exact_in_a_bfloat16_run_over_ranks(folders: dict[str, Path], tmp_path: Path) -> None:
    """The loss before the first step is that of the whole values, on any number of ranks."""
    options = ["--precision", "bfloat16", "--schedule", "global", "--epochs", 1, "--lr", 1e-12]
    options += ["--dropout", 0, "--fanout", "-1,-1", "--last-batch", "keep"]
    losses = []
    for ranks in (1, 2):
        run_on(ranks, train(folders["values"], tmp_path / str(ranks), *options))
        losses.append(records(tmp_path / str(ranks))[0]["train"]["loss"])
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_early_stopping_is_resumed_exactly(
    graph_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A huge step size makes the first epoch the best. The count of later ones survives a stop."""
    straight, broken = tmp_path / "straight", tmp_path / "broken"
    options = ["--epochs", 30, "--patience", 3, "--lr", 0.3, "--batch-size", 200]
    assert batchgnn(*train(graph_folder, straight, *options)) == 0
    assert "stopped early: the last 3 validations had no better accuracy" in capsys.readouterr().out
    lines = records(straight)
    best = json.loads((straight / "result.json").read_text())["best_epoch"]
    assert len(lines) == best + 3 < 30
    (first,) = launch(
        1, {"arguments": train(graph_folder, broken, *options), "fault": [0, 5 * (best + 1) + 2, "SIGINT"]}
    )
    assert_ended(first, 130)
    assert batchgnn("train", "--resume", broken) == 0
    assert_same_tensors(straight, broken)
    assert records(broken) == lines
    assert batchgnn("train", "--resume", broken, "--patience", 4) == 0
    assert len(records(broken)) > len(lines), "more patience trains on"


@pytest.mark.parametrize("ranks", [*in_all(1), 2])
def test_a_loss_that_is_no_number_stops_all_ranks(
    ranks: int, folders: dict[str, Path], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    options = ["--lr", 1e20, "--epochs", 5, "--set", "run.checkpoint_seconds=0"]
    (seen,) = launch(ranks, {"arguments": train(folders["values"], run, *options)})
    assert_ended(seen, 2)
    assert "the loss is " in seen[0]["err"] or "is not finite" in seen[0]["err"]
    assert "lower --lr, which is 1e+20, or" in seen[0]["err"]
    assert all(one["err"] == "" for one in seen[1:]), "the first rank reports"
    saved = run / "checkpoint.safetensors"
    assert not saved.exists() or all(tensor.isfinite().all() for tensor in weights(run).values())


@pytest.mark.parametrize(
    "metric", ["accuracy", "roc_auc", "rmse", "mrr", *in_all("macro_f1", "micro_f1", "mae", "hits@10")]
)
def test_an_epoch_that_is_not_finite_is_never_the_best(
    metric: str, folders: dict[str, Path], graph_folder: Path, tmp_path: Path, capsys: Any
) -> None:
    """One huge step leaves finite weights, with which outputs are not finite."""
    run, data = tmp_path / "run", {"roc_auc": folders["labels"], "micro_f1": folders["labels"]}
    data |= {"rmse": folders["values"], "mae": folders["values"]}
    options = ["--lr", 1e25, "--epochs", 1, "--metric", metric, "--batch-size", 1000]
    if metric in ("mrr", "hits@10"):
        links = ["generated:nodes=500,hold_out=0.1", "--task", "link", "--run", run, *SMALL]
        status = batchgnn(
            "train", *links, *options, "--set", "sampling.last_batch=drop", "--batch-size", 5000
        )
    else:
        status = batchgnn(*train(data.get(metric, graph_folder), run, *options))
    said = capsys.readouterr()
    assert status == 2 and "best" not in said.out and "epoch 1/1" not in said.out
    assert "the validation of epoch 1 is not finite: outputs of" in said.err, said.err
    assert "lower --lr, which is 1e+25, or" in said.err
    assert "no epoch was finished" in said.err and said.err.count("\n") == 1
    assert not (run / "result.json").exists() and not (run / "checkpoint.safetensors").exists()


def test_a_run_that_diverges_keeps_its_last_good_epoch(
    graph_folder: Path, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def step(job: Any, batch: Any, clock: PhaseClock, progress: RunProgress) -> Any:
        found = train_step(job, batch, clock, progress)
        if progress.epoch == 2:
            for parameter in job.network.model.parameters():
                parameter.data.mul_(math.nan if broken == "weights" else 1e30)
        return found

    monkeypatch.setattr("pyg_batchgnn.train.trainer.train_step", step)
    for broken, every, what in (
        ("weights", 4, "weights are not finite at epoch 3"),
        ("scores", 1, "the validation of epoch 3"),
    ):
        run, options = tmp_path / broken, ["--epochs", 4, "--batch-size", 1000, "--evaluate-every", every]
        assert batchgnn(*train(graph_folder, run, *options)) == 2
        said = capsys.readouterr()
        assert what in said.err and "keeps the weights of epoch " in said.err, said.err
        assert [line["epoch"] for line in records(run)] == [1, 2]
        assert all(tensor.isfinite().all() for tensor in weights(run).values())
        assert batchgnn("evaluate", run) == 0


def test_evaluation_and_prediction_of_weights_that_overflow(
    graph_folder: Path, tmp_path: Path, capsys: Any
) -> None:
    run, out = tmp_path / "run", tmp_path / "metrics.json"
    assert batchgnn(*train(graph_folder, run, "--epochs", 1)) == 0
    path = RunFolder(run).checkpoint
    checkpoint = Checkpoint.load(path)
    huge = {name: value * 1e39 for name, value in checkpoint.best.items()}
    replace(checkpoint, best=huge).save(path)
    capsys.readouterr()
    assert batchgnn("evaluate", run, "--out", out) == 2
    said = capsys.readouterr()
    assert "val: accuracy nan, macro F1 nan, loss nan" in said.out and "test: accuracy nan" in said.out
    assert "val: outputs of " in said.err and "are not finite" in said.err and said.err.count("\n") == 1
    assert json.loads(out.read_text())["scores"]["val"] == {"loss": None, "accuracy": None, "macro_f1": None}
    for more in ([], ["--exact"], ["--embeddings-of", "node"]):
        said = mistake(capsys, "predict", run, "--out", tmp_path / "predictions", *more)
        assert "rows are not finite, so nothing is written" in said
        assert not (tmp_path / "predictions").exists()


def test_patience_without_validation_nodes(small_graph: Dataset, tmp_path: Path, capsys: Any) -> None:
    splits = {name: nodes for name, nodes in small_graph.splits.items() if name != "val"}
    edges, tables = small_graph.edge_index, small_graph.nodes.tables
    graph = Dataset.homogeneous("unvalidated", small_graph.num_nodes, edges, nodes=tables, splits=splits)
    write_folder(graph, tmp_path / "graph")
    said = mistake(capsys, *train(tmp_path / "graph", tmp_path / "run", "--patience", 3))
    assert "--patience is 3, but unvalidated has no validation nodes" in said
