"""PyG's typed models, accelerated: `HeteroConv` and what `to_hetero` makes."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor

from pyg_batchgnn import nn
from pyg_batchgnn.port import accelerate
from tests.support.accuracy import distance
from tests.support.tiers import each, some
from tests.support.typed_layers import (
    ABOUT,
    CITES,
    KNOWS,
    SCHEMA,
    TOPIC,
    WIDTHS,
    WRITES,
    WROTE,
    assert_near,
    joined,
    rows_of,
    typed_minibatch,
)

#: Products of options are in `make test-all`.
pytestmark = each

MINIBATCH = typed_minibatch([3, 1, 4], [2])
EDGES = {one: MINIBATCH.edges_of(one).edge_index for one in SCHEMA.relations}


def _mlp() -> torch.nn.Module:
    return pyg.MLP([WIDTHS["author"], 8, 6], norm=None)


def hetero_conv(aggr: str | None = "sum") -> pyg.HeteroConv:
    torch.manual_seed(1)
    convs = {
        CITES: pyg.GCNConv(WIDTHS["paper"], 6),
        WRITES: pyg.SAGEConv((WIDTHS["author"], WIDTHS["paper"]), 6),
        ABOUT: pyg.GATConv((WIDTHS["topic"], WIDTHS["paper"]), 3, 2, add_self_loops=False),
        WROTE: pyg.GATConv((WIDTHS["paper"], WIDTHS["author"]), 6, add_self_loops=False, edge_dim=2),
        KNOWS: pyg.GINConv(_mlp(), train_eps=True),
        TOPIC: pyg.GATv2Conv((WIDTHS["paper"], WIDTHS["topic"]), 6, add_self_loops=False),
    }
    return pyg.HeteroConv(convs, aggr).double()


def results(
    model: torch.nn.Module, call: Callable[..., dict[str, Tensor]], x: dict[str, Tensor]
) -> list[Tensor]:
    out = call(model, x)
    leaves = [*model.parameters(), *x.values()]
    grads = torch.autograd.grad(joined(out).sum(), leaves, allow_unused=True, materialize_grads=True)
    return [*out.values(), *grads]


CALLS: dict[str, Callable[..., dict[str, Tensor]]] = {
    "plain": lambda model, x: model(x, EDGES),
    "values of edges": lambda model, x: model(
        x, EDGES, edge_attr_dict={WROTE: torch.ones(EDGES[WROTE].size(1), 2, dtype=torch.float64)}
    ),
    "third place": lambda model, x: model(
        x, EDGES, {WROTE: torch.ones(EDGES[WROTE].size(1), 2, dtype=torch.float64)}
    ),
    "some relations": lambda model, x: model(x, {one: EDGES[one] for one in (CITES, WROTE)}),
}


@pytest.mark.parametrize("aggr", ["sum", "mean", "max", "cat", None])
@pytest.mark.parametrize("call", CALLS)
def test_hetero_conv(call: str, aggr: str | None) -> None:
    theirs = hetero_conv(aggr)
    ours = accelerate(copy.deepcopy(theirs))
    assert all(isinstance(one, nn.NativeConv) for one in ours.convs.values())
    assert list(ours.state_dict()) == list(theirs.state_dict())
    x, other = (rows_of(MINIBATCH, 1, torch.float64) for _ in range(2))
    found, wanted = results(ours, CALLS[call], x), results(theirs, CALLS[call], other)
    assert_near(found, wanted, 1e-9)


def test_what_is_left_to_pyg() -> None:
    convs = {CITES: pyg.GraphConv(WIDTHS["paper"], 6), WROTE: pyg.SAGEConv((WIDTHS["paper"], -1), 6)}
    theirs = pyg.HeteroConv(convs).double()
    ours = accelerate(copy.deepcopy(theirs))
    x = rows_of(MINIBATCH, 1, torch.float64)
    torch.manual_seed(0)
    found = ours(x, EDGES)
    torch.manual_seed(0)
    wanted = theirs(x, EDGES)
    assert all(distance(found[name], wanted[name]) < 1e-10 for name in wanted)
    with pytest.raises(ValueError, match="_dict"):
        ours(x, EDGES, edge_attr={})


MODELS: dict[str, tuple[Any, dict[str, Any]]] = {
    "sage": (pyg.GraphSAGE, {"norm": "batch_norm"}),
    "gin": (pyg.GIN, {}),
    "gat": (pyg.GAT, {"add_self_loops": False, "heads": 2}),
    "gatv2": (pyg.GAT, {"add_self_loops": False, "v2": True}),
}


@pytest.mark.parametrize("name", some(MODELS, 4))
def test_what_to_hetero_made(name: str) -> None:
    kind, options = MODELS[name]
    metadata = (list(SCHEMA.node_types), list(SCHEMA.relations))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = pyg.to_hetero(kind(4, 8, 2, 3, **options), metadata).double()
        ours = copy.deepcopy(theirs)
    replaced: list[Any] = []
    accelerate(ours, replaced.append)
    convs = [one.name for one in replaced[0].replaced if one.name.startswith("convs.")]
    assert sum(name.count(".") == 2 for name in convs) == 2 * len(SCHEMA.relations)
    rows = rows_of(MINIBATCH, 1, torch.float64)
    x = {name: one.detach()[:, :1].repeat(1, 4).requires_grad_() for name, one in rows.items()}
    other = {name: one.detach().clone().requires_grad_() for name, one in x.items()}
    found, wanted = results(ours, CALLS["plain"], x), results(theirs, CALLS["plain"], other)
    assert_near(found, wanted, 1e-9)


TWO = [("a", "to", "a"), ("b", "to", "a")]


def _two(aggr: str | None = "sum") -> pyg.HeteroConv:
    torch.manual_seed(1)
    return pyg.HeteroConv({one: pyg.SAGEConv((4, 4), 3) for one in TWO}, aggr)


def _outcome(call: Callable[[], dict[str, Tensor]]) -> dict[str, Tensor] | str:
    try:
        return call()
    except Exception as error:
        return f"{type(error)} {error}".replace("AcceleratedConv.forward", "SAGEConv.forward")


ROWS = {"a": torch.linspace(0, 1, 20).view(5, 4), "b": torch.linspace(1, 3, 24).view(6, 4)}
INTO_A = {one: torch.tensor([[0, 1, 4, 4], [0, 0, 1, 3]]) for one in TWO}
ODD_CALLS: dict[str, tuple[Any, ...]] = {
    "nodes as edges": (ROWS, ROWS),
    "nodes as edges, then edges": (ROWS, ROWS, INTO_A),
    "nodes beside edges": (ROWS, {**INTO_A, "b": ROWS["b"]}),
    "edges as rows": (INTO_A, INTO_A),
    "values of a relation without edges": (ROWS, {TWO[0]: INTO_A[TWO[0]]}, {TWO[1]: (6, 5)}),
    "sizes of nodes": (ROWS, INTO_A, ROWS),
    "no edges": (ROWS, {}),
    "rows alone": (ROWS,),
    "no rows": ({}, INTO_A),
    "sizes": (ROWS, INTO_A, {TWO[0]: (5, 5), TWO[1]: (6, 5)}),
}


@pytest.mark.parametrize("what", ODD_CALLS)
def test_dicts_of_other_kinds_are_taken_as_pyg_takes_them(what: str) -> None:
    theirs = _two()
    ours = accelerate(copy.deepcopy(theirs))
    wanted, found = (_outcome(lambda one=one: one(*ODD_CALLS[what])) for one in (theirs, ours))
    if isinstance(wanted, str) or isinstance(found, str):
        assert found == wanted
    else:
        assert set(found) == set(wanted)
        assert all(torch.allclose(found[one], wanted[one], atol=1e-5) for one in wanted)


@pytest.mark.parametrize("when", ["made", "before", "after"])
@pytest.mark.parametrize("aggr", ["mul", "add", "prod", "median", "no such", 5, "max", "mean", None])
def test_aggregations_are_those_of_pyg(aggr: Any, when: str) -> None:
    theirs = _two(aggr if when == "made" else "sum")
    ours = copy.deepcopy(theirs) if when == "before" else accelerate(copy.deepcopy(theirs))
    if when != "made":
        theirs.aggr = ours.aggr = aggr
    accelerate(ours)
    wanted, found = (_outcome(lambda one=one: one(ROWS, INTO_A)) for one in (theirs, ours))
    if isinstance(wanted, str) or isinstance(found, str):
        assert found == wanted
    else:
        assert all(torch.allclose(found[one], wanted[one], atol=1e-5) for one in wanted)
