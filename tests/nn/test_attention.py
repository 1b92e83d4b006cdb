"""`nn.GATConv`, `nn.GATv2Conv` and `nn.TransformerConv` beside PyG's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor

from pyg_batchgnn import nn, ops
from pyg_batchgnn.nn import Aggregated, GATConv, GATv2Conv, RowView, TransformerConv, layer_graph, transformer
from tests.support.accuracy import assert_as_pygs, distance
from tests.support.layer_cases import (
    FEATURES,
    assert_attention_as_pygs,
    assert_updates,
    batch_cases,
    gradients,
    layer_edges,
    table,
)
from tests.support.quantized_tables import drawn_table
from tests.support.tiers import each
from tests.support.typed_layers import assert_near

CASES = batch_cases()
#: What a Transformer multiplies first: the sums of raw rows, or every source.
FIRST = {"sums first": 0.0, "sources first": 1e9}
TRANSFORMERS = [f"TransformerConv, {first}" for first in FIRST]
_ANY: list[dict[str, Any]] = [{}, {"heads": 4}, {"heads": 3, "concat": False, "bias": False}]
_LOOPS: list[dict[str, Any]] = [
    {"heads": 2, "add_self_loops": False, "negative_slope": 0.5},
    {"heads": 2, "edge_dim": 3, "add_self_loops": False},
    {"heads": 2, "edge_dim": 1, "fill_value": 0.5},
]
OPTIONS: dict[str, list[dict[str, Any]]] = {
    "GATConv": [
        *(*_ANY, *_LOOPS),
        {"heads": 4, "residual": True},
        {"heads": 2, "residual": True, "concat": False},
        {"heads": 4, "edge_dim": 3},
        {"heads": 2, "edge_dim": 3, "fill_value": torch.tensor([0.1, 0.2, -0.3])},
        *({"heads": 2, "edge_dim": 3, "fill_value": fill} for fill in ("add", "min", "max", "mul")),
    ],
    "GATv2Conv": [
        *(*_ANY, *_LOOPS),
        {"heads": 2, "share_weights": True, "residual": True},
        {"heads": 2, "edge_dim": 3, "residual": True, "concat": False},
        {"heads": 2, "edge_dim": 3, "fill_value": "max"},
    ],
    "TransformerConv": [
        *_ANY,
        {"heads": 2, "root_weight": False},
        {"beta": True},
        {"heads": 3, "beta": True, "concat": False},
        {"heads": 2, "beta": True, "root_weight": False},
        {"heads": 2, "edge_dim": 3},
        {"edge_dim": 1, "concat": False, "beta": True},
        {"heads": 2, "edge_dim": 3, "concat": False, "bias": False},
        {"out_channels": 40, "heads": 3, "beta": True},
        {"out_channels": 40, "heads": 2, "edge_dim": 3, "concat": False},
    ],
}
LAYERS = ["GATConv", "GATv2Conv", *TRANSFORMERS]
CHOICES = [(layer, options) for layer in LAYERS for options in OPTIONS[layer.partition(",")[0]]]
with_options = pytest.mark.parametrize(("layer", "options"), CHOICES, indirect=["layer"], ids=str)
#: What the layers have beside heads and edge features.
MORE: dict[str, dict[str, Any]] = {
    "GATConv": {"residual": True},
    "GATv2Conv": {"residual": True},
    "TransformerConv": {"beta": True},
}


@pytest.fixture(params=LAYERS)
def layer(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Names a layer. A Transformer multiplies as is asked for."""
    name, _, first = request.param.partition(", ")
    if first:
        monkeypatch.setattr(transformer, "_LEAST_GAIN", FIRST[first])
    return str(name)


def both(
    layer: str, dtype: torch.dtype, in_channels: Any = FEATURES, out_channels: int = 5, **options: Any
) -> tuple[Any, Any]:
    """Returns our layer and PyG's, initialised alike, and then with the same larger weights."""
    made = []
    for room in (nn, pyg):
        torch.manual_seed(3)
        made.append(getattr(room, layer)(in_channels, out_channels, **options))
    ours, pygs = made
    assert list(ours.state_dict()) == list(pygs.state_dict()) and repr(ours) == repr(pygs)
    for name, value in pygs.state_dict().items():
        assert torch.equal(ours.state_dict()[name], value), name
    for parameter in pygs.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    ours.load_state_dict(pygs.state_dict())
    return ours.to(dtype), pygs.to(dtype)


def features(conv: Any, edges: int, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    return [] if conv.edge_dim is None else [torch.randn(edges, conv.edge_dim, dtype=dtype)]


@each
@with_options
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("case", CASES)
def test_equals_pyg_on_minibatches(
    case: str, dtype: torch.dtype, layer: str, options: dict[str, Any]
) -> None:
    assert_attention_as_pygs(*both(layer, dtype, **options), CASES[case], (1, 3))


FORMS: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "tensor": lambda x, _: x,
    "pair": lambda x, y: (x, y),
    "weights apart": lambda x, y: (x, y),
    "both the same": lambda x, _: (x, x),
    "no targets' rows": lambda x, _: (x, None),
}


@pytest.mark.parametrize("edge_dim", [None, 3])
@pytest.mark.parametrize("form", FORMS)
def test_equals_pyg_on_a_whole_graph(layer: str, edge_dim: int | None, form: str) -> None:
    columns = 7 if form == "weights apart" else FEATURES
    channels = (FEATURES, 7) if form == "weights apart" else FEATURES
    more = {} if edge_dim is None else {"edge_dim": edge_dim, **MORE[layer]}
    ours, pygs = both(layer, torch.float64, channels, heads=2, **more)
    edges = torch.stack([torch.randint(30, (90,)), torch.randint(20, (90,))])
    given_now = torch.randn(30, FEATURES).double(), torch.randn(20, columns).double(), *features(ours, 90)
    size = {"size": (30, 20)} if form == "no targets' rows" and layer == "GATConv" else {}

    def call(conv: Any, x: Tensor, y: Tensor, *attr: Tensor) -> Tensor:
        result: Tensor = conv(FORMS[form](x, y), edges, *attr, **size)
        return result

    if form == "no targets' rows" and not size:
        with pytest.raises(ValueError, match="sources, targets"):
            call(ours, *given_now)
    else:
        assert_as_pygs(ours, pygs, call, call, *given_now)


@pytest.mark.parametrize("kind", ["float32", "bfloat16", "float16", "int8"])
def test_reads_rows_of_a_table_in_place(layer: str, kind: str) -> None:
    ours, _ = both(layer, torch.float32, heads=4, **MORE[layer])
    minibatch = CASES["ordinary"]
    rows = drawn_table(60, FEATURES, seed=1) if kind == "int8" else table(getattr(torch, kind))
    gathered = (rows.dequantize() if kind == "int8" else rows)[minibatch.node].float()
    found, wanted = ours(RowView(rows, minibatch.node), minibatch, 1), ours(gathered, minibatch, 1)
    assert found.dtype is torch.float32 and distance(found, wanted) < 1e-5
    assert_near(gradients(ours, found), gradients(ours, wanted), 1e-5)


@with_options
def test_bfloat16(layer: str, options: dict[str, Any]) -> None:
    ours, pygs = both(layer, torch.float32, **options)
    minibatch = CASES["ordinary"]
    edges, sources, targets = layer_edges(minibatch, 1)
    x, attr = table()[minibatch.node[:sources]], features(ours, minibatch.num_edges, torch.float32)
    named = {"edge_attr": attr[0]} if attr else {}
    plain = ours(x, minibatch, 1, **named)
    with torch.autocast("cpu", torch.bfloat16):
        half = ours(x, minibatch, 1, **named)
        theirs = pygs((x, x[:targets]), edges, *[one[: edges.size(1)] for one in attr])
    assert half.dtype is torch.bfloat16
    assert distance(half, plain) < max(0.02, 2 * distance(theirs, plain))
    half.float().square().sum().backward()
    skip = set() if getattr(ours, "root_weight", True) else {"lin_skip.weight", "lin_skip.bias"}
    for name, parameter in ours.named_parameters():
        assert name in skip or (parameter.grad is not None and parameter.grad.isfinite().all()), name


@pytest.mark.parametrize("options", [{}, {"concat": False}, None], ids=str)
def test_update_is_relu_and_dropout_of_the_plain_output(layer: str, options: dict[str, Any] | None) -> None:
    options = MORE[layer] if options is None else options
    assert_updates(both(layer, torch.float32, heads=4, **options)[0], CASES["all neighbours"])


def test_unknown_widths_come_from_the_first_call(layer: str) -> None:
    edges, results = torch.randint(60, (2, 50)), []
    for room in (nn, pyg):
        torch.manual_seed(2)
        results.append(getattr(room, layer)(-1, 4, heads=2)(table(), edges))
    assert distance(*results) < 1e-5


@pytest.mark.parametrize("options", [{}, {"edge_dim": 2}], ids=str)
def test_returns_attention_weights_as_pyg(layer: str, options: dict[str, Any]) -> None:
    ours, pygs = both(layer, torch.float64, heads=3, **options)
    edge_index, seen = torch.randint(20, (2, 90)), []

    def call(conv: Any, *given_now: Tensor) -> dict[str, Tensor]:
        x, *attr = given_now
        out, (edges, alpha) = conv(x, edge_index, *attr, return_attention_weights=True)
        seen.append(edges)
        return {"output": out, "alpha": alpha}

    x = torch.randn(20, FEATURES, dtype=torch.float64)
    assert_as_pygs(ours, pygs, call, call, x, *features(ours, 90))
    assert all(torch.equal(edges, seen[0]) for edges in seen)


@pytest.mark.parametrize(("name", "lin"), [("GATConv", "lin"), ("GATv2Conv", "lin_l")])
def test_attention_weights_of_a_minibatch_are_those_summed_with(name: str, lin: str) -> None:
    ours, _ = both(name, torch.float64, heads=2, dropout=0.4, bias=False)
    minibatch = CASES["all neighbours"]
    x = table(torch.float64)[minibatch.node]
    found, (edges, alpha) = ours(x, minibatch, 1, return_attention_weights=True)
    messages = getattr(ours, lin)(x).view(-1, 2, 5)[edges[0]] * alpha.unsqueeze(-1)
    wanted = torch.zeros(found.size(0), 2, 5, dtype=torch.float64).index_add(0, edges[1], messages)
    assert distance(found, wanted.view(-1, 10)) < 1e-10
    assert 0.2 < float((alpha == 0).double().mean()) < 0.6
    assert not torch.equal(alpha[:, 0] == 0, alpha[:, 1] == 0)


@pytest.mark.parametrize("layer", TRANSFORMERS, indirect=True)
@pytest.mark.parametrize("edge_dim", [None, 3])
def test_dropout_follows_the_softmax(
    layer: str, edge_dim: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, pygs = both(layer, torch.float64, heads=2, dropout=0.4, edge_dim=edge_dim)
    minibatch = CASES["all neighbours"]
    graph = layer_graph(minibatch, 1)
    ones, key = torch.ones(graph.num_edges, 2).double(), ops.attention_key(graph.dropout_key())
    keep = ops.attention_weights(ones, graph.indptr, node=graph.node, drop=0.4, key=key)
    assert 0.2 < float((keep == 0).double().mean()) < 0.6 and not torch.equal(keep[:, 0], keep[:, 1])
    monkeypatch.setattr("torch.nn.functional.dropout", lambda alpha, **_: alpha * keep)
    edges = torch.stack([graph.indices.long(), graph.targets])
    assert_as_pygs(
        *(ours, pygs),
        lambda conv, x, *attr: conv(x, graph, *attr),
        lambda conv, x, *attr: conv((x, x[: graph.num_targets]), edges, *attr),
        *(table(torch.float64)[minibatch.node], *features(ours, graph.num_edges)),
    )


def test_dropout_of_attention_belongs_to_the_minibatch(layer: str) -> None:
    ours, _ = both(layer, torch.float32, heads=2, dropout=0.5)
    minibatch, x = CASES["all neighbours"], table()[CASES["all neighbours"].node]
    state = torch.get_rng_state()
    first, again = ours(x, minibatch, 1), ours(x, minibatch, 1)
    assert torch.equal(first, again) and torch.equal(torch.get_rng_state(), state)
    ours.eval()
    assert not torch.equal(first, ours(x, minibatch, 1))
    ours.train()
    edge_index = minibatch.edge_index
    assert not torch.equal(ours(x, edge_index), ours(x, edge_index))
    torch.manual_seed(4)
    once = ours(x, edge_index)
    torch.manual_seed(4)
    assert torch.equal(once, ours(x, edge_index))


def test_gradcheck_with_dropout(layer: str) -> None:
    ours, _ = both(layer, torch.float64, 4, 3, heads=2, dropout=0.3, **MORE[layer])
    graph = layer_graph(CASES["ordinary"], 3)
    leaves = [torch.randn(graph.num_sources, 4, dtype=torch.float64).requires_grad_(), *ours.parameters()]
    assert torch.autograd.gradcheck(lambda x, *_: ours(x, graph), leaves)


EDGE = torch.zeros(2, 1, dtype=torch.int64)
BATCH = CASES["ordinary"]
ROWS = table()[BATCH.node]


def changed(conv: TransformerConv) -> TransformerConv:
    conv.lin_value = torch.nn.Linear(FEATURES, 4)
    return conv


@pytest.mark.parametrize("kind", [GATConv, GATv2Conv, TransformerConv])
def test_what_no_layer_with_attention_takes_is_refused(kind: Any) -> None:
    with pytest.raises(ValueError, match=r"aggr='max'.*torch_geometric"):
        kind(4, 4, aggr="max")
    with pytest.raises(ValueError, match=r"1\.0"):
        kind(4, 4, dropout=1.0)
    with pytest.raises(ValueError, match="without edge_dim"):
        kind(FEATURES, 4)(ROWS, BATCH, 1, edge_attr=torch.ones(BATCH.num_edges, 2))
    with pytest.raises(ValueError, match="depends on the edge"):
        kind(FEATURES, 4)(Aggregated("mean", ROWS), BATCH)
    with pytest.raises(ValueError, match=r"\[E, 3\].*\[1, 2\]"):
        kind(FEATURES, 4, edge_dim=3)(table(), EDGE, torch.zeros(1, 2))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: GATConv(4, 2, edge_dim=3, fill_value="median"), "median.*mean"),
        (lambda: GATv2Conv(4, 4, fill_value="most"), "fill_value='most'"),
        (lambda: TransformerConv(4, 4, edge_dim=0), "edge_dim=0"),
        (lambda: TransformerConv(FEATURES, 4, edge_dim=2)(ROWS, BATCH, 1), "edge_dim, but edge_attr"),
        (lambda: changed(TransformerConv(FEATURES, 4))(ROWS, BATCH, 1), "lin_value is a Linear, not PyG's"),
    ],
)
def test_refused(call: Callable[[], Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        call()
