"""Models of the shapes that PyG's examples with neighbour loaders have, and graphs for them."""

from __future__ import annotations

import sys
import warnings
from functools import cache
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
import torch_geometric.nn as pyg
from torch import Tensor
from torch_geometric.data import HeteroData
from torch_geometric.utils import trim_to_layer

from pyg_batchgnn import MacrobatchLinkNeighborLoader, MacrobatchNeighborLoader

Module = torch.nn.Module
IN, HIDDEN, OUT = 6, 8, 4


class Encoder(Module):
    def __init__(self) -> None:
        super().__init__()
        self.convs = torch.nn.ModuleList(pyg.SAGEConv(n, HIDDEN) for n in (IN, HIDDEN, HIDDEN))
        self.activations = torch.nn.ModuleList(torch.nn.PReLU(HIDDEN) for _ in range(3))

    def forward(self, x: Tensor, edge_index: Tensor, batch_size: int) -> Tensor:
        for conv, activation in zip(self.convs, self.activations, strict=True):
            x = activation(conv(x, edge_index))
        return x[:batch_size]


USER, ITEM = "user", "item"
TO, BACK, AMONG = (USER, "to", ITEM), (ITEM, "rev_to", USER), (ITEM, "to", ITEM)
RELATIONS = (TO, BACK, AMONG)


@cache
def shop() -> HeteroData:
    """Users and items, what users took, and which items go together; all with times."""
    data, draw = HeteroData(), torch.Generator().manual_seed(2)
    counts = {USER: 60, ITEM: 80}
    for name, count in counts.items():
        data[name].x = torch.randn(count, IN, generator=draw, dtype=torch.float64)
        data[name].number = torch.arange(count)
        data[name].time = torch.randint(50, (count,), generator=draw)
    for source, name, target in RELATIONS:
        ends = [torch.randint(counts[one], (500,), generator=draw) for one in (source, target)]
        data[source, name, target].edge_index = torch.stack(ends)
    return data


def typed_batches(seeds: str = ITEM, **options: Any) -> list[Any]:
    loader = MacrobatchNeighborLoader(
        shop(), [4, 3], (seeds, torch.arange(24)), batch_size=9, seed=1, **options
    )
    return list(loader)


def timed_batches() -> list[Any]:
    return typed_batches(
        input_time=torch.arange(50, 74), time_attr="time", disjoint=True, temporal_strategy="uniform"
    )


@cache
def link_batches() -> list[Any]:
    loader = MacrobatchLinkNeighborLoader(
        shop(), [4, 3], edge_label_index=(TO, shop()[TO].edge_index[:, :30]), batch_size=12, seed=3,
        neg_sampling="binary",
    )  # fmt: skip
    return list(loader)


class Stack(Module):
    """A model that is made typed: two convolutions with a ReLU between them."""

    def __init__(self, last: bool = False) -> None:
        super().__init__()
        self.first, self.second = pyg.SAGEConv((-1, -1), HIDDEN), pyg.SAGEConv((-1, -1), HIDDEN)
        self.drop, self.lin = torch.nn.Dropout(p=0.0), pyg.Linear(-1, OUT) if last else None

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = self.drop(self.first(x, edge_index).relu())
        x = self.second(x, edge_index).relu()
        return x if self.lin is None else self.lin(x)


class Pair(Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(2 * HIDDEN, HIDDEN), torch.nn.Linear(HIDDEN, 1)

    def forward(self, source: Tensor, target: Tensor, edge_label_index: Tensor) -> Tensor:
        row, col = edge_label_index
        joined = torch.cat([source[row], target[col]], dim=-1)
        return self.second(self.first(joined).relu()).view(-1)


class Bipartite(Module):
    """Encoders of different depth for users and items, of rows that are written into the dict."""

    def __init__(self) -> None:
        super().__init__()
        self.user_table, self.item_table = torch.nn.Embedding(60, IN), torch.nn.Embedding(80, IN)
        self.items = torch.nn.ModuleList([pyg.SAGEConv(IN, HIDDEN), pyg.SAGEConv(HIDDEN, HIDDEN)])
        self.users = torch.nn.ModuleList([
            pyg.SAGEConv(IN, HIDDEN), pyg.SAGEConv((IN, IN), HIDDEN), pyg.SAGEConv((HIDDEN, HIDDEN), HIDDEN)
        ])  # fmt: skip
        self.lins = torch.nn.ModuleList([torch.nn.Linear(HIDDEN, HIDDEN), torch.nn.Linear(HIDDEN, HIDDEN)])
        self.decoder = Pair()

    def forward(
        self, number_dict: dict[str, Tensor], edge_index_dict: Any, edge_label_index: Tensor
    ) -> Tensor:
        found: dict[str, Tensor] = {}
        number_dict[USER] = self.user_table(number_dict[USER])
        number_dict[ITEM] = self.item_table(number_dict[ITEM])
        user, item = number_dict[USER], number_dict[ITEM]
        among, back = edge_index_dict[AMONG], edge_index_dict[BACK]
        near = self.users[0](item, among).relu()
        user = self.users[1]((item, user), back).relu()
        found[USER] = self.lins[0](self.users[2]((near, user), back).relu())
        for conv in self.items:
            item = conv(item, among).relu()
        found[ITEM] = self.lins[1](item)
        return self.decoder(found[USER], found[ITEM], edge_label_index)


class Recommender(Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = to_hetero(Stack())

    def forward(self, x_dict: Any, edge_index_dict: Any, edge_label_index: Tensor) -> Tensor:
        rows = self.encoder(x_dict, edge_index_dict)
        source, target = rows[USER][edge_label_index[0]], rows[ITEM][edge_label_index[1]]
        return (source * target).sum(dim=-1)


class Hierarchical(Module):
    def __init__(self) -> None:
        super().__init__()
        self.convs = torch.nn.ModuleList(
            pyg.HeteroConv({one: pyg.SAGEConv((-1, -1), HIDDEN) for one in RELATIONS}) for _ in range(2)
        )
        self.lin = torch.nn.Linear(HIDDEN, OUT)

    def forward(
        self, x_dict: Any, edge_index_dict: Any, num_sampled_edges_dict: Any, num_sampled_nodes_dict: Any
    ) -> Tensor:
        for layer, conv in enumerate(self.convs):
            x_dict, edge_index_dict, _ = trim_to_layer(
                layer, num_sampled_nodes_dict, num_sampled_edges_dict, x_dict, edge_index_dict
            )
            x_dict = {name: x.relu() for name, x in conv(x_dict, edge_index_dict).items()}
        return self.lin(x_dict[ITEM])


class Tabular(Module):
    """Tables of rows by type with times beside them, cut by the times of the seeds."""

    def __init__(self) -> None:
        super().__init__()
        self.encoders = torch.nn.ModuleDict({name: Columns() for name in (USER, ITEM)})
        self.positions = torch.nn.ModuleDict({name: pyg.PositionalEncoding(HIDDEN) for name in (USER, ITEM)})
        self.lins = torch.nn.ModuleDict({name: torch.nn.Linear(HIDDEN, HIDDEN) for name in (USER, ITEM)})
        self.convs = torch.nn.ModuleList(
            pyg.HeteroConv({one: pyg.SAGEConv((HIDDEN, HIDDEN), HIDDEN) for one in RELATIONS})
            for _ in range(2)
        )
        self.norms = torch.nn.ModuleList(
            torch.nn.ModuleDict({name: pyg.LayerNorm(HIDDEN, mode="node") for name in (USER, ITEM)})
            for _ in range(2)
        )
        self.head = pyg.MLP(HIDDEN, out_channels=OUT, norm="batch_norm", num_layers=1)

    def forward(self, batch: HeteroData, entity: str) -> Tensor:
        seed_time = batch[entity].seed_time
        x_dict = {name: self.encoders[name](table) for name, table in batch.tf_dict.items()}
        for name, time in batch.time_dict.items():
            since = (seed_time[batch[name].batch] - time) / 24
            x_dict[name] = x_dict[name] + self.lins[name](self.positions[name](since))
        for conv, norms in zip(self.convs, self.norms, strict=True):
            x_dict = {name: norms[name](x).relu() for name, x in conv(x_dict, batch.edge_index_dict).items()}
        return self.head(x_dict[entity][: seed_time.size(0)])


class Columns(Module):
    def __init__(self) -> None:
        super().__init__()
        self.lin, self.norm = torch.nn.Linear(IN, HIDDEN), torch.nn.LayerNorm(HIDDEN)

    def forward(self, table: Any) -> Tensor:
        return self.norm(torch.einsum("ij,kj->ik", table.columns["numbers"], self.lin.weight))


def with_tables() -> list[Any]:
    found = timed_batches()
    for batch in found:
        for name in (USER, ITEM):
            batch[name].tf = SimpleNamespace(columns={"numbers": batch[name].x.clone()}, names=["a"])
            batch[name].num_nodes = batch[name].x.size(0)
    return found


def to_hetero(model: Module) -> Module:
    data = shop()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pyg.to_hetero(model, data.metadata())


def sequential() -> Module:
    layers = [
        (pyg.SAGEConv((-1, -1), HIDDEN), "x, edge_index -> x"),
        torch.nn.ReLU(inplace=True),
        (pyg.SAGEConv((-1, -1), HIDDEN), "x, edge_index -> x"),
        torch.nn.ReLU(inplace=True),
        (pyg.Linear(-1, OUT), "x -> x"),
    ]
    # PyG imports the module that makes a `Sequential` by the name of its file.
    with mock.patch.dict(sys.modules, {"example_models": sys.modules[__name__]}):
        return to_hetero(pyg.Sequential("x, edge_index", layers))
