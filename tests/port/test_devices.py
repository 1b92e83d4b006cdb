"""Accelerated models and native layers on other devices: PyG's code, or a sentence.

The device is "meta" here, and a GPU where there is one.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData
from torch_geometric.nn import BatchNorm, GraphSAGE, SAGEConv

from pyg_batchgnn import accelerate, nn

DEVICES = ["meta", *(["cuda"] if torch.cuda.is_available() else [])]


def batch_on(device: str) -> Data:
    generator = torch.Generator().manual_seed(0)
    target, _ = torch.randint(6, (20,), generator=generator).sort()
    data = Data(x=torch.randn(10, 8), edge_index=torch.stack([torch.arange(20) % 10, target]))
    data.num_sampled_nodes, data.num_sampled_edges, data.batch_size = [3, 3, 4], [10, 10], 3
    return data.to(device)


class Own(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.second = SAGEConv(8, 16), BatchNorm(16), SAGEConv(16, 4)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        out: Tensor = self.second(self.first(x, edge_index).relu(), edge_index)
        return out


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("make", [Own, lambda: GraphSAGE(8, 16, 2, out_channels=4)], ids=["own", "SAGE"])
def test_accelerated_models_compute_by_pygs_code(make: Any, device: str) -> None:
    plain = make().eval()
    model = accelerate(make()).eval()
    model.load_state_dict(plain.state_dict())
    plain, model, batch = plain.to(device), model.to(device), batch_on(device)
    out, right = model(batch.x, batch.edge_index), plain(batch.x, batch.edge_index)
    assert out.device == right.device and out.shape == right.shape
    assert device == "meta" or torch.equal(out, right)
    with pytest.raises(
        TypeError, match=rf"the batch is on {device}.*call model\(batch.x, batch.edge_index\)"
    ):
        model(batch)


def test_a_typed_batch_is_refused() -> None:
    batch = HeteroData()
    batch["a"].x = torch.randn(3, 2, device="meta")
    batch["a", "to", "a"].edge_index = torch.zeros(2, 3, dtype=torch.int64, device="meta")

    class Typed(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = SAGEConv(2, 2)

        def forward(self, x_dict: Any, edge_index_dict: Any) -> Any:
            return {name: self.conv(x, edge_index_dict["a", "to", "a"]) for name, x in x_dict.items()}

    with pytest.raises(TypeError, match=r"call model\(batch.x_dict, batch.edge_index_dict\)"):
        accelerate(Typed())(batch)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", ["SAGEConv", "GCNConv", "GATConv"])
def test_native_layers_refuse(name: str, device: str) -> None:
    batch = batch_on(device)
    layer = getattr(nn, name)(8, 4).to(device)
    with pytest.raises(ValueError, match=r"on the CPU|CPU tensors"):
        layer(batch.x, batch.edge_index)
