"""Modules are replaced in place where that changes nothing; others are left, with the reason."""

from __future__ import annotations

import copy
import functools
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor
from torch.nn.utils import parametrizations
from torch_geometric.nn.dense.linear import is_uninitialized_parameter

import pyg_batchgnn
from pyg_batchgnn.port import accelerate
from tests.support.ported_models import (
    FEATURES,
    KNOWLEDGE,
    MODELS,
    accelerated,
    batch_of,
    minibatch_of,
    report_of,
)
from tests.support.tiers import each

#: Products of options are in `make test-all`.
pytestmark = each


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = pyg.SAGEConv(FEATURES, 8)
        self.norm = torch.nn.BatchNorm1d(8)
        self.second = pyg.GATConv(8, 4, heads=2)
        self.after = torch.nn.Sequential(pyg.BatchNorm(8), torch.nn.ReLU(), torch.nn.Dropout(0.0))
        inner = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 8))
        self.third = pyg.GINConv(inner)
        self.last = pyg.GCNConv(8, 3)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        x = self.norm(self.first(x, edge_index)).relu()
        x = self.after(self.second(x, edge_index))
        x = self.third(x, edge_index)
        return self.last(x, edge_index, edge_weight)


def reasons(model: torch.nn.Module) -> dict[str, str]:
    return {one.name: one.why for one in report_of(model).left}


@pytest.mark.parametrize("name", [*MODELS, *KNOWLEDGE])
def test_parameters_and_keys_stay(name: str) -> None:
    model = (MODELS | KNOWLEDGE)[name](2)
    kind, parameters, shown = type(model), list(model.parameters()), (repr(model), str(model.convs))
    keys = {key: value.clone() for key, value in model.state_dict().items()}
    assert accelerate(model) is model
    assert isinstance(model, kind) and (repr(model), str(model.convs)) == shown
    assert [id(one) for one in model.parameters()] == [id(one) for one in parameters]
    assert list(model.state_dict()) == list(keys)
    assert all(torch.equal(value, keys[key]) for key, value in model.state_dict().items())
    kind_of = (MODELS | KNOWLEDGE)[name]
    model.load_state_dict(kind_of(2).state_dict())
    kind_of(2).load_state_dict(model.state_dict())


def test_the_report_names_what_was_replaced(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", logger="pyg_batchgnn"):
        accelerate(pyg.SAGEConv(4, 4))
    assert "replaced the model (SAGEConv)" in caplog.text
    model = Net()
    report = report_of(model)
    found = " ".join(f"{one.name}:{one.kind}" for one in report.replaced)
    parts = "first:SAGEConv norm:BatchNorm1d second:GATConv after.0.module:BatchNorm1d after.1:ReLU"
    assert found == f"{parts} after.2:Dropout third:GINConv third.nn.1:ReLU last:GCNConv"
    assert report.left == []
    assert "9 modules replaced, 0 left" in str(report) and "replaced first (SAGEConv)" in str(report)
    assert type(model.third.nn[0]) is torch.nn.Linear
    assert str(report_of(model)) == "0 modules replaced, 0 left"


class OwnSAGE(pyg.SAGEConv):
    """A subclass, whose methods may differ."""


def test_what_is_left_and_why() -> None:
    model = Net()
    model.first.register_forward_hook(lambda *_: None)
    parametrizations.weight_norm(model.second.lin)
    model.last = OwnSAGE(8, 3)
    model.fourth = model.third
    model.fifth = pyg.SAGEConv(8, 8, aggr="median")
    model.sixth = pyg.GCNConv(8, 8, cached=True)
    model.seventh = pyg.TAGConv(8, 8)
    model.eighth = pyg.LayerNorm(8)
    model.ninth = pyg.SAGEConv(8, 8)
    model.ninth.lin_l.register_forward_pre_hook(lambda *_: None)
    model.tenth = pyg.SAGEConv(8, 8)
    model.tenth.lin_r = torch.nn.Linear(8, 8, bias=False)
    model.eleventh = pyg.SAGEConv(8, 8)
    model.eleventh.register_propagate_forward_pre_hook(lambda *_: None)
    model.network = pyg.NNConv(2, 4, torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.ReLU()))
    model.twelfth = pyg.SAGEConv(8, 8)
    model.twelfth.forward = lambda x, edge_index: x  # noqa: ARG005 (a stand-in)
    kinds = {name: type(module) for name, module in model.named_modules()}
    found = reasons(model)
    for name, words in {
        "first": "hooks",
        "second": "lin has parametrisations",
        "last": "a subclass of SAGEConv",
        "third": "stands in 2 places",
        "fifth": "aggr='median'",
        "sixth": "cached=True",
        "seventh": "no native one",
        "eighth": "no native one",
        "ninth": "lin_l has hooks",
        "tenth": "lin_r is a Linear, not PyG's Linear",
        "eleventh": "hooks on messages",
        "twelfth": "hooks",
        "network": "ends in ReLU",
    }.items():
        assert words in found[name], name
        assert type(model.get_submodule(name)) is kinds[name]


def test_lazy_modules_stay_lazy() -> None:
    batch = batch_of(2)
    for kind in (pyg.GraphSAGE, pyg.GCN, pyg.GIN, pyg.GAT, functools.partial(pyg.GAT, v2=True)):
        torch.manual_seed(0)
        reference = kind(-1, 8, 2, 3).double()
        ours = copy.deepcopy(reference)
        parameters = list(ours.parameters())
        assert report_of(ours).left == []
        assert any(is_uninitialized_parameter(one) for one in parameters)
        assert [id(one) for one in ours.parameters()] == [id(one) for one in parameters]
        optimizer = torch.optim.SGD(ours.parameters(), lr=0.1)
        for model in (ours, reference):
            torch.manual_seed(1)
            model(batch.x, batch.edge_index).square().sum().backward()
        optimizer.step()
        assert not any(is_uninitialized_parameter(one) for one in ours.parameters())
        for one, other in zip(ours.parameters(), reference.parameters(), strict=True):
            assert torch.allclose(one.grad, other.grad, atol=1e-9)


def test_inputs_that_native_layers_do_not_take_are_left_to_pyg() -> None:
    reference = pyg.SAGEConv(FEATURES, 4).double()
    ours, batch = accelerated(reference), batch_of(2)
    size = (batch.num_nodes, batch.num_nodes)
    adjacency = torch.sparse_coo_tensor(
        batch.edge_index.flip(0), torch.ones(batch.num_edges, dtype=torch.float64), size
    ).to_sparse_csr()
    assert torch.allclose(ours(batch.x, adjacency), reference(batch.x, adjacency), atol=1e-12)
    pair = (batch.x, batch.x[:4])
    edges = batch.edge_index[:, batch.edge_index[1] < 4]
    assert torch.allclose(ours(pair, edges), reference(pair, edges), atol=1e-12)
    assert torch.allclose(
        ours(pair, edges, size=(size[0], 4)), reference(pair, edges, size=(size[0], 4)), atol=1e-12
    )
    static = batch.x.expand(2, *batch.x.shape)
    assert torch.allclose(ours(static, batch.edge_index), reference(static, batch.edge_index), atol=1e-12)


@pytest.mark.parametrize("edge_dim", [None, 3])
@pytest.mark.parametrize("kind", [pyg.GATConv, pyg.GATv2Conv, pyg.TransformerConv])
def test_attention(kind: type[torch.nn.Module], edge_dim: int | None) -> None:
    reference, batch = kind(FEATURES, 4, heads=2, edge_dim=edge_dim).double(), batch_of(2)
    ours, attr = accelerated(reference), None if edge_dim is None else batch.edge_attr
    edges, few = batch.edge_index, batch.edge_index[1] < 4
    pair, some = (batch.x, batch.x[:4]), None if attr is None else attr[few]
    outputs = []
    for conv in (ours, reference):
        out, (found, weights) = conv(batch.x, edges, attr, return_attention_weights=True)
        outputs.append([out, found, weights, conv(pair, edges[:, few], some)])
    assert all(map(torch.allclose, *outputs))


EDGE_LAYERS: dict[str, Callable[[], Any]] = {
    "gine": lambda: pyg.GINEConv(torch.nn.Linear(FEATURES, 4), edge_dim=3),
    "network": lambda: pyg.NNConv(FEATURES, 4, torch.nn.Linear(3, 4 * FEATURES), "mean"),
}


@pytest.mark.parametrize("name", EDGE_LAYERS)
def test_layers_that_read_features_of_edges(name: str) -> None:
    reference, batch, reports = EDGE_LAYERS[name]().double(), batch_of(2), []
    ours = accelerate(copy.deepcopy(reference), report=reports.append)
    assert len(reports[0].replaced) == 1 and not reports[0].left
    given = batch.x, batch.edge_index, batch.edge_attr
    wanted, seen = reference(*given), list[Any]()
    assert torch.allclose(ours(*given), wanted, atol=1e-12)
    ours.nn.register_forward_hook(lambda _module, _given, out: seen.append(out))
    assert torch.allclose(ours(*given), wanted, atol=1e-12) and len(seen) == 1


def test_attention_that_only_pygs_transformer_layer_computes() -> None:
    """Edge features without a weight are added to the values, and errors are PyG's."""
    batch, columns = batch_of(2), 4
    attr = torch.randn(batch.num_edges, 1, columns, dtype=torch.float64)
    reference = pyg.TransformerConv(FEATURES, columns).double()
    ours = accelerated(reference)
    found, wanted = (conv(batch.x, batch.edge_index, attr) for conv in (ours, reference))
    assert torch.allclose(found, wanted, atol=1e-12)
    of_edges = accelerate(pyg.TransformerConv(FEATURES, columns, edge_dim=3).double())
    with pytest.raises(AssertionError):
        of_edges(batch.x, batch.edge_index)
    with pytest.raises(TypeError):
        ours((batch.x, None), batch.edge_index)


def test_other_types_of_values() -> None:
    norm = accelerate(torch.nn.BatchNorm1d(4))
    assert norm(torch.randn(2, 4, 5)).shape == (2, 4, 5)
    with pytest.raises(ValueError, match="more than 1 value"):
        norm(torch.randn(1, 4))
    assert torch.equal(accelerate(torch.nn.ReLU())(torch.tensor([-1, 2])), torch.tensor([0, 2]))
    assert not accelerate(torch.nn.Dropout(1.0))(torch.ones(3, 3)).any()


def test_errors_name_the_class_that_the_user_wrote() -> None:
    conv, batch = accelerate(pyg.GATv2Conv(FEATURES, 4).double()), batch_of(2)
    with pytest.raises(ValueError, match="edge_dim"):
        conv(batch.x, batch.edge_index, batch.edge_attr)
    aggregated = pyg_batchgnn.nn.Aggregated("max", batch.x, batch.x)
    for kind in (pyg.GCNConv, pyg.SAGEConv, pyg.GATv2Conv, pyg.TransformerConv):
        made = accelerate(kind(FEATURES, 4).double())
        assert pyg_batchgnn.nn.layer_name(made) == kind.__name__
        native = getattr(pyg_batchgnn.nn, kind.__name__)
        with pytest.raises(ValueError, match=kind.__name__) as caught:
            native.forward(made, aggregated, minibatch_of(2))
        assert "Accelerated" not in str(caught.value)


# Names, files and tracers #########################################################################


def test_layers_are_printed_as_pygs() -> None:
    typed = pyg.HeteroConv({("a", "to", "a"): pyg.GCNConv(4, 4)})
    for module in (Net(), typed, typed.convs, pyg.MLP([4, 4, 4]), torch.nn.BatchNorm1d(4)):
        wanted = repr(module)
        assert repr(accelerate(module)) == wanted
    again = pickle.loads(pickle.dumps(accelerate(Net())))
    assert repr(again) == repr(Net()) and isinstance(again.first, pyg_batchgnn.nn.SAGEConv)


class Plain(torch.nn.Module):
    def __init__(self, lazy: bool = True) -> None:
        super().__init__()
        self.first, self.norm = pyg.SAGEConv((-1, -1) if lazy else FEATURES, 8), torch.nn.BatchNorm1d(8)
        self.act, self.drop = torch.nn.ReLU(), torch.nn.Dropout(0.0)
        self.last = pyg.GATConv((-1, -1), 3, add_self_loops=False) if lazy else pyg.SAGEConv(8, 3)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = self.drop(self.act(self.norm(self.first(x, edge_index))))
        return self.last(x, edge_index)


METADATA = (["a", "b"], [("a", "to", "b"), ("b", "to", "a"), ("a", "in", "a")])
HETERO: dict[str, Callable[[], torch.nn.Module]] = {
    "one's own": Plain,
    "sage": lambda: pyg.GraphSAGE((-1, -1), 8, 2, 3, norm="batch_norm"),
    "gin": lambda: pyg.GIN(FEATURES, 8, 2, 3),
    "gat": lambda: pyg.GAT((-1, -1), 8, 2, 3, add_self_loops=False),
    "gatv2": lambda: pyg.GAT((-1, -1), 8, 2, 3, add_self_loops=False, v2=True),
}


def _typed(model: torch.nn.Module, bases: bool) -> torch.nn.Module:
    torch.manual_seed(1)
    if bases:
        return pyg.to_hetero_with_bases(model, METADATA, num_bases=2, in_channels={"x": FEATURES}).eval()
    return pyg.to_hetero(model, METADATA).eval()


@pytest.mark.parametrize("name", [*HETERO, "bases"])
def test_to_hetero_takes_an_accelerated_model(name: str) -> None:
    draw = torch.Generator().manual_seed(2)
    x = {one: torch.randn(9, FEATURES, generator=draw) for one in METADATA[0]}
    edges = {one: torch.randint(9, (2, 30), generator=draw) for one in METADATA[1]}
    outputs = []
    for change in (lambda model: model, accelerate):
        torch.manual_seed(1)
        model = change(Plain(lazy=False) if name == "bases" else HETERO[name]())
        typed = _typed(model, name == "bases")
        torch.manual_seed(1)
        outputs.append(typed(x, edges))
    wanted, found = outputs
    assert set(found) == set(wanted)
    assert all(torch.allclose(found[one], wanted[one], atol=1e-4, rtol=1e-4) for one in wanted)
    natives = [one for one in typed.modules() if isinstance(one, pyg_batchgnn.nn.NativeConv)]
    assert len(natives) == (4 if name == "bases" else 2 * len(METADATA[1]))


def test_torch_fx_traces_ones_own_model_and_says_what_pyg_says_of_a_layer() -> None:
    model = accelerate(Plain()).double()
    x, edges = batch_of(2).x, batch_of(2).edge_index
    wanted = model(x, edges)
    traced = torch.fx.symbolic_trace(model)
    assert [node.target for node in traced.graph.nodes if node.op == "call_module"] == [
        *("first", "norm", "act", "drop", "last")
    ]
    assert torch.allclose(traced(x, edges), wanted, atol=1e-9)
    typed = pyg.HeteroConv({("a", "to", "a"): pyg.SAGEConv(4, 4)})
    layers = (pyg.SAGEConv(4, 4), pyg.GCNConv(4, 4), typed, torch.nn.BatchNorm1d(4), torch.nn.ReLU())
    for layer in layers:
        errors = []
        for one in (layer, accelerate(copy.deepcopy(layer))):
            try:
                torch.fx.symbolic_trace(one)
                errors.append("")
            except Exception as error:
                errors.append(f"{type(error)} {error}")
        assert errors[0] == errors[1]


# After acceleration ###############################################################################


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"report": True}, "got True"),
        ({"trims": [pyg.SAGEConv(3, 4)]}, "classes of layers"),
        ({"rows": "all"}, "got 'all'"),
        ({"check": "always"}, "'once' or 'often', got 'always'"),
    ],
)
def test_an_argument_that_cannot_be_changes_nothing(options: dict[str, Any], says: str) -> None:
    model = pyg.GraphSAGE(3, 4, 2)
    with pytest.raises((TypeError, ValueError), match=says):
        accelerate(model, **options)
    with pytest.raises(TypeError, match=r"torch\.nn\.Module, got dict"):
        accelerate({})  # type: ignore[type-var]
    assert type(model) is pyg.GraphSAGE
