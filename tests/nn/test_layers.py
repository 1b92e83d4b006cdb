"""`nn.SAGEConv`, `nn.GCNConv` and `nn.GINConv` beside PyG's, on minibatches and on whole graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor
from torch_geometric.nn.conv.gcn_conv import gcn_norm

from pyg_batchgnn import SampledMinibatch, nn, ops
from pyg_batchgnn.nn import GCNConv, GINConv, RowView, SAGEConv, Update, layer_graph
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

CASES = batch_cases()
OUT = 5


def perceptron() -> torch.nn.Module:
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Linear(FEATURES, 8), torch.nn.Tanh(), torch.nn.Linear(8, OUT))


def sage(**options: Any) -> Callable[[Any], Any]:
    return lambda room: room.SAGEConv(FEATURES, OUT, **options)


def gcn(**options: Any) -> Callable[[Any], Any]:
    return lambda room: room.GCNConv(FEATURES, OUT, **options)


def gin(**options: Any) -> Callable[[Any], Any]:
    return lambda room: room.GINConv(perceptron(), **options)


#: By name, what makes a layer of our room or of PyG's.
PAIRS: dict[str, Callable[[Any], Any]] = {
    "sage": sage(),
    "sage, sum": sage(aggr="sum", bias=False),
    "sage, max": sage(aggr="max"),
    "sage, no root": sage(root_weight=False),
    "sage, no root, max": sage(root_weight=False, aggr="max"),
    "sage, project": sage(project=True),
    "sage, normalize": sage(normalize=True, aggr="add"),
    "graph": lambda room: room.GraphConv(FEATURES, OUT),
    "graph, max": lambda room: room.GraphConv(FEATURES, OUT, "max", bias=False),
    "gin": gin(),
    "gin, eps": gin(eps=0.3),
    "gin, learned eps": gin(eps=-0.4, train_eps=True),
}
GCN: dict[str, Callable[[Any], Any]] = {
    "gcn": gcn(),
    "gcn, no loops": gcn(add_self_loops=False, bias=False),
    "gcn, not normalised": gcn(normalize=False),
    "gcn, improved": gcn(improved=True),
}
LAYERS = PAIRS | GCN


def pair(name: str, dtype: torch.dtype = torch.float64) -> tuple[Any, Any]:
    make = LAYERS[name]
    return both(lambda: make(nn), lambda: make(pyg), dtype=dtype)  # type: ignore[arg-type]


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
            lambda conv, x, layer=layer: conv(x, minibatch, layer),
            lambda conv, x, edges=edges, targets=targets: conv((x, x[:targets]), edges),
            table(dtype)[minibatch.node[:sources]].relu(),  # zeros make maxima tie
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
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_reads_rows_of_a_table_in_place(dtype: torch.dtype, name: str) -> None:
    ours, _ = pair(name, torch.float32)
    minibatch = CASES["ordinary"]
    gathered = table(dtype)[minibatch.node].float()
    found, wanted = ours(RowView(table(dtype), minibatch.node), minibatch, 1), ours(gathered, minibatch, 1)
    assert found.dtype is torch.float32 and torch.equal(found, wanted)
    for one, two in zip(gradients(ours, found), gradients(ours, wanted), strict=True):
        assert torch.equal(one, two)


@pytest.mark.parametrize("name", LAYERS)
def test_update_is_relu_and_dropout_of_the_plain_output(name: str) -> None:
    assert_updates(pair(name, torch.float32)[0], CASES["all neighbours"])


def test_degrees_are_counted_once_a_minibatch(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = []
    real = ops.degree_scale
    monkeypatch.setattr(ops, "degree_scale", lambda *a, **k: counted.append(1) or real(*a, **k))
    ours, _ = pair("gcn", torch.float32)
    minibatch = batch_cases()["ordinary"]
    for layer in (1, 2, 3):
        _, sources, _ = layer_edges(minibatch, layer)
        ours(table()[minibatch.node[:sources]], minibatch, layer)
    assert len(counted) == 2  # d^-1/2 and d^-1


def test_a_module_without_parameters() -> None:
    conv = GINConv(torch.nn.Identity(), eps=1.0)
    minibatch = CASES["ordinary"]
    x = table()[minibatch.node]
    edges, _, targets = layer_edges(minibatch, 1)
    wanted = (2 * x[:targets]).index_add(0, edges[1], x[edges[0]])
    assert distance(conv(x, layer_graph(minibatch, 1)), wanted) < 1e-6


FORMS: dict[str, Callable[[Any, Tensor, Tensor, Tensor], Tensor]] = {
    "tensor": lambda conv, x, _, edges: conv(x, edges),
    "pair": lambda conv, x, y, edges: conv((x, y), edges),
    "no targets' rows": lambda conv, x, _, edges: conv((x, None), edges, size=(30, 20)),
    "size": lambda conv, x, y, edges: (
        conv((x, y), edges, size=(30, 20)) if hasattr(conv, "lin_rel") else conv((x, y), edges, (30, 20))
    ),
}


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("form", FORMS)
def test_equals_pyg_on_a_whole_graph(form: str, name: str) -> None:
    torch.manual_seed(2)
    edges = torch.stack([torch.randint(30, (90,)), torch.randint(20, (90,))])
    rows = [torch.randn(count, FEATURES, dtype=torch.float64) for count in (30, 20)]
    assert_as_pygs(*pair(name), *[lambda conv, x, y: FORMS[form](conv, x, y, edges)] * 2, *rows)


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


def test_widths_of_two_kinds_of_nodes() -> None:
    ours, pygs = both(SAGEConv, pyg.SAGEConv, (3, 4), OUT, dtype=torch.float64)
    x, y = torch.randn(6, 3, dtype=torch.float64), torch.randn(2, 4, dtype=torch.float64)
    edge_index = torch.tensor([[0, 5, 2, 2], [0, 0, 1, 0]])
    assert distance(ours((x, y), edge_index), pygs((x, y), edge_index)) < 1e-10


def test_unknown_widths_come_from_the_first_call() -> None:
    minibatch, states = CASES["ordinary"], []
    for room, given in (
        (nn, (RowView(table(), minibatch.node), minibatch, 1)),
        (pyg, (table(), torch.zeros(2, 1).long())),
    ):
        torch.manual_seed(0)
        conv = room.SAGEConv(-1, OUT)
        conv(*given)
        states.append(conv.state_dict())
    assert all(torch.equal(states[0][key], states[1][key]) for key in states[1])


def test_whole_graphs_draw_dropout_from_torchs_generator() -> None:
    ours, _ = pair("sage", torch.float32)
    edge_index, update = torch.randint(60, (2, 50)), Update(drop=0.5)
    torch.manual_seed(4)
    first, second = ours(table(), edge_index, update=update), ours(table(), edge_index, update=update)
    torch.manual_seed(4)
    assert torch.equal(first, ours(table(), edge_index, update=update)) and not torch.equal(first, second)


EDGE = torch.zeros(2, 1, dtype=torch.int64)


def hooked() -> SAGEConv:
    layer = SAGEConv(FEATURES, OUT)
    layer.register_message_forward_hook(lambda *_: None)
    return layer


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: SAGEConv(4, 4, aggr="lstm"), ["aggr='lstm'", "'mean'"]),
        (lambda: SAGEConv(4, 4, aggr=["mean", "max"]), ["['mean', 'max']"]),
        (lambda: SAGEConv(4, 4, aggr="median"), ["median"]),
        (lambda: SAGEConv(4, 4, aggr=pyg.MedianAggregation()), ["'mean'"]),
        (lambda: SAGEConv(4, 4, node_dim=0), ["node_dim=0"]),
        (lambda: SAGEConv(4, 4, decomposed_layers=2), ["decomposed_layers=2"]),
        (lambda: SAGEConv(-1, 4, project=True), ["lazy"]),
        (lambda: hooked()(table(), EDGE), ["hooks"]),
        (lambda: GCNConv(4, 4, cached=True), ["cached=True", "degrees"]),
        (lambda: GCNConv(4, 4, aggr="mean"), ["aggr='mean'"]),
        (lambda: GCNConv(FEATURES, OUT)((table(), table()), EDGE), ["separate"]),
        (lambda: GCNConv(FEATURES, OUT)(table(), EDGE, torch.ones(2)), ["edge_weight", "[1]"]),
        (lambda: GINConv(perceptron(), aggr="max"), ["aggr='max'", "torch_geometric"]),
    ],
)
def test_refused(call: Callable[[], Any], words: list[str]) -> None:
    with pytest.raises(ValueError) as caught:
        call()
    assert all(word in str(caught.value) for word in words), caught.value
