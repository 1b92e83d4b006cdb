"""Layers and models that begin with aggregates made beforehand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
import torch_geometric.nn
from torch import Tensor

from pyg_batchgnn import AggregationCache, Minibatch, SampledMinibatch, nn
from pyg_batchgnn.nn import Aggregated, GATConv, GCNConv, GINConv, RowView, SAGEConv, Update
from tests.support.accuracy import ALONE, assert_as_pygs, distance
from tests.support.layer_cases import (
    FEATURES,
    batch_cases,
    both,
    gradients,
    sampled,
    small_edges,
    small_graph,
    table,
)
from tests.support.model_pairs import CLASSES, HIDDEN

CASES = {
    name: sampled(batch.node[: batch.batch_size].tolist(), (4, 3)) for name, batch in batch_cases().items()
}


def aggregates(kind: str, dtype: torch.dtype) -> Tensor:
    return AggregationCache.build((small_graph(), table(dtype)), kind).rows


def beginning(kind: str, minibatch: SampledMinibatch, dtype: torch.dtype = torch.float32) -> Aggregated:
    row = minibatch.node
    return Aggregated(kind, RowView(aggregates(kind, dtype), row), RowView(table(dtype), row))


def carrying(minibatch: SampledMinibatch, kind: str, dtype: torch.dtype = torch.float32) -> Minibatch:
    block = {"x": table(dtype), f"x_{kind}": aggregates(kind, dtype)}
    return Minibatch.in_place(minibatch, block)


def gin(conv: type) -> Any:
    def make(inputs: int, outputs: int, **options: Any) -> torch.nn.Module:
        result: torch.nn.Module = conv(torch.nn.Linear(inputs, outputs), eps=0.3, train_eps=True, **options)
        return result

    return make


CONVS: dict[str, tuple[str, Any, Any, dict[str, Any]]] = {
    "sage": ("mean", SAGEConv, torch_geometric.nn.SAGEConv, {}),
    "sage, sum": ("sum", SAGEConv, torch_geometric.nn.SAGEConv, {"aggr": "sum", "normalize": True}),
    "sage, no root": ("mean", SAGEConv, torch_geometric.nn.SAGEConv, {"root_weight": False}),
    "gcn": ("symmetric", GCNConv, torch_geometric.nn.GCNConv, {}),
    "gin": ("sum", gin(GINConv), gin(torch_geometric.nn.GINConv), {}),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", CONVS)
def test_a_layer_is_pygs_on_the_whole_graph(name: str, case: str, dtype: torch.dtype) -> None:
    kind, own, other, options = CONVS[name]
    ours, pygs = both(own, other, FEATURES, 5, dtype=dtype, **options)
    minibatch = CASES[case]
    given = beginning(kind, minibatch, dtype)
    found = ours(given, minibatch)

    def theirs(conv: Any) -> Tensor:
        rows = table(dtype).to(next(conv.parameters()).dtype)
        return conv(rows, small_edges())[minibatch.node]

    assert_as_pygs(ours, pygs, lambda conv: conv(given, minibatch), theirs)
    update = Update(relu=True, drop=0.5)
    dropped = ours(given, minibatch, update=update)
    assert torch.equal(dropped, ours(given, minibatch, update=update))
    kept = dropped != 0
    assert distance(dropped[kept], 2 * found.relu()[kept]) < ALONE


def models() -> dict[str, tuple[str, nn.NativeModel]]:
    torch.manual_seed(3)
    shape = (FEATURES, HIDDEN, 3, CLASSES)
    return {
        "sage": ("mean", nn.SAGE(*shape, dropout=0.0)),
        "gcn": ("symmetric", nn.GCN(*shape, dropout=0.0)),
        "gin": ("sum", nn.GIN(*shape, norm="batch_norm", inner_channels=HIDDEN)),
    }


@pytest.mark.parametrize("name", ["sage", "gin"])
def test_a_model_is_the_one_that_samples_all_neighbours(name: str) -> None:
    kind, model = models()[name]
    full, less = sampled([3, 1, 4, 15, 9], (-1, -1, -1)), sampled([3, 1, 4, 15, 9], (-1, -1))
    wanted = model(Minibatch.in_place(full, {"x": table()}))
    expected = gradients(model, wanted)
    found = model(carrying(less, kind))
    assert distance(found, wanted) < ALONE
    for one, two in zip(gradients(model, found), expected, strict=True):
        assert distance(one, two) < 2e-4  # BatchNorm's statistics are of the same rows, near zero at times
    given = beginning(kind, less)
    assert torch.equal(model(less, x=given), found)


def test_gcn_goes_on_with_the_degrees_that_were_sampled() -> None:
    kind, model = models()["gcn"]
    minibatch = sampled([3, 1, 4, 15, 9], (4, 3))
    rows = model.convs[0](table(), small_edges()).relu()[minibatch.node]
    rows = model.convs[1](rows, minibatch, 1, update=Update(relu=True))
    wanted = model.convs[2](rows, minibatch, 2)
    assert distance(model(carrying(minibatch, kind)), wanted) < ALONE
    alone = Minibatch.in_place(minibatch, {"x_symmetric": aggregates(kind, torch.float32)})
    assert distance(model(alone), wanted) < ALONE  # needs no features of its own


def test_what_does_not_fit_is_refused() -> None:
    minibatch = sampled([3, 1, 4], (4, 3))
    sage = models()["sage"][1]
    mean = beginning("mean", minibatch)
    no_own = replace(mean, own=None)
    refusals = [
        (lambda: sage(carrying(minibatch, "sum")), r"aggregates by mean here.*build\(data, 'mean'\)"),
        (lambda: sage(minibatch), "needs minibatches of 3 hops, but this one has 2"),
        (lambda: sage(minibatch, x=no_own), "the features of each node"),
        (lambda: sage(batch_cases()["induced subgraph"], x=mean), "an induced subgraph has no hops"),
        (lambda: nn.GAT(FEATURES, HIDDEN, 3, CLASSES)(carrying(minibatch, "mean")), "depends on the"),
        (lambda: GATConv(FEATURES, 4)(mean, minibatch), "depends on the edge"),
        (lambda: SAGEConv(FEATURES, 4, aggr="max")(mean, minibatch), "by 'max'"),
        (lambda: SAGEConv(FEATURES, 4, project=True)(mean, minibatch), "learned projection"),
        (
            lambda: GCNConv(FEATURES, 4)(
                beginning("symmetric", minibatch), minibatch, edge_weight=torch.ones(3)
            ),
            "without edge weights",
        ),
    ]
    for call, text in refusals:
        with pytest.raises(ValueError, match=text):
            call()
    with pytest.raises(TypeError, match="a minibatch's nodes"):
        SAGEConv(FEATURES, 4)(mean, small_edges())
