"""The inference of all nodes of own models equals the call with the whole graph."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import pytest
import torch
import torch.nn.functional as F
import torch_geometric.nn as pyg
from hypothesis import assume, given
from torch import Tensor
from torch_geometric.data import Data, HeteroData

from pyg_batchgnn import MacrobatchNeighborLoader
from pyg_batchgnn.port import accelerate
from pyg_batchgnn.port.layerwise import inference
from tests.support.ported_models import GRAPH
from tests.support.random_models import FEATURES, WIDTH, Plan, RandomModel, plans
from tests.support.random_typed_models import FORMS, TYPED, TypedModel, TypedPlan, data_of, typed_plans
from tests.support.recorded_models import assert_close, pair
from tests.support.tiers import each, examples
from tests.support.typed_graphs import TypedCase, typed_cases

BUDGETS = (None, 20_000, 3_000)


def loader_of(data: Any, seeds: Any = None) -> MacrobatchNeighborLoader:
    return MacrobatchNeighborLoader(data, [2], seeds, batch_size=7, seed=0)


@torch.no_grad()
def check(model: torch.nn.Module, data: Data | HeteroData, budget: int | None, seeds: Any = None) -> None:
    """Fails unless all rows are those of the plain model."""
    ours, plain = pair(model.eval())
    typed = isinstance(data, HeteroData)
    given_now = (data.x_dict, data.edge_index_dict) if typed else (data.x, data.edge_index)
    ours.train()
    found, wanted = inference(ours, loader_of(data, seeds), budget), plain(*given_now)
    assert all(one.training for one in ours.modules())
    assert_close(found, wanted, 1e-9)


@examples()
@given(plans(), st.sampled_from(BUDGETS), st.integers(0, 2**31))
def test_random_models(plan: Plan, budget: int | None, seed: int) -> None:
    if "gine" in plan.convs:
        return  # it needs values of edges
    plan = Plan(plan.layers, plan.encode, plan.output, values=False)
    torch.manual_seed(seed)
    model = RandomModel(plan)
    try:
        check(model, GRAPH, budget)
    except ValueError as error:
        assert "call the model on the whole graph" in str(error)
        assert plan.looks_at_all_rows or "but RandomModel has none" in str(error)


class Skips(torch.nn.Module):
    """Several outputs, skips over several layers, two convolutions in one, and a value that no edge
    needs."""

    def __init__(self, conv: Callable[..., torch.nn.Module]) -> None:
        super().__init__()
        self.convs = torch.nn.ModuleList([conv(FEATURES, WIDTH), conv(WIDTH, WIDTH), conv(WIDTH, 3)])
        self.beside = pyg.SAGEConv(FEATURES, WIDTH)
        self.pre, self.skip, self.far = (torch.nn.Linear(FEATURES, n) for n in (FEATURES, WIDTH, 3))
        self.norm = torch.nn.BatchNorm1d(WIDTH)
        self.table = torch.nn.Parameter(torch.ones(WIDTH))

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        first = x
        x = self.pre(x).relu()
        h = F.elu(self.norm(self.convs[0](x, edge_index) + self.beside(x, edge_index) + self.skip(x)))
        z = F.dropout(self.convs[1](h, edge_index), 0.5, self.training) * torch.sigmoid(self.table) + h
        out = self.convs[2](z, edge_index) + self.far(first)
        return out, {"hidden": [h, z], "first": first * 2}, None


@each
@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("conv", [pyg.SAGEConv, pyg.GCNConv, pyg.GATConv, pyg.GraphConv, pyg.TransformerConv])
def test_skips_and_several_outputs(conv: Any, budget: int | None) -> None:
    torch.manual_seed(0)
    check(Skips(conv), GRAPH, budget)


# Types ############################################################################################


@examples()
@given(st.data(), typed_cases(), typed_plans(), st.sampled_from(BUDGETS))
def test_random_typed_models(
    data: st.DataObject, case: TypedCase, plan: TypedPlan, budget: int | None
) -> None:
    relations = [one for one in case.schema.relations if case.schema.num_types > 1]
    assume(relations)
    graph, seeds = data_of(case), data.draw(st.sampled_from([one[2] for one in relations]))
    torch.manual_seed(0)
    model = TypedModel(plan, graph, seeds)
    try:
        check(model, graph, budget, (seeds, torch.arange(case.num_nodes[seeds])))
    except ValueError as error:  # no edges lead to some type in a layer
        assert re.search("but no edges lead to .*; call the model on the whole graph", str(error))
        assert set(case.schema.node_types) > {one[2] for one in relations}


@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("name", ["to_hetero", "by relation", "weighted"])
def test_forms_of_typed_models(name: str, budget: int | None) -> None:
    torch.manual_seed(0)
    check(FORMS[name][0](), TYPED, budget, "b")


# Refused, and left to the user ####################################################################


class Between(torch.nn.Module):
    """A function between two convolutions."""

    def __init__(self, middle: Callable[[Tensor], Tensor], conv: Any = pyg.SAGEConv) -> None:
        super().__init__()
        self.first, self.second, self.middle = conv(FEATURES, WIDTH), conv(WIDTH, WIDTH), middle

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        return self.second(self.middle(self.first(x, edge_index)), edge_index)


class ThreeArguments(Between):
    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor) -> Tensor:
        return self.second(self.first(x, edge_index), edge_index)


class OtherEdges(Between):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.second(self.first(x, edge_index), edge_index.flip(0))


class Pools(Between):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return super().forward(x, edge_index).mean(dim=0)


REFUSED: dict[str, tuple[Callable[[], torch.nn.Module], str]] = {
    "mean": (lambda: Between(lambda h: h - h.mean(0)), "mean looks at all rows"),
    "softmax": (lambda: Between(lambda h: h.softmax(0)), "softmax looks at all rows"),
    "size": (lambda: Between(lambda h: h / h.size(0)), "uses numbers of nodes"),
    "compared": (lambda: Between(lambda h: h * 2 if h.size(0) > 100 else h), "uses numbers of nodes"),
    "item": (lambda: Between(lambda h: h / h.max().item()), "reads values of a tensor"),
    "norm": (lambda: Between(pyg.GraphNorm(WIDTH)), "GraphNorm takes statistics"),
    "arguments": (lambda: ThreeArguments(torch.relu), "takes x, edge_index, edge_weight"),
    "edges": (lambda: OtherEdges(torch.relu), "other edges than those"),
    "pools": (lambda: Pools(torch.relu), "mean looks at all rows"),
    "layer": (lambda: Between(torch.relu, pyg.SGConv), "SGConv normalises by the degrees"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_looks_at_other_rows_is_refused(name: str) -> None:
    make, reason = REFUSED[name]
    ours, _ = pair(make())
    with pytest.raises(ValueError, match=reason):
        inference(ours, loader_of(GRAPH))
    with pytest.raises(TypeError, match="call accelerate"):
        inference(make(), loader_of(GRAPH))


def test_an_inference_of_ones_own_is_not_replaced() -> None:
    class Own(Skips):
        def inference(self, loader: Any) -> str:
            return f"own {len(loader)}"

    ours = accelerate(Own(pyg.SAGEConv).double())
    assert ours.inference([1, 2]) == "own 2"
    assert inference(ours.eval(), loader_of(GRAPH))[0].shape == (GRAPH.num_nodes, 3)


@torch.no_grad()
def test_weights_and_attributes_of_now() -> None:
    """What changed since the last call acts, and what a batch recorded does not matter."""
    ours, plain = pair(Skips(pyg.SAGEConv).eval())
    for change in (
        lambda _: None,
        lambda one: one.table.mul_(3),
        lambda one: setattr(one, "norm", torch.nn.Tanh()),
    ):
        for model in (ours, plain):
            change(model)
        wanted = plain(GRAPH.x, GRAPH.edge_index)
        assert_close(inference(ours, loader_of(GRAPH)), wanted, 1e-9)
        assert_close(ours(GRAPH.x, GRAPH.edge_index), wanted, 1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@torch.no_grad()
def test_other_types_of_numbers(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    ours, plain = pair(Skips(pyg.SAGEConv).eval(), torch.float32)
    data = Data(x=GRAPH.x.float(), edge_index=GRAPH.edge_index)
    with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
        found, wanted = inference(ours, loader_of(data)), plain(data.x, data.edge_index)
    assert found[0].dtype == dtype
    assert_close(found[0].float(), wanted[0].float(), 1e-5 if dtype == torch.float32 else 5e-2)
