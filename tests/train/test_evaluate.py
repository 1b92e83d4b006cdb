"""Sampled inference sees each node once and always gives the same numbers."""

from __future__ import annotations

import torch

from pyg_batchgnn.data import Dataset
from pyg_batchgnn.train.config import ModelConfig, RunConfig, SamplingConfig, TrainConfig
from pyg_batchgnn.train.evaluate import accuracy, infer
from pyg_batchgnn.train.job import build_job


def _config(**sampling: object) -> TrainConfig:
    return TrainConfig(
        model=ModelConfig(layers=2, hidden=16),
        sampling=SamplingConfig(fanout=(4, 3), test_fanout=(5, 5), batch_size=64, **sampling),  # type: ignore[arg-type]
        run=RunConfig(threads=1),
    )


def test_each_node_once_in_order(small_graph: Dataset) -> None:
    job = build_job(_config(), small_graph)
    seen = [batch.n_id[: batch.batch_size] for batch, _ in infer(job.model, job.val_loader)]
    assert torch.equal(torch.cat(seen), small_graph.val_idx)


def test_equal_weights_give_equal_accuracy(small_graph: Dataset) -> None:
    job = build_job(_config(), small_graph)
    other = build_job(_config(macrobatch_size=2, prefetch=1), small_graph)
    values = {accuracy(job.model, job.val_loader) for _ in range(3)}
    values.add(accuracy(other.model, other.val_loader))
    assert len(values) == 1


def test_full_fanout_equals_the_whole_graph(small_graph: Dataset) -> None:
    job = build_job(
        TrainConfig(
            model=ModelConfig(layers=2, hidden=16),
            sampling=SamplingConfig(fanout=(4, 3), test_fanout=(-1, -1), batch_size=64),
            run=RunConfig(threads=1),
        ),
        small_graph,
    )
    data = small_graph.to_pyg()
    whole = job.model.eval()(data.x, data.edge_index)
    sampled = torch.cat([output.logits for _, output in infer(job.model, job.test_loader)])
    torch.testing.assert_close(sampled, whole[small_graph.test_idx], atol=1e-5, rtol=1e-4)


def test_training_mode_is_put_back_and_stopping_gives_none(small_graph: Dataset) -> None:
    job = build_job(_config(), small_graph)
    job.model.train()
    assert accuracy(job.model, job.val_loader, stop=True) is None
    assert job.model.training


def test_no_nodes_give_no_accuracy(small_graph: Dataset) -> None:
    from pyg_batchgnn.train.loaders import SampledGraph, evaluation_loader

    job = build_job(_config(), small_graph)
    nothing = torch.empty(0, dtype=torch.int64)
    assert accuracy(job.model, evaluation_loader(_config(), SampledGraph.of(small_graph), nothing)) is None
