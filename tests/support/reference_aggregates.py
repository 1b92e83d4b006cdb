"""Aggregations of a whole graph by PyG, and graphs to make them of."""

from __future__ import annotations

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.nn import SimpleConv
from torch_geometric.nn.conv.gcn_conv import gcn_norm

KINDS = ("mean", "sum", "symmetric")


def by_pyg(kind: str, data: Data) -> Tensor:
    """[N, F] in float64."""
    x, nodes = data.x.double(), data.num_nodes
    if kind != "symmetric":
        return SimpleConv(aggr=kind)(x, data.edge_index)
    edges, weight = gcn_norm(data.edge_index, None, nodes, dtype=torch.float64)
    return SimpleConv(aggr="sum")(x, edges, weight)


def with_loops(data: Data) -> Data:
    """The graph with self loops at some nodes, twice at one, among its edges."""
    loops = torch.arange(0, data.num_nodes, 7)
    edges = torch.cat([data.edge_index, loops.expand(2, -1), loops[:1].expand(2, -1)], dim=1)
    return Data(x=data.x, edge_index=edges, y=data.y, train_mask=data.train_mask)


def close(found: Tensor, kind: str, data: Data, nodes: Tensor | slice = slice(None)) -> bool:
    """Returns whether aggregates are PyG's up to rounding: of as large numbers as are added, in the
    type that aggregates are held in.
    """
    wanted, magnitude = by_pyg(kind, data)[nodes], by_pyg(kind, Data(data.x.abs(), data.edge_index))[nodes]
    bound = 4 * torch.finfo(found.dtype).eps * magnitude.amax() if magnitude.numel() else torch.tensor(0.0)
    return found.shape == wanted.shape and bool(((found.double() - wanted).abs() <= bound).all())
