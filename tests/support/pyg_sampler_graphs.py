"""Small graphs for samplers of nodes and links, and the comparison of their batches."""

from __future__ import annotations

import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData

USERS, ITEMS = 30, 20
BUYS, BACK = ("user", "buys", "item"), ("item", "rev_buys", "user")


def random_edges(sources: int, targets: int, count: int) -> Tensor:
    """Returns edges [2, count]."""
    generator = torch.Generator().manual_seed(count)
    return torch.stack([torch.randint(size, (count,), generator=generator) for size in (sources, targets)])


def plain() -> Data:
    """Returns a graph with times and weights of edges."""
    edges = random_edges(USERS, USERS, 200)
    return Data(x=torch.rand(USERS, 2), edge_index=edges, stamp=torch.arange(200) % 9, weight=torch.rand(200))


def typed() -> HeteroData:
    """Returns users who buy items."""
    data = HeteroData()
    data["user"].x, data["item"].x = torch.rand(USERS, 2), torch.rand(ITEMS, 2)
    data[BUYS].edge_index = random_edges(USERS, ITEMS, 120)
    data[BACK].edge_index = data[BUYS].edge_index.flip(0)
    return data
