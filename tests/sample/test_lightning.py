"""PyG's data modules for Lightning take our samplers (``loader="custom"``)."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from pyg_batchgnn import PygLinkSampler, PygNeighborSampler
from tests.support.hetero_cases import WRITES, make_hetero
from tests.support.loader_cases import NODES, make_data

pytest.importorskip("pytorch_lightning", reason="needs pytorch-lightning")

from torch_geometric.data.lightning import LightningLinkData, LightningNodeData


def node_data(sampler: PygNeighborSampler, data: Any, **kwargs: Any) -> Any:
    """A data module with a mask for training and one for validation."""
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


def test_an_epoch_that_the_module_counts() -> None:
    data, epochs = make_data(), iter((0, 1))
    current = next(epochs)
    module = node_data(PygNeighborSampler(data, [2], epoch=lambda: current), data)
    first = [batch.e_id for batch in module.val_dataloader()]
    current = next(epochs)
    second = [batch.e_id for batch in module.val_dataloader()]
    assert any(not torch.equal(one, other) for one, other in zip(first, second, strict=True))


def test_links_of_a_typed_graph() -> None:
    data = make_hetero()
    sampler = PygLinkSampler(data, [2], exclude_existing=True)
    module = LightningLinkData(
        data,
        input_train_edges=WRITES,
        loader="custom",
        link_sampler=sampler,
        batch_size=50,
        pin_memory=False,
        neg_sampling="binary",
    )
    batches = list(module.train_dataloader())
    assert sum(batch[WRITES].input_id.numel() for batch in batches) == data[WRITES].num_edges
    known = set(map(tuple, data[WRITES].edge_index.t().tolist()))
    for batch in batches:
        source, target = batch[WRITES].edge_label_index[:, batch[WRITES].edge_label == 0]
        pairs = torch.stack([batch["author"].n_id[source], batch["paper"].n_id[target]])
        assert pairs.numel() and not known & set(map(tuple, pairs.t().tolist()))
