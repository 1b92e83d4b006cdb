"""PyG's data modules for Lightning take our samplers (``loader="custom"``)."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.data.lightning import LightningNodeData
from torch_geometric.sampler import NodeSamplerInput

from pyg_batchgnn import PygNeighborSampler
from tests.support.loader_cases import NODES, make_data

pytorch_lightning = pytest.importorskip("lightning.pytorch", reason="needs lightning")


def node_data(sampler: PygNeighborSampler, data: Any, **kwargs: Any) -> Any:
    chosen = {"batch_size": 20, "pin_memory": False, "node_sampler": sampler, **kwargs}
    train = torch.arange(NODES) % 2 == 0
    return LightningNodeData(data, input_train_nodes=train, input_val_nodes=~train, loader="custom", **chosen)


def test_nodes_with_other_fanouts_in_validation() -> None:
    data = make_data()
    sampler = PygNeighborSampler(data, [3, 2], seed=4)
    module = node_data(sampler, data, eval_loader_kwargs={"num_neighbors": [-1]})
    assert sum(batch.batch_size for batch in module.train_dataloader()) == NODES // 2
    assert {len(batch.num_sampled_edges) for batch in module.train_dataloader()} == {2}
    for batch in module.val_dataloader():
        assert len(batch.num_sampled_edges) == 1
        seeds = batch.n_id[: batch.batch_size]
        assert batch.num_edges == torch.isin(data.edge_index[1], seeds).sum()
    assert sampler.num_neighbors.values == [3, 2]


class Recorder(pytorch_lightning.LightningModule):
    """A model that records its batches with their epochs."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
        self.batches: list[tuple[int, Data]] = []

    def training_step(self, batch: Data) -> Tensor:
        self.batches.append((self.current_epoch, batch))
        return self.layer(batch.x).square().mean()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), 1e-9)


def test_a_trainer_counts_the_epochs() -> None:
    data, model = make_data(), Recorder()
    quiet = ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")
    trainer = pytorch_lightning.Trainer(
        max_epochs=2, accelerator="cpu", limit_val_batches=0, **dict.fromkeys(quiet, False)
    )
    sampler = PygNeighborSampler(data, [2], epoch=lambda: trainer.current_epoch)
    trainer.fit(model, node_data(sampler, data))
    alone = PygNeighborSampler(data, [2])
    assert [epoch for epoch, _ in model.batches] == [0] * 8 + [1] * 8
    for epoch, batch in model.batches:
        alone.epoch = epoch
        seeds = NodeSamplerInput(None, batch.n_id[: batch.batch_size])
        assert torch.equal(batch.e_id, alone.sample_from_nodes(seeds).edge)
