"""`nn.SAGEConv`, `nn.GraphConv`, `nn.GCNConv`, `nn.GINConv`, `nn.GINEConv` and `nn.NNConv` beside
PyG's, on minibatches and on whole graphs."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor
from torch_geometric.nn.conv.gcn_conv import gcn_norm

from pyg_batchgnn import SampledMinibatch, nn, ops
from pyg_batchgnn.nn import (
    Aggregated,
    GCNConv,
    GINConv,
    GINEConv,
    GraphConv,
    HeteroConv,
    NNConv,
    RowView,
    SAGEConv,
    layer_graph,
)
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


#: The columns of the values of edges (0: weights; None: there are none), and what makes a layer of
#: our room or of PyG's.
Pair = tuple[int | None, Callable[[Any], Any]]


def sage(**options: Any) -> Pair:
    return None, lambda room: room.SAGEConv(FEATURES, OUT, **options)


def gin(**options: Any) -> Pair:
    return None, lambda room: room.GINConv(perceptron(), **options)


def gine(columns: int = 3, **options: Any) -> Pair:
    return columns, lambda room: room.GINEConv(perceptron(), **options)


def network(make: Callable[[], Any], **options: Any) -> Pair:
    return 3, lambda room: room.NNConv(FEATURES, OUT, make(), **options)


def weighted(aggr: str) -> Pair:
    return 0, lambda room: room.GraphConv(FEATURES, OUT, aggr)


PAIRS: dict[str, Pair] = {
    "sage": sage(),
    "sage, add": sage(aggr="add", bias=False),
    **{f"sage, {one}": sage(aggr=one, root_weight=False) for one in ops.REDUCTIONS},
    "sage, max, root": sage(aggr="max"),
    "sage, project": sage(project=True),
    "sage, normalize": sage(normalize=True, aggr="add"),
    "graph": (None, lambda room: room.GraphConv(FEATURES, OUT)),
    "graph, max": (None, lambda room: room.GraphConv(FEATURES, OUT, "max", bias=False)),
    "gin": gin(),
    "gin, eps": gin(eps=0.3),
    "gin, learned eps": gin(eps=-0.4, train_eps=True),
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
    **{f"weights, {aggr}": weighted(aggr) for aggr in ops.REDUCTIONS},
}
GCN: dict[str, Pair] = {
    name: (None, lambda room, options=options: room.GCNConv(FEATURES, OUT, **options))
    for name, options in {
        "gcn": {},
        "gcn, no loops": {"add_self_loops": False, "bias": False},
        "gcn, not normalised": {"normalize": False},
        "gcn, improved": {"improved": True},
    }.items()
}
LAYERS = PAIRS | GCN


def pair(name: str, dtype: torch.dtype = torch.float64) -> tuple[Any, Any]:
    _, make = LAYERS[name]
    return both(lambda: make(nn), lambda: make(pyg), dtype=dtype)  # type: ignore[arg-type]


def attributes(name: str, edges: int, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    columns, draw = LAYERS[name][0], torch.Generator().manual_seed(7)
    if columns is None:
        return []
    return [torch.randn((edges, columns) if columns else (edges,), generator=draw).to(dtype)]


def named(conv: Any, attr: Any) -> dict[str, Tensor]:
    return {conv.edge_values: attr[0]} if attr else {}


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("case", CASES)
def test_equals_pyg_on_a_minibatch(case: str, dtype: torch.dtype, name: str) -> None:
    ours, pygs = pair(name, dtype)
    minibatch = CASES[case]
    for layer in (1, 2, 3):
        edges, sources, targets = layer_edges(minibatch, layer)
        assert_as_pygs(
            *(ours, pygs),
            lambda conv, x, *attr, layer=layer: conv(x, minibatch, layer, **named(conv, attr)),
            lambda conv, x, *attr, edges=edges, targets=targets: conv(
                (x, x[:targets]), edges, *(one[: edges.size(1)] for one in attr)
            ),
            table(dtype)[minibatch.node[:sources]].relu(),  # zeros make maxima tie
            *attributes(name, minibatch.num_edges, dtype),
        )


def gcn_of(pygs: Any, x: Tensor, minibatch: SampledMinibatch, layer: int, weight: Tensor | None) -> Tensor:
    """`gcn_norm` on all nodes and edges, then the layer's edges and its targets' loops alone."""
    edges, _, targets = layer_edges(minibatch, layer)
    every = minibatch.edge_index
    if pygs.normalize:
        every, weight = gcn_norm(
            every, weight, minibatch.num_nodes, pygs.improved, pygs.add_self_loops, dtype=x.dtype
        )
        wanted = every[1] < targets
    else:
        wanted = torch.arange(every.size(1)) < edges.size(1)
        weight = x.new_ones(every.size(1)) if weight is None else weight
    plain = pyg.GCNConv(FEATURES, OUT, normalize=False, bias=pygs.bias is not None).to(x.dtype)
    plain.lin, plain.bias = pygs.lin, pygs.bias
    return plain(x, every[:, wanted], weight[wanted])[:targets]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", GCN)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("case", CASES)
def test_gcn_equals_pyg_on_a_minibatch(case: str, dtype: torch.dtype, name: str, weighted: bool) -> None:
    ours, pygs = pair(name, dtype)
    minibatch = CASES[case]
    for layer in (1, 2, 3):
        _, sources, _ = layer_edges(minibatch, layer)
        weights = [torch.linspace(0.5, 2.0, minibatch.num_edges, dtype=dtype)] if weighted else []
        assert_as_pygs(
            *(ours, pygs),
            lambda conv, x, weight=None, layer=layer: conv(x, minibatch, layer, edge_weight=weight),
            lambda conv, x, weight=None, layer=layer: gcn_of(conv, x, minibatch, layer, weight),
            *(table(dtype)[minibatch.node[:sources]], *weights),
        )


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("kind", ["float32", "bfloat16", "float16", "int8"])
def test_reads_rows_of_a_table_in_place(kind: str, name: str) -> None:
    ours, _ = pair(name, torch.float32)
    minibatch = CASES["ordinary"]
    rows = drawn_table(60, FEATURES, seed=1) if kind == "int8" else table(getattr(torch, kind))
    gathered = (rows.dequantize() if kind == "int8" else rows)[minibatch.node].float()
    values = named(ours, attributes(name, minibatch.num_edges, torch.float32))
    found, wanted = (ours(x, minibatch, 1, **values) for x in (RowView(rows, minibatch.node), gathered))
    assert found.dtype is torch.float32 and distance(found, wanted) < 1e-5
    for one, two in zip(gradients(ours, found), gradients(ours, wanted), strict=True):
        assert distance(one, two) < 1e-5


@pytest.mark.parametrize("name", LAYERS)
def test_update_is_relu_and_dropout_of_the_plain_output(name: str) -> None:
    ours, minibatch = pair(name, torch.float32)[0], CASES["all neighbours"]
    values = named(ours, attributes(name, minibatch.num_edges, torch.float32))
    ours.register_forward_pre_hook(lambda _, args, given: (args, {**given, **values}), with_kwargs=True)
    assert_updates(ours, minibatch)


@pytest.mark.parametrize("name", ["gine", "network", "weights, mean"])
def test_autocast(name: str) -> None:
    ours, pygs = pair(name, torch.float32)
    minibatch = CASES["all neighbours"]
    edges, sources, targets = layer_edges(minibatch, 1)
    x, (attr,) = table()[minibatch.node[:sources]], attributes(name, minibatch.num_edges, torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        found = ours(x, minibatch, 1, **named(ours, [attr]))
    assert found.dtype is torch.bfloat16
    assert distance(found, pygs((x, x[:targets]), edges, attr[: edges.size(1)]).double()) < 2**-5


def test_a_module_without_parameters() -> None:
    conv = GINConv(torch.nn.Identity(), eps=1.0)
    minibatch = CASES["ordinary"]
    x = table()[minibatch.node]
    edges, _, targets = layer_edges(minibatch, 1)
    wanted = (2 * x[:targets]).index_add(0, edges[1], x[edges[0]])
    assert distance(conv(x, layer_graph(minibatch, 1)), wanted) < 1e-6


FORMS: dict[str, Callable[..., Tensor]] = {
    "tensor": lambda conv, x, _, edges, *attr: conv(x, edges, *attr),
    "pair": lambda conv, x, y, edges, *attr: conv((x, y), edges, *attr),
    "no targets' rows": lambda conv, x, _, edges, *attr: conv((x, None), edges, *attr, size=(30, 20)),
    "size": lambda conv, x, y, edges, *attr: conv((x, y), edges, *attr, size=(30, 20)),
}


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("form", FORMS)
def test_equals_pyg_on_a_whole_graph(form: str, name: str) -> None:
    torch.manual_seed(2)
    edges = torch.stack([torch.randint(30, (90,)), torch.randint(20, (90,))])
    inputs = [torch.randn(count, FEATURES, dtype=torch.float64) for count in (30, 20)]
    call = [lambda conv, x, y, *attr: FORMS[form](conv, x, y, edges, *attr)] * 2
    assert_as_pygs(*pair(name), *call, *inputs, *attributes(name, 90))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", GCN)
@pytest.mark.parametrize("own", [[], [3, 4, 19], [3, 3, 3, 7, 7]], ids=["none", "some", "several a node"])
def test_gcn_equals_pyg_with_self_loops(own: list[int], name: str, weighted: bool) -> None:
    torch.manual_seed(5)
    edges = torch.randint(20, (2, 60))
    edges = torch.cat([torch.tensor([own, own]).long(), edges[:, edges[0] != edges[1]]], 1)
    edges = edges[:, torch.randperm(edges.size(1))]
    weights = [torch.rand(edges.size(1), dtype=torch.float64)] if weighted else []
    x = torch.randn(20, FEATURES, dtype=torch.float64)
    assert_as_pygs(*pair(name), *[lambda conv, x, *weight: conv(x, edges, *weight)] * 2, x, *weights)


def test_relations() -> None:
    relations = [("a", "to", "b"), ("b", "back", "a")]
    x = {name: torch.randn(9, FEATURES, dtype=torch.float64) for name in "ab"}
    edges = {one: torch.randint(9, (2, 30)) for one in relations}
    attr = {one: attributes("gine", 30)[0] for one in relations}

    def made(room: Any) -> Any:
        layers = [LAYERS[name][1](room) for name in ("gine", "network")]
        return room.HeteroConv(dict(zip(relations, layers, strict=True)), "mean").double()

    ours, pygs = made(nn), made(pyg)
    pygs.load_state_dict(ours.state_dict())
    assert isinstance(ours, HeteroConv)
    found, wanted = (conv(x, edges, edge_attr_dict=attr) for conv in (ours, pygs))
    assert all(distance(found[name], wanted[name]) < 1e-10 for name in "ab")


X, EDGE = table(), torch.zeros(2, 1, dtype=torch.int64)
OWN = Aggregated("sum", *[X[CASES["ordinary"].node]] * 2)


def hooked() -> SAGEConv:
    layer = SAGEConv(FEATURES, OUT)
    layer.register_message_forward_hook(lambda *_: None)
    return layer


def watched() -> NNConv:
    conv = NNConv(FEATURES, 2, torch.nn.Sequential(torch.nn.Linear(3, 2 * FEATURES)))
    conv.nn[0].register_forward_hook(lambda *_: None)
    return conv


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: SAGEConv(4, 4, aggr="lstm"), ["aggr='lstm'", "'mean'"]),
        (lambda: SAGEConv(4, 4, aggr=["mean", "max"]), [r"\['mean', 'max'\]"]),
        (lambda: SAGEConv(4, 4, aggr="median"), ["median"]),
        (lambda: SAGEConv(4, 4, aggr=pyg.MedianAggregation()), ["'mean'"]),
        (lambda: SAGEConv(4, 4, node_dim=0), ["node_dim=0"]),
        (lambda: SAGEConv(4, 4, decomposed_layers=2), ["decomposed_layers=2"]),
        (lambda: SAGEConv(-1, 4, project=True), ["lazy"]),
        (lambda: hooked()(table(), EDGE), ["hooks"]),
        (lambda: GCNConv(4, 4, cached=True), ["cached=True", "degrees"]),
        (lambda: GCNConv(4, 4, aggr="mean"), ["aggr='mean'"]),
        (lambda: GCNConv(FEATURES, OUT)((table(), table()), EDGE), ["separate"]),
        (lambda: GCNConv(FEATURES, OUT)(table(), EDGE, torch.ones(2)), ["edge_weight", r"\[1\]"]),
        (lambda: GINConv(perceptron(), aggr="max"), ["aggr='max'", "torch_geometric"]),
        (lambda: GINEConv(perceptron(), edge_dim=3, aggr="max"), ["aggr='max'"]),
        (lambda: GINEConv(perceptron(), edge_dim=3)(X, EDGE), ["edge_attr"]),
        (lambda: GINEConv(perceptron(), edge_dim=3)(X, EDGE, torch.ones(1, 2)), ["3.*2"]),
        (lambda: GINEConv(perceptron())(X, EDGE, torch.ones(1, 2)), ["12.*2"]),
        (lambda: GINEConv(perceptron(), edge_dim=3)(X, EDGE, torch.ones(0, 3)), ["0 entries"]),
        (lambda: GINEConv(perceptron())(Aggregated("sum", X), CASES["ordinary"]), ["depends on the edge"]),
        (lambda: NNConv(4, 2, perceptron(3, 8), aggr="max"), ["aggr='max'"]),
        (lambda: NNConv(4, 2, torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.ReLU())), ["ends in ReLU"]),
        (lambda: NNConv(4, 2, pyg.MLP([3, 8, 8])), ["ends in MLP"]),
        (lambda: NNConv(4, 2, torch.nn.Linear(65, 8)), ["65 input columns"]),
        (lambda: watched()(X, EDGE, torch.ones(1, 3)), ["hooks"]),
        (lambda: NNConv(FEATURES, 2, torch.nn.Linear(3, 2 * FEATURES))(X, EDGE), ["edge_attr"]),
        (lambda: GraphConv(4, 2, aggr="min"), ["aggr='min'"]),
        (lambda: GraphConv(FEATURES, 2)(X, EDGE, torch.ones(2)), [r"edge_weight must be \[1\]"]),
        (lambda: GraphConv(FEATURES, 2)(OWN, CASES["ordinary"], None, torch.ones(1)), ["weights"]),
    ],
)
def test_refused(call: Callable[[], Any], words: list[str]) -> None:
    with pytest.raises(ValueError) as caught:
        call()
    assert all(re.search(word, str(caught.value)) for word in words), caught.value
