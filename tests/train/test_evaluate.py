"""Sampled inference sees each node once and always gives the same numbers."""

from __future__ import annotations

from dataclasses import replace

import torch

from pyg_batchgnn.data import Dataset
from pyg_batchgnn.train.config import ModelConfig, RunConfig, SamplingConfig, TrainConfig
from pyg_batchgnn.train.evaluate import evaluate, infer
from pyg_batchgnn.train.graphs import WholeGraph
from pyg_batchgnn.train.job import TrainingJob
from pyg_batchgnn.train.ranks import Ranks
from pyg_batchgnn.train.tasks import Evaluation
from tests.support.training_runs import job_alone


def _config(**sampling: object) -> TrainConfig:
    return TrainConfig(
        model=ModelConfig(num_layers=2, hidden=16),
        sampling=replace(SamplingConfig(fanout=(4, 3), test_fanout=(5, 5), batch_size=64), **sampling),  # type: ignore[arg-type]
        run=RunConfig(threads=1),
    )


def _evaluation(job: TrainingJob, stop: bool = False) -> Evaluation | None:
    ranks = Ranks.join(job.config.ranks)
    return evaluate(job.network, job.val.loader, job.graph, job.task, ranks, lambda: stop)


def test_each_node_once_in_order(small_graph: Dataset) -> None:
    job = job_alone(_config(), small_graph)
    seen = [job.network.seeds(batch) for batch, _ in infer(job.network, job.val.loader)]
    assert torch.equal(torch.cat(seen), small_graph.split("val"))


def test_equal_weights_give_equal_metrics(small_graph: Dataset) -> None:
    job = job_alone(_config(), small_graph)
    other = job_alone(_config(macrobatch_size=2, prefetch=1), small_graph)
    expected = _evaluation(job)
    assert expected is not None and expected.scores.keys() == set(job.task.metrics)
    assert [_evaluation(job), _evaluation(other)] == [expected, expected]


def test_full_fanout_equals_the_whole_graph(small_graph: Dataset) -> None:
    job = job_alone(_config(test_fanout=(-1, -1)), small_graph)
    data = small_graph.to_pyg()
    whole = job.network.model.eval()(data.x, data.edge_index)
    sampled = torch.cat([output.logits for _, output in infer(job.network, job.test.loader)])
    torch.testing.assert_close(sampled, whole[small_graph.split("test")], atol=1e-5, rtol=1e-4)


def test_training_mode_is_put_back_and_stopping_gives_none(small_graph: Dataset) -> None:
    job = job_alone(_config(), small_graph)
    job.network.model.train()
    assert _evaluation(job, stop=True) is None
    assert job.network.model.training


def test_no_nodes_give_no_metrics(small_graph: Dataset) -> None:
    config = _config()
    job, nothing = job_alone(config, small_graph), torch.empty(0, dtype=torch.int64)
    loader = WholeGraph.of(small_graph, config).evaluation_loader(nothing)
    assert evaluate(job.network, loader, job.graph, job.task, Ranks.join(config.ranks)) is None
