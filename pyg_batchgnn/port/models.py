"""The models of PyG that `accelerate` makes native."""

from __future__ import annotations

import torch_geometric.nn

from pyg_batchgnn.port.accelerated_model import AcceleratedModel


class AcceleratedGraphSAGE(AcceleratedModel, torch_geometric.nn.GraphSAGE):
    """PyG's `GraphSAGE` on native layers."""

    stands_for = torch_geometric.nn.GraphSAGE


class AcceleratedGCN(AcceleratedModel, torch_geometric.nn.GCN):
    """PyG's `GCN` on native layers."""

    stands_for = torch_geometric.nn.GCN


class AcceleratedGIN(AcceleratedModel, torch_geometric.nn.GIN):
    """PyG's `GIN` on native layers."""

    stands_for = torch_geometric.nn.GIN


class AcceleratedGAT(AcceleratedModel, torch_geometric.nn.GAT):
    """PyG's `GAT` on native layers."""

    stands_for = torch_geometric.nn.GAT
