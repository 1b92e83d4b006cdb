"""A typed graph, loaders of its links, and the comparison of their minibatches."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import HeteroData

from pyg_batchgnn import MacrobatchLinkNeighborLoader

USERS, ITEMS, SHOPS = 40, 30, 5
BUYS, BACK = ("user", "buys", "item"), ("item", "rev_buys", "user")
KNOWS, SELLS = ("user", "knows", "user"), ("shop", "sells", "item")


def make_hetero() -> HeteroData:
    """Returns users who know each other and buy items, which shops sell."""
    generator = torch.Generator().manual_seed(4)

    def edges(sources: int, targets: int, count: int) -> Tensor:
        ends = [torch.randint(size, (count,), generator=generator) for size in (sources, targets)]
        return torch.stack(ends)

    data = HeteroData()
    for name, count in (("user", USERS), ("item", ITEMS), ("shop", SHOPS)):
        data[name].x = torch.arange(count * 2.0).view(count, 2)
        data[name].time = torch.randint(10, (count,), generator=generator)
    data[BUYS].edge_index = edges(USERS, ITEMS, 160)
    data[BACK].edge_index = data[BUYS].edge_index.flip(0)
    data[KNOWS].edge_index = edges(USERS, USERS, 120)
    data[SELLS].edge_index = edges(SHOPS, ITEMS, 60)
    for relation in data.edge_types:
        count = data[relation].num_edges
        data[relation].edge_attr = torch.arange(float(count))
        data[relation].stamp = torch.randint(10, (count,), generator=generator)
    return data


DATA = make_hetero()


def make_links(data: Any = DATA, index: Any = BUYS, **kwargs: Any) -> MacrobatchLinkNeighborLoader:
    chosen = {"batch_size": 24, "seed": 7, "macrobatch_size": 3, "fetch_size": 2, **kwargs}
    fanouts = chosen.pop("num_neighbors", [4, 3])
    return MacrobatchLinkNeighborLoader(data, fanouts, index, **chosen)


def times_of(count: int) -> Tensor:
    return torch.arange(count) % 7 + 3
