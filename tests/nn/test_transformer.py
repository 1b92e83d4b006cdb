"""`nn.TransformerConv` beside PyG's, on minibatches and on graphs held whole."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch_geometric.nn
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.nn import (
    Aggregated,
    HeteroConv,
    LayerGraph,
    RowView,
    TransformerConv,
    Update,
    layer_graph,
    transformer,
)
from tests.nn.test_gat import assert_equal_gradients
from tests.support.accuracy import assert_as_pygs
from tests.support.layer_cases import FEATURES, batch_cases, layer_edges, relative_error, table
from tests.support.layer_pairs import assert_attention_as_pygs
from tests.support.model_pairs import step_gradients
from tests.support.tiers import examples

CASES = batch_cases()
OPTIONS: list[dict[str, Any]] = [
    {},
    {"heads": 4},
    {"heads": 3, "concat": False, "bias": False},
    {"heads": 2, "root_weight": False},
    {"beta": True},
    {"heads": 3, "beta": True, "concat": False},
    {"heads": 2, "beta": True, "root_weight": False},
    {"heads": 2, "edge_dim": 3},
    {"edge_dim": 1, "concat": False, "beta": True},
    {"heads": 2, "edge_dim": 3, "concat": False, "bias": False},
]
#: What is multiplied first: the sums of raw rows, or every source.
FIRST = {"sums": 0.0, "sources": 1e9}


@pytest.fixture(params=FIRST)
def first(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Multiplies sums or sources first, whatever the shapes are."""
    monkeypatch.setattr(transformer, "_LEAST_GAIN", FIRST[request.param])
    yield request.param


def both(
    dtype: torch.dtype, in_channels: Any = FEATURES, out_channels: int = 5, **options: Any
) -> tuple[TransformerConv, torch_geometric.nn.TransformerConv]:
    torch.manual_seed(3)
    pygs = torch_geometric.nn.TransformerConv(in_channels, out_channels, **options)
    torch.manual_seed(3)
    ours = TransformerConv(in_channels, out_channels, **options)
    assert list(ours.state_dict()) == list(pygs.state_dict()) and repr(ours) == repr(pygs)
    for name, value in pygs.state_dict().items():
        assert torch.equal(ours.state_dict()[name], value), name
    for parameter in pygs.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    ours.load_state_dict(pygs.state_dict())
    return ours.to(dtype), pygs.to(dtype)


def features(conv: TransformerConv, edges: int, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    return [] if conv.edge_dim is None else [torch.randn(edges, conv.edge_dim, dtype=dtype)]


@pytest.mark.usefixtures("first")
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("out_channels", [5, 40])
def test_equals_pyg_on_minibatches(dtype: torch.dtype, options: dict[str, Any], out_channels: int) -> None:
    ours, pygs = both(dtype, out_channels=out_channels, **options)
    for minibatch in CASES.values():
        assert_attention_as_pygs(ours, pygs, minibatch, (1, 3))


@pytest.mark.usefixtures("first")
@pytest.mark.parametrize("form", ["tensor", "pair", "widths apart"])
@pytest.mark.parametrize("options", [{"heads": 2}, {"heads": 2, "edge_dim": 3, "beta": True}], ids=str)
def test_equals_pyg_on_a_whole_graph(options: dict[str, Any], form: str) -> None:
    columns = 7 if form == "widths apart" else FEATURES
    ours, pygs = both(torch.float64, (FEATURES, 7) if form == "widths apart" else FEATURES, **options)
    edge_index = torch.stack([torch.randint(30, (90,)), torch.randint(20, (90,))])
    x = torch.randn(30, FEATURES, dtype=torch.float64)
    pair = [] if form == "tensor" else [torch.randn(20, columns, dtype=torch.float64)]
    attr = features(ours, 90)

    def call(conv: Any, x: Tensor, *rest: Tensor) -> Tensor:
        rows = (x, rest[0]) if pair else x
        result: Tensor = conv(rows, edge_index, *rest[len(pair) :])
        return result

    assert_as_pygs(ours, pygs, call, call, x, *pair, *attr)


@pytest.mark.usefixtures("first")
@pytest.mark.parametrize("heads", [1, 4])
def test_is_as_accurate_as_pyg(heads: int) -> None:
    ours, pygs = both(torch.float32, 100, 32, heads=heads)
    edge_index, x = torch.randint(300, (2, 5000)), torch.randn(300, 100)
    assert_as_pygs(ours, pygs, *[lambda conv, x: conv(x, edge_index)] * 2, x)


@given(
    targets=st.integers(0, 7),
    more=st.integers(0, 6),
    edges=st.integers(0, 40),
    heads=st.integers(1, 5),
    flags=st.tuples(*[st.booleans()] * 5),
    seed=st.integers(0, 1000),
)
@examples(60)
def test_equals_pyg_on_any_graph(
    targets: int, more: int, edges: int, heads: int, flags: tuple[bool, ...], seed: int
) -> None:
    """Isolated nodes, parallel edges and self loops occur, and graphs without edges or nodes."""
    concat, beta, with_attr, bias, sources_first = flags
    torch.manual_seed(seed)
    options: dict[str, Any] = {"heads": heads, "concat": concat, "beta": beta, "bias": bias}
    ours, pygs = both(torch.float64, out_channels=3, edge_dim=2 if with_attr else None, **options)
    count = edges if targets else 0
    edge_index = torch.stack(
        [torch.randint(max(targets + more, 1), (count,)), torch.randint(max(targets, 1), (count,))]
    )
    x = torch.randn(targets + more, FEATURES, dtype=torch.float64)

    def call(conv: Any, x: Tensor, *attr: Tensor) -> Tensor:
        result: Tensor = conv((x, x[:targets]), edge_index, *attr)
        return result

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transformer, "_LEAST_GAIN", FIRST["sources" if sources_first else "sums"])
        assert_as_pygs(ours, pygs, call, call, x, *features(ours, count))


@pytest.mark.usefixtures("first")
@pytest.mark.parametrize(
    "options", [{"beta": True, "dropout": 0.3}, {"concat": False, "edge_dim": 2}], ids=str
)
def test_gradcheck(options: dict[str, Any]) -> None:
    ours, _ = both(torch.float64, 4, 3, heads=2, **options)
    graph = layer_graph(CASES["ordinary"], 3)
    inputs = [torch.randn(graph.num_sources, 4, dtype=torch.float64), *features(ours, graph.num_edges)]
    leaves = [one.requires_grad_() for one in (*inputs, *ours.parameters())]
    assert torch.autograd.gradcheck(lambda *given: ours(given[0], graph, *given[1 : len(inputs)]), leaves)


# Attention weights and dropout ####################################################################


@pytest.mark.usefixtures("first")
@pytest.mark.parametrize("asked", [True, False])
def test_returns_attention_weights_as_pyg(asked: bool) -> None:
    ours, pygs = both(torch.float64, heads=3, edge_dim=2)
    edge_index = torch.randint(20, (2, 90))
    x = torch.randn(20, FEATURES, dtype=torch.float64, requires_grad=True)
    (attr,) = features(ours, 90)
    found, (edges, alpha) = ours(x, edge_index, attr, return_attention_weights=asked)
    wanted, (their_edges, their_alpha) = pygs(x, edge_index, attr, return_attention_weights=asked)
    assert torch.equal(edges, their_edges) and relative_error(alpha, their_alpha) < 1e-10
    mine = step_gradients(ours, torch.cat([found.flatten(), alpha.flatten()]), x)
    theirs = step_gradients(pygs, torch.cat([wanted.flatten(), their_alpha.flatten()]), x)
    assert_equal_gradients(mine, theirs, 1e-10)


def kept(graph: LayerGraph, heads: int, drop: float) -> Tensor:
    """Returns what dropout multiplies the weights of a layer with, [E, heads]."""
    ones = torch.ones(graph.num_edges, heads, dtype=torch.float64)
    key = ops.attention_key(graph.dropout_key())
    return ops.attention_weights(ones, graph.indptr, node=graph.node, drop=drop, key=key)


@pytest.mark.usefixtures("first")
@pytest.mark.parametrize("edge_dim", [None, 3])
def test_dropout_of_attention_is_keyed_and_follows_the_softmax(
    edge_dim: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, pygs = both(torch.float64, heads=2, dropout=0.4, edge_dim=edge_dim)
    minibatch = CASES["all neighbours"]
    graph = layer_graph(minibatch, 1)
    keep = kept(graph, 2, 0.4)
    assert 0.2 < float((keep == 0).double().mean()) < 0.6 and not torch.equal(keep[:, 0], keep[:, 1])
    monkeypatch.setattr("torch.nn.functional.dropout", lambda alpha, **_: alpha * keep)
    edges = torch.stack([graph.indices.long(), graph.targets])
    x, attr = table(torch.float64)[minibatch.node], features(ours, graph.num_edges)
    assert_as_pygs(
        *(ours, pygs),
        lambda conv, x, *attr: conv(x, graph, *attr),
        lambda conv, x, *attr: conv((x, x[: graph.num_targets]), edges, *attr),
        *(x, *attr),
    )
    assert torch.equal(ours(x, graph, *attr), ours(x, graph, *attr))
    assert not torch.equal(ours(x, graph, *attr), ours.eval()(x, graph, *attr))


def test_rate_of_dropout_of_a_whole_graph() -> None:
    nodes, drop = 4000, 0.3
    conv = TransformerConv(FEATURES, 1, dropout=drop, root_weight=False)
    torch.nn.init.zeros_(conv.lin_value.weight)
    torch.nn.init.ones_(conv.lin_value.bias)
    x, ring = torch.randn(nodes, FEATURES), torch.stack([torch.arange(nodes), torch.arange(nodes).roll(1)])
    one, two = (conv(x, ring).flatten() for _ in range(2))  # every weight is one before dropout
    dropped = one == 0
    sigma = (drop * (1 - drop) / nodes) ** 0.5
    assert abs(float(dropped.float().mean()) - drop) < 5 * sigma
    assert torch.allclose(one[~dropped], torch.tensor(1 / (1 - drop)), atol=1e-3)
    assert not torch.equal(one, two)


# Rows, dtypes and threads #########################################################################


@pytest.mark.usefixtures("first")
def test_reads_rows_in_place_and_updates() -> None:
    ours, _ = both(torch.float32, heads=4)
    minibatch = CASES["ordinary"]
    rows = RowView(table(), minibatch.node)
    plain = ours(rows, minibatch, 1)
    assert torch.equal(plain, ours(table()[minibatch.node], minibatch, 1))
    assert torch.equal(ours(rows, minibatch, 1, update=Update(relu=True)), plain.relu())
    narrow = ours(RowView(table().half(), minibatch.node), minibatch, 1)
    assert narrow.dtype is torch.float32 and relative_error(narrow, plain) < 0.01


@pytest.mark.usefixtures("first")
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_bfloat16(options: dict[str, Any]) -> None:
    ours, pygs = both(torch.float32, out_channels=8, **options)
    minibatch = CASES["ordinary"]
    edges, sources, targets = layer_edges(minibatch, 1)
    x = table()[minibatch.node[:sources]]
    attr = features(ours, minibatch.num_edges, torch.float32)
    plain = ours(x, minibatch, 1, *attr)
    with torch.autocast("cpu", torch.bfloat16):
        half = ours(x, minibatch, 1, *attr)
        pygs_half = pygs((x, x[:targets]), edges, *[one[: edges.size(1)] for one in attr])
    assert half.dtype is torch.bfloat16
    assert relative_error(half, plain) < max(0.02, 2 * relative_error(pygs_half, plain))
    half.float().square().sum().backward()
    skip = set() if ours.root_weight else {"lin_skip.weight", "lin_skip.bias"}
    for name, parameter in ours.named_parameters():
        assert name in skip or (parameter.grad is not None and parameter.grad.isfinite().all()), name
    narrow = ours.bfloat16()(x.bfloat16(), minibatch, 1, *attr)
    assert narrow.dtype is torch.bfloat16 and relative_error(narrow, plain) < 0.05


@pytest.mark.usefixtures("first")
def test_the_same_bits_on_any_number_of_threads() -> None:
    edge_index, x = torch.randint(2000, (2, 40_000)), torch.randn(2000, 32)
    attr = torch.randn(40_000, 3)

    def run(threads: int) -> dict[str, Tensor]:
        torch.set_num_threads(threads)
        torch.manual_seed(1)
        conv = TransformerConv(32, 16, heads=4, beta=True, dropout=0.2, edge_dim=3)
        rows, of_edges = x.clone().requires_grad_(), attr.clone().requires_grad_()
        out, (_, alpha) = conv(rows, edge_index, of_edges, return_attention_weights=True)
        found = step_gradients(conv, torch.cat([out.flatten(), alpha.flatten()]), rows, of_edges)
        return {**found, "out": out, "alpha": alpha}

    once = run(1)
    for threads in (2, 3, 8):
        again = run(threads)
        assert all(torch.equal(value, again[name]) for name, value in once.items())


# What is multiplied ###############################################################################


def test_sources_are_multiplied_first_where_that_is_less_work() -> None:
    def graph(targets: int, sources: int, degree: int) -> LayerGraph:
        indptr = torch.arange(targets + 1) * degree
        indices = torch.arange(targets * degree, dtype=torch.int32) % sources
        return LayerGraph(ops.InEdges(indptr, indices), sources)

    sampled, whole = graph(100, 900, 10), graph(500, 500, 20)
    for heads in (1, 2, 8):
        assert not TransformerConv(128, 256 // heads, heads)._multiplies_sources(sampled)
    assert not TransformerConv(256, 256)._multiplies_sources(whole)
    assert TransformerConv(256, 32, heads=8)._multiplies_sources(whole)


@pytest.mark.usefixtures("first")
def test_the_bias_of_keys_has_a_gradient_of_zeros() -> None:
    """The softmax does not see it. An optimizer that decays weights must find a gradient."""
    ours, _ = both(torch.float32)
    ours(table(), torch.randint(60, (2, 90))).sum().backward()
    assert torch.equal(ours.lin_key.bias.grad, torch.zeros(5))


# Other calls ######################################################################################


def test_unknown_widths_come_from_the_first_call() -> None:
    torch.manual_seed(1)
    edge_index, attr = torch.randint(60, (2, 50)), torch.randn(50, 3)
    results = []
    for kind in (TransformerConv, torch_geometric.nn.TransformerConv):
        torch.manual_seed(2)
        conv = kind((-1, -1), 4, heads=2, edge_dim=-1)
        results.append(conv(table(), edge_index, attr))
        assert conv.lin_key.weight.shape == conv.lin_skip.weight.shape == (8, FEATURES)
    assert relative_error(*results) < 1e-5


def test_features_of_edges_by_relation() -> None:
    relations = [("a", "to", "b"), ("b", "back", "a")]
    x = {name: torch.randn(9, FEATURES, dtype=torch.float64) for name in "ab"}
    edges = {one: torch.randint(9, (2, 30)) for one in relations}
    attr = {relations[0]: torch.randn(30, 2, dtype=torch.float64)}

    def made(kind: Any, hetero: Any) -> Any:
        torch.manual_seed(4)
        return hetero({relations[0]: kind(FEATURES, 4, edge_dim=2), relations[1]: kind(FEATURES, 4)}).double()

    ours, pygs = (
        made(TransformerConv, HeteroConv),
        made(torch_geometric.nn.TransformerConv, torch_geometric.nn.HeteroConv),
    )
    found, wanted = (conv(x, edges, edge_attr_dict=attr) for conv in (ours, pygs))
    assert all(relative_error(found[name], wanted[name]) < 1e-10 for name in "ab")


def test_refused() -> None:
    minibatch = CASES["ordinary"]
    x, attr = table()[minibatch.node], torch.ones(minibatch.num_edges, 2)
    conv = TransformerConv(FEATURES, 4)
    with pytest.raises(ValueError, match="aggr='max'"):
        TransformerConv(4, 4, aggr="max")
    with pytest.raises(ValueError, match="edge_dim=0"):
        TransformerConv(4, 4, edge_dim=0)
    with pytest.raises(ValueError, match="dropout=1"):
        TransformerConv(4, 4, dropout=1.0)
    with pytest.raises(ValueError, match="sources, targets"):
        conv((x, None), minibatch, 1)
    with pytest.raises(ValueError, match="without edge_dim"):
        conv(x, minibatch, 1, edge_attr=attr)
    with pytest.raises(ValueError, match="constructed with edge_dim, but edge_attr"):
        TransformerConv(FEATURES, 4, edge_dim=2)(x, minibatch, 1)
    with pytest.raises(ValueError, match="attention weighs"):
        conv(Aggregated("mean", x), minibatch)
    with pytest.raises(ValueError, match=r"rows, 12\]"):
        conv(x[:, :3], minibatch, 1)
    conv.lin_value = torch.nn.Linear(FEATURES, 4)
    with pytest.raises(ValueError, match="lin_value is a Linear, not PyG's"):
        conv(x, minibatch, 1)
