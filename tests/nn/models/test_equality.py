"""Native models against PyG's on sampled minibatches: state, outputs and all gradients."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor

from pyg_batchgnn import nn, ops
from pyg_batchgnn.nn import modules as norm_module
from tests.support import model_pairs
from tests.support.accuracy import ALONE, distance
from tests.support.layer_cases import FEATURES, batch_cases, gradients, sampled, small_edges, table
from tests.support.model_pairs import CLASSES, HIDDEN, KINDS, with_features
from tests.support.tiers import each
from tests.support.typed_layers import assert_near

CASES = batch_cases()


@pytest.mark.parametrize("kind", KINDS)
def test_the_three_ways_to_call(kind: str) -> None:
    native = model_pairs.native(kind).eval()
    batch = with_features(CASES["all neighbours"])
    through_row = native(batch)
    assert torch.equal(through_row, native(batch, x=table()[batch.node]))
    assert torch.equal(through_row, native(batch, x=nn.RowView(table(), batch.node)))
    hidden = native.outputs(batch).hidden
    assert torch.equal(hidden, native.outputs(batch, x=table()[batch.node]).hidden)
    # All neighbours of all hops are sampled, so that the seeds see what they see in the whole
    # graph.
    if kind != "gcn":
        assert distance(through_row, native(table(), small_edges())[batch.node[:3]]) < ALONE


LAYERS = 3
MODELS: dict[str, tuple[Callable[..., nn.NativeModel], Callable[..., Any]]] = {
    "sage": (nn.SAGE, pyg.GraphSAGE),
    "gcn": (nn.GCN, pyg.GCN),
    "gin": (nn.GIN, pyg.GIN),
    "gat": (nn.GAT, pyg.GAT),
    "gatv2": (functools.partial(nn.GAT, v2=True), functools.partial(pyg.GAT, v2=True)),
}
#: Per row norms, so that a model may compute fewer rows.
NODE_NORM = {"norm": "layer_norm", "norm_kwargs": {"mode": "node"}}
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "batch norm": {"norm": "batch_norm"},
    "batch norm after act": {"norm": "BatchNorm", "act_first": True, "norm_kwargs": {"eps": 0.1}},
    "batch norm and elu": {"norm": "batch_norm", "act": "elu"},
    "layer norm": NODE_NORM,
    "layer norm after act": {**NODE_NORM, "act": "leaky_relu", "act_kwargs": {"negative_slope": 0.3}},
    "learned act": {**NODE_NORM, "act": "prelu", "act_first": True},
    "no act": {"act": None, "norm": torch.nn.LayerNorm(HIDDEN)},
    "jk last": {"jk": "last"},
    "jk cat": {"jk": "cat", "norm": "batch_norm"},
    "jk max": {"jk": "max", "act": "tanh"},
    "jk lstm": {"jk": "lstm"},
    "no columns of the result": {"out_channels": None},
    "one layer": {"num_layers": 1},
}


def both_kinds(
    kind: str, dtype: torch.dtype = torch.float64, hidden: int = HIDDEN, **options: Any
) -> tuple[nn.NativeModel, Any]:
    ours, pygs = MODELS[kind]
    heads = {"heads": 4} if kind.startswith("gat") and options.get("out_channels", 0) is not None else {}
    arguments = {"num_layers": LAYERS, "out_channels": CLASSES, **heads, **options}
    torch.manual_seed(11)
    native, reference = ours(FEATURES, hidden, **arguments), pygs(FEATURES, hidden, **arguments)
    for name, buffer in reference.named_buffers():
        if name.endswith(("running_mean", "running_var")):
            buffer.uniform_(0.5, 1.5)
    native.load_state_dict(reference.state_dict())
    return native.to(dtype), reference.to(dtype)


def assert_same(
    native: nn.NativeModel, reference: Any, found: Tensor, wanted: Tensor, tolerance: float
) -> None:
    assert found.shape == wanted.shape and distance(found, wanted) < tolerance
    assert_near(gradients(native, found), gradients(reference, wanted), tolerance)


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("kind", MODELS)
def test_state_moves_both_ways(kind: str, options: str) -> None:
    native, reference = both_kinds(kind, **OPTIONS[options])
    assert list(native.state_dict()) == list(reference.state_dict())
    assert [name for name, _ in native.named_parameters()] == [
        name for name, _ in reference.named_parameters()
    ]
    with torch.no_grad():
        for parameter in native.parameters():
            parameter.add_(1.0)
    reference.load_state_dict(native.state_dict())
    for name, value in native.state_dict().items():
        assert torch.equal(value, reference.state_dict()[name]), name


@each
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("kind", MODELS)
def test_a_whole_graph_in_training_and_evaluation(kind: str, options: str) -> None:
    native, reference = both_kinds(kind, **OPTIONS[options])
    x = table(torch.float64)
    for _ in range(2):
        assert_same(native, reference, native(x, small_edges()), reference(x, small_edges()), 1e-9)
        native.eval()
        reference.eval()
    for name, value in reference.named_buffers():
        assert distance(native.get_buffer(name), value) < 1e-10, name


@each
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("kind", MODELS)
def test_the_seeds_of_a_minibatch(kind: str, options: str, case: str) -> None:
    """PyG's model computes all rows of the minibatch, the native one those that are read."""
    native, reference = (model.eval() for model in both_kinds(kind, **OPTIONS[options]))
    minibatch = sampled([3, 1, 4, 15, 9, 3], (4,)) if options == "one layer" else CASES[case]
    wanted = reference(table(torch.float64)[minibatch.node], minibatch.edge_index)[: minibatch.batch_size]
    assert_same(native, reference, native(with_features(minibatch, torch.float64)), wanted, 1e-9)


def test_values_of_edges() -> None:
    minibatch = sampled([3, 1, 4, 15], (4, 3, 2))
    x = table(torch.float64)[minibatch.node]
    weight = torch.rand(minibatch.num_edges, dtype=torch.float64)
    native, reference = both_kinds("gcn")
    wanted = reference(x, minibatch.edge_index, weight)[:4]
    assert_same(native, reference, native(minibatch, edge_weight=weight, x=x), wanted, 1e-9)
    assert distance(native(x, minibatch.edge_index, weight)[:4], wanted) < 1e-10
    native, reference = both_kinds("gat", edge_dim=2, add_self_loops=False)
    attr = torch.rand(minibatch.num_edges, 2, dtype=torch.float64)
    wanted = reference(x, minibatch.edge_index, edge_attr=attr)[:4]
    assert_same(native, reference, native(minibatch, edge_attr=attr, x=x), wanted, 1e-9)


@pytest.mark.parametrize("kind", ["sage", "gcn", "gat", "gatv2"])
def test_initialised_as_pygs(kind: str) -> None:
    """Bit for bit; the perceptrons of PyG's GIN draw their weights twice."""
    ours, pygs = MODELS[kind]
    torch.manual_seed(5)
    native = ours(FEATURES, HIDDEN, 2, CLASSES, norm="batch_norm", jk="lstm").state_dict()
    torch.manual_seed(5)
    for name, value in pygs(FEATURES, HIDDEN, 2, CLASSES, norm="batch_norm", jk="lstm").state_dict().items():
        assert torch.equal(native[name], value), name


@pytest.mark.parametrize("options", ["plain", "batch norm", "batch norm after act", "batch norm and elu"])
@pytest.mark.parametrize("kind", MODELS)
def test_dropout_follows_all_and_is_keyed(kind: str, options: str) -> None:
    arguments = (
        {"num_layers": 1, "jk": "last", "attention_dropout": 0.0}
        if kind.startswith("gat")
        else {"num_layers": 1, "jk": "last"}
    )
    torch.manual_seed(1)
    model = MODELS[kind][0](
        FEATURES, HIDDEN, out_channels=CLASSES, dropout=0.5, **arguments, **OPTIONS[options]
    )
    whole = copy.deepcopy(model)
    whole.dropout.p = 0.0
    minibatch = with_features(sampled(list(range(40)), (4,)))
    found, wanted = model.outputs(minibatch).hidden, whole.outputs(minibatch).hidden
    dropped = (found == 0) & (wanted != 0)
    assert 0.4 < float(dropped.sum() / (wanted != 0).sum()) < 0.6
    assert distance(found[~dropped], 2 * wanted[~dropped]) < 1e-6
    assert torch.equal(model.outputs(minibatch).hidden, found)
    found.square().sum().backward()
    later = with_features(sampled(list(range(40)), (4,), 1))
    assert not torch.equal(model.outputs(later).hidden == 0, found == 0)


@pytest.fixture
def products(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Makes few rows count as many. Returns the rows of each product that is normalised at once."""
    seen: list[int] = []
    real = ops.linear_norm
    monkeypatch.setattr(norm_module, "MANY_ROWS", 2)
    monkeypatch.setattr(ops, "linear_norm", lambda x, *a, **b: seen.append(x.size(0)) or real(x, *a, **b))
    return seen


@pytest.mark.parametrize("jk", [None, "cat"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gin_normalises_products_at_once(dtype: torch.dtype, jk: str | None, products: list[int]) -> None:
    native, reference = both_kinds("gin", dtype, 2 * FEATURES, norm="batch_norm", jk=jk)
    tolerance = 1e-5 if dtype is torch.float32 else 1e-9
    for _ in range(2):
        found, wanted = native(table(dtype), small_edges()), reference(table(dtype), small_edges())
        assert_same(native, reference, found, wanted, tolerance)
    for name, value in reference.named_buffers():
        assert distance(native.get_buffer(name), value) < tolerance, name
    # The inner and the outer normalisation of each layer. Without jumping knowledge, none follows
    # the last layer.
    assert products == [60] * 2 * (2 * LAYERS - (jk is None))


@pytest.mark.parametrize("name", ["convs.0.nn.lins.0", "convs.0.nn.lins.1", "norms.0", "norms.0.module"])
def test_who_watches_a_module_of_gin_sees_what_pygs_gives(name: str, products: list[int]) -> None:
    models = both_kinds("gin", norm="batch_norm")
    seen: list[Tensor] = []
    for model in models:
        model.get_submodule(name).register_forward_hook(lambda *call: seen.append(call[-1].detach()))
    native, reference = models
    x = table(torch.float64)
    assert_same(native, reference, native(x, small_edges()), reference(x, small_edges()), 1e-9)
    # The native normalisation has the ReLU inside.
    found, wanted = seen[0], seen[1].relu() if name.startswith("norms") else seen[1]
    assert len(seen) == 2 and distance(found, wanted) < 1e-9
    assert len(products) == 2 * LAYERS - 2  # one less than without the hook
