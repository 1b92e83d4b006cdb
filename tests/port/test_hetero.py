"""An accelerated `HeteroConv` in unusual calls."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor

from pyg_batchgnn.port import accelerate
from tests.support.accuracy import distance
from tests.support.tiers import each
from tests.support.typed_layers import CITES, WIDTHS, WROTE, rows_of, typed_minibatch

#: Products of options are in `make test-all`.
pytestmark = each


def test_what_is_left_to_pyg() -> None:
    convs = {CITES: pyg.GraphConv(WIDTHS["paper"], 6), WROTE: pyg.SAGEConv((WIDTHS["paper"], -1), 6)}
    theirs = pyg.HeteroConv(convs).double()
    ours = accelerate(copy.deepcopy(theirs))
    minibatch = typed_minibatch([3, 1, 4], [2])
    x = rows_of(minibatch, 1, torch.float64)
    edges = {one: minibatch.edges_of(one).edge_index for one in convs}
    torch.manual_seed(0)
    found = ours(x, edges)
    torch.manual_seed(0)
    wanted = theirs(x, edges)
    assert all(distance(found[name], wanted[name]) < 1e-10 for name in wanted)
    with pytest.raises(ValueError, match="_dict"):
        ours(x, edges, edge_attr={})


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
