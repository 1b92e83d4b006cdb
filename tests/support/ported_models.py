"""PyG models, accelerated copies of them, and batches to compare them on."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch_geometric.nn as pyg
from torch import Tensor
from torch_geometric.data import Data

from pyg_batchgnn import MacrobatchNeighborLoader, Minibatch, ops
from pyg_batchgnn.port import AccelerationReport, accelerate

FEATURES, HIDDEN, CLASSES = 6, 8, 5


def make_graph() -> Data:
    """A graph with self loops, parallel edges and isolated nodes, edge weights and features."""
    draw = torch.Generator().manual_seed(0)
    edges = torch.randint(180, (2, 1500), generator=draw)
    edges = torch.cat([edges, edges[:, :50], torch.arange(20).expand(2, 20)], dim=1)
    return Data(
        x=torch.randn(200, FEATURES, generator=draw, dtype=torch.float64),
        edge_index=edges,
        edge_weight=torch.rand(edges.size(1), generator=draw, dtype=torch.float64),
        edge_attr=torch.randn(edges.size(1), 3, generator=draw, dtype=torch.float64),
    )


GRAPH = make_graph()
SEEDS = torch.tensor([3, 1, 4, 15, 92, 199, 65, 35])


def loader_of(fanouts: list[int], dtype: torch.dtype, **options: Any) -> MacrobatchNeighborLoader:
    data = GRAPH.clone()
    for name in ("x", "edge_weight", "edge_attr"):
        data[name] = data[name].to(dtype)
    return MacrobatchNeighborLoader(data, fanouts, SEEDS, batch_size=8, seed=5, **options)


def batch_of(layers: int, dtype: torch.dtype = torch.float64, **options: Any) -> Data:
    (batch,) = loader_of([4, 3, 2][:layers], dtype, **options)
    return batch


def minibatch_of(layers: int, dtype: torch.dtype = torch.float64, **rules: Any) -> Minibatch:
    (minibatch,) = loader_of([4, 3, 2][:layers], dtype, export="native", **rules)
    return minibatch


def model_of(kind: Callable[..., torch.nn.Module], layers: int, **options: Any) -> torch.nn.Module:
    torch.manual_seed(3)
    return stirred(kind(FEATURES, HIDDEN, layers, CLASSES, **options).double())


def stirred(model: torch.nn.Module) -> torch.nn.Module:
    draw = torch.Generator().manual_seed(1)
    for parameter in model.parameters():
        if parameter.dim() == 1:
            parameter.data.uniform_(0.2, 0.8, generator=draw)
    for name, buffer in model.named_buffers():
        if name.endswith("running_mean"):
            buffer.normal_(generator=draw)
        if name.endswith("running_var"):
            buffer.uniform_(0.5, 2.0, generator=draw)
    return model


def accelerated(model: torch.nn.Module, dtype: torch.dtype = torch.float64) -> torch.nn.Module:
    return accelerate(copy.deepcopy(model).to(dtype))


def report_of(model: torch.nn.Module) -> AccelerationReport:
    found: list[AccelerationReport] = []
    accelerate(model, found.append)
    return found[0]


def trimming(batch: Data) -> dict[str, Any]:
    return {
        "num_sampled_nodes_per_hop": batch.num_sampled_nodes,
        "num_sampled_edges_per_hop": batch.num_sampled_edges,
    }


def results(model: torch.nn.Module, out: Tensor, *inputs: Tensor) -> dict[str, Tensor]:
    weights = torch.linspace(0.1, 1.0, out.numel(), dtype=out.dtype).view_as(out)
    leaves = {name: one for name, one in model.named_parameters() if one.requires_grad}
    leaves |= {f"input {i}": one for i, one in enumerate(inputs)}
    grads = torch.autograd.grad(
        (out * weights).sum(), list(leaves.values()), allow_unused=True, materialize_grads=True
    )
    return {"output": out.detach(), **dict(zip(leaves, grads, strict=True))}


def assert_same(found: dict[str, Tensor], wanted: dict[str, Tensor], tolerance: float) -> None:
    assert list(found) == list(wanted)
    least = max(float(value.abs().max()) for value in wanted.values() if value.numel()) / 10
    for name, value in wanted.items():
        assert found[name].shape == value.shape, name
        error = (found[name].double() - value.double()).abs().max() if value.numel() else torch.zeros(())
        assert float(error) <= tolerance * max(float(value.abs().max()), least), (name, float(error))


#: PyG's models with the options that change what follows a layer.
MODELS: dict[str, Callable[[int], torch.nn.Module]] = {
    "sage": lambda layers: model_of(pyg.GraphSAGE, layers),
    "gcn": lambda layers: model_of(pyg.GCN, layers),
    "gin": lambda layers: model_of(pyg.GIN, layers, train_eps=True),
    "gat": lambda layers: model_of(pyg.GAT, layers, heads=1, residual=True),
    **{
        f"sage, {aggr}, projected": partial(model_of, pyg.GraphSAGE, aggr=aggr, project=True)
        for aggr in ops.REDUCTIONS
        if aggr not in ops.SUMS
    },
    "sage, batch norm": lambda layers: model_of(pyg.GraphSAGE, layers, norm="batch_norm"),
    "gin, batch norm": lambda layers: model_of(pyg.GIN, layers, norm="batch_norm"),
    "gcn, act first": lambda layers: model_of(pyg.GCN, layers, norm="batch_norm", act_first=True),
    "gcn, no loops": lambda layers: model_of(pyg.GCN, layers, add_self_loops=False),
    "gat, elu": lambda layers: model_of(pyg.GAT, layers, act="elu", act_first=True),
    "sage, no act, last": lambda layers: model_of(pyg.GraphSAGE, layers, act=None, jk="last"),
    "gat, layer norm": lambda layers: model_of(pyg.GAT, layers, norm="layer_norm"),
    "gatv2": lambda layers: model_of(pyg.GAT, layers, v2=True, heads=1, residual=True),
    "sage, norm and softmax of a row": lambda layers: model_of(
        pyg.GraphSAGE, layers, norm="layer_norm", norm_kwargs={"mode": "node"}, act=torch.nn.Softmax(-1)
    ),
}
#: Those whose layers cannot have different numbers of rows.
KNOWLEDGE: dict[str, Callable[[int], torch.nn.Module]] = {
    "gcn, max": lambda layers: model_of(pyg.GCN, layers, jk="max"),
    "gin, cat": lambda layers: model_of(pyg.GIN, layers, jk="cat"),
}
