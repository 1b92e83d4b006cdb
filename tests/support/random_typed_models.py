"""Typed models that users could have written, random ones among them, and graphs for them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import hypothesis.strategies as st
import torch
import torch.nn.functional as F
import torch_geometric.nn as pyg
from torch import Tensor
from torch_geometric.data import HeteroData

from pyg_batchgnn import MacrobatchNeighborLoader
from tests.support.random_models import EDGE_FEATURES, FEATURES, WIDTH
from tests.support.typed_graphs import TypedCase

TYPED_CONVS: dict[str, Callable[[int, int, bool], torch.nn.Module]] = {
    "sage": lambda a, b, _: pyg.SAGEConv((a, b), WIDTH),
    "sage, max": lambda a, b, _: pyg.SAGEConv((a, b), WIDTH, aggr="max"),
    "gat": lambda a, b, _: pyg.GATConv((a, b), WIDTH, add_self_loops=False),
    "gatv2": lambda a, b, _: pyg.GATv2Conv((a, b), WIDTH, add_self_loops=False),
    "gcn": lambda a, b, same: pyg.GCNConv(a, WIDTH) if same else pyg.SAGEConv((a, b), WIDTH),
    "graph": lambda a, b, _: pyg.GraphConv((a, b), WIDTH),
    "mixed": lambda a, b, same: pyg.GCNConv(a, WIDTH) if same else pyg.GraphConv((a, b), WIDTH),
    "attentive": lambda a, b, same: (
        pyg.GATConv((a, b), WIDTH, add_self_loops=False) if same else pyg.TransformerConv((a, b), WIDTH)
    ),
}


@dataclass(frozen=True)
class TypedPlan:
    layers: tuple[tuple[str, str, str, bool], ...]
    output: str


@st.composite
def typed_plans(draw: st.DrawFn) -> TypedPlan:
    layer = st.tuples(
        st.sampled_from(list(TYPED_CONVS)),
        st.sampled_from(["sum", "sum", "mean", "max", "cat"]),
        st.sampled_from(["none", "layer", "relu", "drop"]),
        st.booleans(),
    )
    return TypedPlan(
        tuple(draw(st.lists(layer, min_size=1, max_size=3))), draw(st.sampled_from(["one", "all", "tuple"]))
    )


class TypedModel(torch.nn.Module):
    def __init__(self, plan: TypedPlan, data: HeteroData, seeds: str) -> None:
        super().__init__()
        self.plan, self.seeds = plan, seeds
        widths = {name: data[name].x.size(1) for name in data.node_types}
        self.convs, self.skips = torch.nn.ModuleList(), torch.nn.ModuleList()
        self.norms = torch.nn.ModuleList()
        for kind, aggr, after, _ in plan.layers:
            convs = {
                one: TYPED_CONVS[kind](widths[one[0]], widths[one[2]], one[0] == one[2])
                for one in data.edge_types
            }
            self.convs.append(pyg.HeteroConv(convs, aggr))
            into = {name: [one for one in data.edge_types if one[2] == name] for name in data.node_types}
            wide = {name: WIDTH * (len(into[name]) if aggr == "cat" else 1) for name in widths}
            wide = {name: wide[name] if into[name] else WIDTH for name in widths}
            self.skips.append(
                torch.nn.ModuleDict({name: torch.nn.Linear(widths[name], wide[name]) for name in widths})
            )
            norms = {name: torch.nn.LayerNorm(wide[name]) for name in widths} if after == "layer" else {}
            self.norms.append(torch.nn.ModuleDict(norms))
            widths = wide
        self.lin = torch.nn.Linear(widths[seeds], 3)

    def forward(self, x_dict: dict[str, Tensor], edge_index_dict: dict[Any, Tensor]) -> Any:
        for number, (_, _, after, skips) in enumerate(self.plan.layers):
            found = self.convs[number](x_dict, edge_index_dict)
            for name, x in x_dict.items():
                if name not in found or skips:
                    more = self.skips[number][name](x)
                    found[name] = found[name] + more if name in found else more
            if after == "layer":
                found = {name: self.norms[number][name](x).relu() for name, x in found.items()}
            elif after == "relu":
                for name, x in found.items():
                    found[name] = F.relu(x, inplace=True)
            elif after == "drop":
                found = {name: F.dropout(x.tanh(), 0.0, self.training) for name, x in found.items()}
            x_dict = found
        rows = self.lin(x_dict[self.seeds])
        return rows if self.plan.output == "one" else x_dict if self.plan.output == "all" else (rows, x_dict)


def data_of(case: TypedCase) -> HeteroData:
    data, draw = HeteroData(), torch.Generator().manual_seed(1)
    for place, (name, count) in enumerate(case.num_nodes.items()):
        data[name].x = torch.randn(count, 3 + place, generator=draw, dtype=torch.float64)
    for relation, edges in case.edge_index.items():
        data[relation].edge_index = edges.long()
    return data


def seeds_of(batch: HeteroData, tree: Any, seeds: str) -> Any:
    if isinstance(tree, tuple):
        return tuple(seeds_of(batch, one, seeds) for one in tree)
    if isinstance(tree, dict):
        return {name: one[: batch[name].num_sampled_nodes[0]] for name, one in tree.items()}
    return tree[: batch[seeds].batch_size]


A_TO_B, B_TO_A, A_TO_A = ("a", "to", "b"), ("b", "to", "a"), ("a", "in", "a")


def make_typed() -> HeteroData:
    data, draw = HeteroData(), torch.Generator().manual_seed(4)
    counts = {"a": 70, "b": 50}
    for name, count in counts.items():
        data[name].x = torch.randn(count, FEATURES, generator=draw, dtype=torch.float64)
    for source, name, target in (A_TO_B, B_TO_A, A_TO_A):
        ends = [torch.randint(counts[one] - 5, (400,), generator=draw) for one in (source, target)]
        data[source, name, target].edge_index = torch.stack(ends)
        data[source, name, target].edge_weight = torch.rand(400, generator=draw, dtype=torch.float64)
        attr = torch.randn(400, EDGE_FEATURES, generator=draw, dtype=torch.float64)
        data[source, name, target].edge_attr = attr
    return data


TYPED = make_typed()


def typed_batches(export: str = "pyg", fanouts: Sequence[int] = (4, 3), seeds: str = "a") -> list[Any]:
    loader = MacrobatchNeighborLoader(
        TYPED, list(fanouts), (seeds, torch.tensor([*range(30), 3, 3, 68, 12])), batch_size=12, seed=5,
        export=export,
    )  # fmt: skip
    return list(loader)


class Gnn(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.convs = torch.nn.ModuleList([pyg.SAGEConv((-1, -1), WIDTH), pyg.GraphConv((-1, -1), WIDTH)])
        self.norm, self.lin = torch.nn.LayerNorm(WIDTH), pyg.Linear(-1, WIDTH)
        self.drop = torch.nn.Dropout(0.0)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        first = self.lin(x)
        x = self.drop(self.norm(self.convs[0](x, edge_index) + first).relu())
        return F.dropout(self.convs[1](x, edge_index).relu(), p=0.0) + first


class ByRelation(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.convs = torch.nn.ModuleList(
            torch.nn.ModuleDict({"__".join(one): pyg.SAGEConv((n, n), WIDTH) for one in TYPED.edge_types})
            for n in (FEATURES, WIDTH)
        )
        self.act = torch.nn.ModuleDict({"a": torch.nn.PReLU(), "b": torch.nn.ReLU()})

    def forward(self, x_dict: dict[str, Tensor], edge_index_dict: dict[Any, Tensor]) -> Any:
        for convs in self.convs:
            found: dict[str, list[Tensor]] = {name: [] for name in x_dict}
            for relation, edges in edge_index_dict.items():
                source, _, target = relation
                x = (x_dict[source], x_dict[target])
                found[target].append(convs["__".join(relation)](x, edges))
            x_dict = {name: self.act[name](sum(rows)) for name, rows in found.items()}
        return x_dict["a"], {"b": x_dict["b"]}


class Weighted(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        convs = {one: pyg.GraphConv((FEATURES, FEATURES), WIDTH) for one in TYPED.edge_types}
        self.first = pyg.HeteroConv(convs)
        self.second = pyg.HeteroConv({
            one: pyg.GATConv((WIDTH, WIDTH), WIDTH, edge_dim=EDGE_FEATURES, add_self_loops=False)
            for one in TYPED.edge_types
        })  # fmt: skip

    def forward(
        self, x_dict: Any, edge_index_dict: Any, edge_weight_dict: Any = None, edge_attr_dict: Any = None
    ) -> Any:
        if edge_weight_dict is None:
            x_dict = self.first(x_dict, edge_index_dict)
        else:
            x_dict = self.first(x_dict, edge_index_dict, edge_weight_dict)
        x_dict = {name: x.relu() for name, x in x_dict.items()}
        if edge_attr_dict is None:
            return self.second(x_dict, edge_index_dict)["a"]
        return self.second(x_dict, edge_index_dict, edge_attr_dict=edge_attr_dict)["a"]


class Transformers(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = pyg.HGTConv(FEATURES, WIDTH, TYPED.metadata(), heads=2)
        self.second = pyg.HGTConv(WIDTH, WIDTH, TYPED.metadata())

    def forward(self, x_dict: Any, edge_index_dict: Any) -> Any:
        x_dict = self.first(x_dict, edge_index_dict)
        return self.second({name: x.tanh() for name, x in x_dict.items()}, edge_index_dict)


def to_hetero() -> torch.nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = pyg.to_hetero(Gnn(), TYPED.metadata()).double()
        with torch.no_grad():
            model(TYPED.x_dict, TYPED.edge_index_dict)
    return model


FORMS: dict[str, tuple[Callable[[], torch.nn.Module], bool]] = {
    "to_hetero": (to_hetero, True),
    "by relation": (ByRelation, True),
    "transformers": (Transformers, False),
    "weighted": (Weighted, True),
}
