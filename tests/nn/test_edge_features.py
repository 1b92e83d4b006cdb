"""`nn.GINEConv`, `nn.NNConv` and `nn.GraphConv` with weights of edges beside PyG's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor

from pyg_batchgnn import nn
from pyg_batchgnn.nn import Aggregated, GINEConv, GraphConv, HeteroConv, NNConv, RowView
from tests.support.accuracy import assert_as_pygs, distance
from tests.support.layer_cases import (
    FEATURES,
    assert_updates,
    batch_cases,
    both,
    gradients,
    layer_edges,
    table,
)
from tests.support.quantized_tables import drawn_table

CASES = batch_cases()
OUT = 5


def perceptron(columns: int = FEATURES, out: int = OUT) -> torch.nn.Sequential:
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Linear(columns, 8), torch.nn.Tanh(), torch.nn.Linear(8, out))


def gine(columns: int = 3, **options: Any) -> tuple[int, Callable[[Any], Any]]:
    return columns, lambda room: room.GINEConv(perceptron(), **options)


def network(make: Callable[[], Any], **options: Any) -> tuple[int, Callable[[Any], Any]]:
    return 3, lambda room: room.NNConv(FEATURES, OUT, make(), **options)


def weighted(aggr: str) -> tuple[int, Callable[[Any], Any]]:
    return 0, lambda room: room.GraphConv(FEATURES, OUT, aggr)


#: By name, the columns of edge features (0: weights), and what makes a layer of a room.
LAYERS: dict[str, tuple[int, Callable[[Any], Any]]] = {
    "gine": gine(edge_dim=3),
    "gine, as wide as x": gine(FEATURES),
    "gine, one column": gine(1, edge_dim=1, eps=0.3),
    "gine, learned eps": gine(edge_dim=3, eps=-0.4, train_eps=True),
    "network": network(lambda: torch.nn.Linear(3, FEATURES * OUT)),
    "network without bias, mean": network(
        lambda: torch.nn.Linear(3, FEATURES * OUT, bias=False), aggr="mean", root_weight=False
    ),
    "network of two layers": network(lambda: perceptron(3, FEATURES * OUT), bias=False),
    "network of PyG's linear, mean": network(
        lambda: torch.nn.Sequential(pyg.Linear(3, FEATURES * OUT)), aggr="mean"
    ),
    **{f"weights, {aggr}": weighted(aggr) for aggr in ("add", "mean", "max")},
}


def pair(name: str, dtype: torch.dtype = torch.float64) -> tuple[Any, Any]:
    _, make = LAYERS[name]
    return both(lambda: make(nn), lambda: make(pyg), dtype=dtype)  # type: ignore[arg-type]


def attributes(name: str, edges: int, dtype: torch.dtype = torch.float64) -> Tensor:
    columns, draw = LAYERS[name][0], torch.Generator().manual_seed(7)
    return torch.randn((edges, columns) if columns else (edges,), generator=draw).to(dtype)


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("case", CASES)
def test_equals_pyg_on_a_minibatch(case: str, dtype: torch.dtype, name: str) -> None:
    ours, pygs = pair(name, dtype)
    minibatch = CASES[case]
    for layer in (1, 3):
        edges, sources, targets = layer_edges(minibatch, layer)
        assert_as_pygs(
            *(ours, pygs),
            lambda conv, x, attr, layer=layer: conv(x, minibatch, layer, **{conv.edge_values: attr}),
            lambda conv, x, attr, edges=edges, targets=targets: conv(
                (x, x[:targets]), edges, attr[: edges.size(1)]
            ),
            *(table(dtype)[minibatch.node[:sources]], attributes(name, minibatch.num_edges, dtype)),
        )


FORMS: dict[str, Callable[[Any, Tensor, Tensor, Tensor, Tensor], Tensor]] = {
    "tensor": lambda conv, x, _, edges, attr: conv(x, edges, attr),
    "pair": lambda conv, x, y, edges, attr: conv((x, y), edges, attr),
    "no targets' rows": lambda conv, x, _, edges, attr: conv((x, None), edges, attr, size=(30, 20)),
}


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("form", FORMS)
def test_equals_pyg_on_a_whole_graph(form: str, name: str) -> None:
    torch.manual_seed(2)
    edges = torch.stack([torch.randint(30, (90,)), torch.randint(20, (90,))])
    inputs = [torch.randn(count, FEATURES, dtype=torch.float64) for count in (30, 20)]
    call = [lambda conv, x, y, attr: FORMS[form](conv, x, y, edges, attr)] * 2
    assert_as_pygs(*pair(name), *call, *inputs, attributes(name, 90))


@pytest.mark.parametrize("name", ["gine", "network of two layers", "weights, mean", "weights, max"])
@pytest.mark.parametrize("kind", ["float32", "bfloat16", "float16", "int8"])
def test_reads_rows_of_a_table_in_place(kind: str, name: str) -> None:
    ours, _ = pair(name, torch.float32)
    minibatch = CASES["ordinary"]
    rows = drawn_table(60, FEATURES, seed=1) if kind == "int8" else table(getattr(torch, kind))
    gathered = (rows.dequantize() if kind == "int8" else rows)[minibatch.node].float()
    attr = attributes(name, minibatch.num_edges, torch.float32)
    both_rows, values = (RowView(rows, minibatch.node), gathered), {ours.edge_values: attr}
    found, wanted = (ours(x, minibatch, 1, **values) for x in both_rows)
    assert found.dtype is torch.float32 and distance(found, wanted) < 1e-5
    for one, two in zip(gradients(ours, found), gradients(ours, wanted), strict=True):
        assert distance(one, two) < 1e-5


def test_relations() -> None:
    relations = [("a", "to", "b"), ("b", "back", "a")]
    x = {name: torch.randn(9, FEATURES, dtype=torch.float64) for name in "ab"}
    edges = {one: torch.randint(9, (2, 30)) for one in relations}
    attr = {one: attributes("gine", 30) for one in relations}

    def made(room: Any) -> Any:
        layers = [LAYERS[name][1](room) for name in ("gine", "network")]
        return room.HeteroConv(dict(zip(relations, layers, strict=True)), "mean").double()

    ours, pygs = made(nn), made(pyg)
    pygs.load_state_dict(ours.state_dict())
    assert isinstance(ours, HeteroConv)
    found, wanted = (conv(x, edges, edge_attr_dict=attr) for conv in (ours, pygs))
    assert all(distance(found[name], wanted[name]) < 1e-10 for name in "ab")


@pytest.mark.parametrize("name", ["gine", "network", "weights, mean"])
def test_update_and_autocast(name: str) -> None:
    ours, pygs = pair(name, torch.float32)
    minibatch = CASES["all neighbours"]
    attr = attributes(name, minibatch.num_edges, torch.float32)
    values = {ours.edge_values: attr}

    class Given(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = ours

        def forward(self, *arguments: Any, **options: Any) -> Tensor:
            result: Tensor = self.conv(*arguments, **values, **options)
            return result

    assert_updates(Given(), minibatch)
    edges, sources, targets = layer_edges(minibatch, 1)
    x = table()[minibatch.node[:sources]]
    with torch.autocast("cpu", torch.bfloat16):
        found = ours(x, minibatch, 1, **values)
    assert found.dtype is torch.bfloat16
    assert distance(found, pygs((x, x[:targets]), edges, attr[: edges.size(1)]).double()) < 2**-5


X, EDGE = table(), torch.zeros(2, 1, dtype=torch.int64)
OWN = Aggregated("sum", *[X[CASES["ordinary"].node]] * 2)


def watched() -> NNConv:
    conv = NNConv(FEATURES, 2, torch.nn.Sequential(torch.nn.Linear(3, 2 * FEATURES)))
    conv.nn[0].register_forward_hook(lambda *_: None)
    return conv


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: GINEConv(perceptron(), edge_dim=3, aggr="max"), "aggr='max'"),
        (lambda: GINEConv(perceptron(), edge_dim=3)(X, EDGE), "edge_attr"),
        (lambda: GINEConv(perceptron(), edge_dim=3)(X, EDGE, torch.ones(1, 2)), "3.*2"),
        (lambda: GINEConv(perceptron())(X, EDGE, torch.ones(1, 2)), "12.*2"),
        (lambda: GINEConv(perceptron(), edge_dim=3)(X, EDGE, torch.ones(0, 3)), "0 entries"),
        (lambda: GINEConv(perceptron())(Aggregated("sum", X), CASES["ordinary"]), "depends on the edge"),
        (lambda: NNConv(4, 2, perceptron(3, 8), aggr="max"), "aggr='max'"),
        (lambda: NNConv(4, 2, torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.ReLU())), "ends in ReLU"),
        (lambda: NNConv(4, 2, pyg.MLP([3, 8, 8])), "ends in MLP"),
        (lambda: NNConv(4, 2, torch.nn.Linear(65, 8)), "65 input columns"),
        (lambda: watched()(X, EDGE, torch.ones(1, 3)), "hooks"),
        (lambda: NNConv(FEATURES, 2, torch.nn.Linear(3, 2 * FEATURES))(X, EDGE), "edge_attr"),
        (lambda: GraphConv(4, 2, aggr="min"), "aggr='min'"),
        (lambda: GraphConv(FEATURES, 2)(X, EDGE, torch.ones(2)), r"edge_weight must be \[1\]"),
        (lambda: GraphConv(FEATURES, 2)(OWN, CASES["ordinary"], None, torch.ones(1)), "weights"),
    ],
)
def test_refused(call: Callable[[], Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        call()
