"""A layer of PyG that is trimmed computes what its plain call does, and no layer is whole without
need."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from inspect import signature
from typing import Any

import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor
from torch.nn import BatchNorm1d, Linear, Module, Sequential
from torch_geometric.data import Data
from torch_geometric.nn import aggr
from torch_geometric.nn import conv as convs
from torch_geometric.nn.conv import MessagePassing, spline_conv

from pyg_batchgnn import MacrobatchNeighborLoader
from pyg_batchgnn.port import foreign
from tests.support.conv_cases import (
    CASES,
    COLUMNS,
    EVALUATION,
    OTHER_CALLS,
    OUT,
    RELATIONS,
    TRAINING,
    A,
    Case,
    mlp,
    trimmed,
)
from tests.support.ported_models import GRAPH, SEEDS, assert_same, results, stirred
from tests.support.tiers import each

#: Products of options are in `make test-all`.
pytestmark = each

# Batches ##########################################################################################


@dataclass(frozen=True)
class Cut:
    """A batch, and the part of it that is needed for the rows of some hops."""

    batch: Data
    targets: int
    sources: int
    edges: int


@cache
def cuts() -> list[Cut]:
    """Batches with isolated seeds, self loops and parallel edges. The first hops have the most
    in-edges of a node, or the last."""
    found = []
    for fanouts in ([3, 2], [2, 3], [2, 2, 4]):
        data = GRAPH.clone()
        (batch,) = MacrobatchNeighborLoader(data, fanouts, SEEDS, batch_size=8, seed=5)
        nodes, edges = batch.num_sampled_nodes, batch.num_sampled_edges
        for hops in range(1, len(fanouts) + 1):
            found.append(Cut(batch, sum(nodes[:hops]), sum(nodes[: hops + 1]), sum(edges[:hops])))
    return found


def node_value(name: str, nodes: int) -> Tensor:
    draw = torch.Generator().manual_seed(1)
    if name == "node_type":
        return torch.randint(RELATIONS, (nodes,), generator=draw)
    columns = {"x_0": COLUMNS}.get(name, 3)
    return torch.randn(nodes, columns, generator=draw, dtype=torch.float64)


def edge_value(name: str, edges: int) -> Tensor:
    draw = torch.Generator().manual_seed(2)
    if name == "edge_type":
        return torch.randint(RELATIONS, (edges,), generator=draw)
    shape = (edges,) if name == "edge_weight" else (edges, 3)
    return torch.rand(shape, generator=draw, dtype=torch.float64)


ALL = [pytest.param(name, label, id=f"{name}: {label}") for name, cases in CASES.items() for label in cases]


@pytest.fixture(autouse=True)
def splines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Puts operators edge by edge in the place of pyg-lib's, if that is not installed."""
    if spline_conv.spline_basis is None:
        monkeypatch.setattr(spline_conv, "spline_basis", lambda values, *_: (values, (3 * values).long()))
        monkeypatch.setattr(
            *(spline_conv, "spline_weighting"),
            lambda x, weight, basis, place: torch.einsum("ei,ekio,ek->eo", x, weight[place], basis),
        )


def made(case: Case, training: bool) -> Module:
    torch.manual_seed(3)
    conv = case.make().double().train(training)
    if any(torch.nn.parameter.is_lazy(one) for one in conv.parameters()):
        return conv
    for parameter in conv.parameters():  # RGATConv leaves some of its own as memory was
        parameter.data.uniform_(-0.6, 0.6)
    return stirred(conv)


def input_of(case: Case, cut: Cut) -> Tensor:
    x: Tensor = cut.batch.x
    draw = torch.Generator().manual_seed(6)
    if case.x == "ids":
        return torch.randint(100, (x.size(0),), generator=draw)
    if case.x == "layers":
        return torch.randn(x.size(0), 3, COLUMNS, generator=draw, dtype=x.dtype)
    return x * (1e17 if case.x == "huge" else 1)


@dataclass
class Call:
    """A case on a batch: the arguments of the plain call."""

    conv: Module
    cut: Cut
    x: Tensor
    nodes: dict[str, Tensor]
    edges: dict[str, Tensor]

    @classmethod
    def of(cls, conv: Module, case: Case, cut: Cut) -> Call:
        x, edges = input_of(case, cut), cut.batch.edge_index.size(1)
        nodes = {name: node_value(name, x.size(0)) for name in case.given if not name.startswith("edge")}
        values = {name: edge_value(name, edges) for name in case.given if name.startswith("edge")}
        call = cls(conv, cut, x, nodes, values)
        for leaf in call.leaves():
            leaf.requires_grad_()
        return call

    def leaves(self) -> list[Tensor]:
        return [
            one for one in (self.x, *self.nodes.values(), *self.edges.values()) if one.is_floating_point()
        ]

    def plain(self) -> Tensor:
        edge_index = self.cut.batch.edge_index
        place = (
            {} if "edge_index" in signature(self.conv.forward).parameters else {"hyperedge_index": edge_index}
        )
        out: Tensor = self.conv(self.x, **(place or {"edge_index": edge_index}), **self.nodes, **self.edges)
        return out[: self.cut.targets]

    def trimmed(self) -> Tensor:
        edge_index = self.cut.batch.edge_index[:, : self.cut.edges]
        if "edge_index" not in signature(self.conv.forward).parameters:
            return self.conv(self.x[: self.cut.sources], edge_index)[: self.cut.targets]
        return foreign.call_trimmed(
            self.conv,
            self.x[: self.cut.sources],
            edge_index,
            self.cut.targets,
            {name: value[: self.cut.edges] for name, value in self.edges.items()},
            {name: value[: self.cut.sources] for name, value in self.nodes.items()},
        )

    def results(self, out: Tensor) -> dict[str, Tensor]:
        return results(self.conv, out, *self.leaves())


def is_same(call: Call) -> bool:
    plain = call.plain()
    try:
        found = call.trimmed()
    except (IndexError, RuntimeError, ValueError):
        return False
    return torch.allclose(found, plain, rtol=1e-6, atol=1e-6, equal_nan=True)


@pytest.mark.parametrize("training", [TRAINING, EVALUATION])
@pytest.mark.parametrize(("name", "label"), ALL)
def test_a_trimmed_call_has_the_rows_and_gradients_of_the_plain_one(
    name: str, label: str, training: bool
) -> None:
    case = CASES[name][label]
    conv = made(case, training)
    assert type(conv) is getattr(convs, name)
    why = foreign.whole_reason(conv, input_of(case, cuts()[0]))
    assert (why is None) is (training in case.trimmed), why
    calls = [Call.of(conv, case, cut) for cut in (late_edges() if case.x == "late edges" else cuts())]
    if why is None:
        for call in calls:
            found = call.trimmed()
            assert_same(call.results(found), call.results(call.plain()), 1e-9)
    else:
        assert why.startswith(f"{name} "), why
        assert case.untried or not all(map(is_same, calls))


def late_edges() -> list[Cut]:
    """A batch whose node 1 has no edges, and whose later edges have later nodes."""
    batch = Data(x=torch.ones(4, COLUMNS, dtype=torch.float64), edge_index=torch.tensor([[0, 3], [0, 2]]))
    return [Cut(batch, 2, 2, 1)]


# Classes ##########################################################################################


def test_every_class_is_classed() -> None:
    """A class of a later PyG fails here until it has cases, and a place in one of the tables."""
    assert sorted(convs.__all__) == sorted(["MessagePassing", *CASES, *OTHER_CALLS])
    for name in (*CASES, *OTHER_CALLS):
        kind = getattr(convs, name)
        assert (kind in foreign._LAYERS) != (kind in foreign._WHOLE), name
    assert all(getattr(convs, name) in foreign._WHOLE for name in OTHER_CALLS)
    for name, cases in CASES.items():
        some = any(case.trimmed for case in cases.values())
        assert some is (getattr(convs, name) in foreign._LAYERS), name


# Batch norms ######################################################################################


class OfFirstRows(Module):
    def __init__(self, norm: BatchNorm1d, rows: int) -> None:
        super().__init__()
        self.norm, self.rows = norm, rows

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.norm(x[: self.rows]), torch.zeros_like(x[self.rows :])])


#: Layers that take pairs, with the place of a norm, and whether its rows are edges.
NORMED: dict[str, tuple[Case, str, bool]] = {
    "GINConv": (trimmed(lambda: pyg.GINConv(mlp(norm=BatchNorm1d(OUT)))), "nn.1", False),
    "GINConv of PyG": (trimmed(lambda: pyg.GINConv(pyg.MLP([A, OUT, OUT]))), "nn.norms.0.module", False),
    "GINEConv": (
        trimmed(lambda: pyg.GINEConv(mlp(norm=BatchNorm1d(OUT)), edge_dim=3), "edge_attr"),
        "nn.1",
        False,
    ),
    "GENConv": (trimmed(lambda: pyg.GENConv(A, OUT)), "mlp.1", False),
    "CGConv": (trimmed(lambda: pyg.CGConv(A, batch_norm=True)), "bn", False),
    "EdgeConv": (trimmed(lambda: pyg.EdgeConv(mlp(2 * A, norm=BatchNorm1d(OUT)))), "nn.1", True),
    "NNConv": (
        trimmed(lambda: pyg.NNConv(A, OUT, mlp(3, A * OUT, BatchNorm1d(OUT))), "edge_attr"),
        "nn.1",
        True,
    ),
    "no running statistics": (
        trimmed(lambda: pyg.GINConv(mlp(norm=BatchNorm1d(OUT, track_running_stats=False)))),
        *("nn.1", False),
    ),
}


@pytest.mark.parametrize("training", [TRAINING, EVALUATION])
@pytest.mark.parametrize("name", NORMED)
def test_a_batch_norm_sees_the_rows_that_are_asked_for(name: str, training: bool) -> None:
    case, place, of_edges = NORMED[name]
    for cut in cuts():
        conv = made(case, training)
        reference = copy.deepcopy(conv)
        norm = reference.get_submodule(place)
        assert isinstance(norm, BatchNorm1d)
        owner, _, key = place.rpartition(".")
        rows = cut.edges if of_edges else cut.targets
        assert foreign.whole_reason(conv) is None
        found = Call.of(conv, case, cut)
        results_of = found.results(found.trimmed())
        reference.get_submodule(owner)._modules[key] = OfFirstRows(norm, rows)
        wanted = Call.of(reference, case, cut)
        of_reference = wanted.results(wanted.plain())
        renamed = {one.replace(f"{place}.norm", place): value for one, value in of_reference.items()}
        assert_same(results_of, renamed, 1e-9)
        for one, wanted_one in zip(conv.buffers(), reference.buffers(), strict=True):
            assert torch.allclose(one, wanted_one, atol=1e-12)


def test_a_frozen_norm_is_by_row() -> None:
    conv = CASES["PointGNNConv"]["batch norm"].make().train()
    assert "mlp_g.1, a batch norm" in str(foreign.whole_reason(conv))
    conv.get_submodule("mlp_g.1").eval()
    assert foreign.whole_reason(conv) is None


# Parts ############################################################################################

NN = torch.nn
#: Parts whose rows are looked at one by one, of which `foreign` knows the class.
ROW_PARTS: list[Callable[[], Module]] = [
    *(kind for kind in foreign._ELEMENTWISE if kind is not NN.Threshold),
    *(NN.GLU, lambda: NN.Threshold(0.1, 0.3), lambda: NN.Softmax(-1), lambda: NN.LogSoftmax(1)),
    *(lambda: NN.Softmin(-1), lambda: NN.Linear(A, 2), lambda: NN.LazyLinear(2), lambda: pyg.Linear(A, 2)),
    *(
        lambda: pyg.Linear(-1, 2),
        lambda: NN.GRUCell(A, 2),
        lambda: NN.GroupNorm(2, A),
        lambda: NN.LayerNorm(A),
        lambda: NN.RMSNorm(A),
    ),
    *(
        lambda: NN.InstanceNorm1d(A),
        lambda: pyg.LayerNorm(A, mode="node"),
        lambda: pyg.MLP([A, 3, 2], norm=None),
    ),
    *(
        lambda: NN.Sequential(NN.Linear(A, 2), NN.ReLU()),
        lambda: pyg.MLP([A, 3, 2], act=torch.tanh, norm=None),
    ),
]
OTHER_PARTS: list[Callable[[], Module]] = [
    *(lambda: NN.Softmax(0), lambda: NN.GLU(0), lambda: NN.LogSoftmax(0), lambda: pyg.LayerNorm(A)),
    *(pyg.PairNorm, pyg.GraphSizeNorm, pyg.MeanSubtractionNorm, lambda: pyg.GraphNorm(A)),
    *(lambda: pyg.InstanceNorm(A), lambda: pyg.DiffGroupNorm(A, 2)),
    lambda: pyg.MLP([A, 3, 2], act=torch.nn.Softmax(0)),
    *(lambda: pyg.MLP([A, 3, 2], norm=None, act=lambda x: x - x.mean(0)), lambda: NN.LayerNorm([20, A])),
]


def rows_of(part: Module, rows: int) -> Tensor:
    torch.manual_seed(0)
    x = torch.randn(20, A, dtype=torch.float64)
    part(x)
    return part(x[:rows])[:8]


@pytest.mark.parametrize("place", range(len(ROW_PARTS)))
def test_a_part_that_is_known_looks_at_its_rows_one_by_one(place: int) -> None:
    part = ROW_PARTS[place]().double()
    assert foreign.whole_reason(pyg.GINConv(part)) is None
    part.eval()
    assert torch.allclose(rows_of(part, 8), rows_of(part, 20), atol=1e-12)


@pytest.mark.parametrize("place", range(len(OTHER_PARTS)))
def test_a_part_that_looks_at_other_rows_makes_a_layer_whole(place: int) -> None:
    part = OTHER_PARTS[place]().double()
    assert str(foreign.whole_reason(pyg.GINConv(part))).startswith("GINConv has nn")
    try:
        found = rows_of(part, 8)
    except (RuntimeError, AssertionError):
        return
    wanted = rows_of(part, 20)
    assert found.shape != wanted.shape or not torch.allclose(found, wanted, atol=1e-6)


def test_parts_that_change_when_they_are_called_make_a_layer_whole() -> None:
    norm = NN.InstanceNorm1d(A, track_running_stats=True)
    assert "track_running_stats=True" in str(foreign.whole_reason(pyg.GINConv(norm)))
    heat = CASES["HEATConv"]["cat"].make()
    heat.edge_type_emb = NN.Embedding(RELATIONS, 4, max_norm=1.0)
    assert "edge_type_emb (Embedding), which changes its table" in str(foreign.whole_reason(heat))


# Instances ########################################################################################


class OwnLinear(Linear):
    pass


CHANGES: dict[str, tuple[Callable[[Any], Any], str]] = {
    "message hook": (lambda conv: conv.register_message_forward_hook(print), "hooks on its messages"),
    "hook": (lambda conv: conv.register_forward_hook(print), "hooks on itself"),
    "hook on gradients": (lambda conv: conv.register_full_backward_hook(print), "hooks on itself"),
    "hook on a part": (lambda conv: conv.lin_rel.register_forward_hook(print), "hooks on lin_rel"),
    "message": (lambda conv: setattr(conv, "message", lambda x_j: x_j), "a function message"),
    "explained": (lambda conv: setattr(conv, "explain", True), "explains its messages"),
    "part": (lambda conv: setattr(conv, "lin_rel", OwnLinear(A, OUT)), "lin_rel (OwnLinear)"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_layer_is_whole(change: str) -> None:
    conv = pyg.GraphConv(A, OUT)
    assert foreign.whole_reason(conv) is None
    act, word = CHANGES[change]
    act(conv)
    assert word in str(foreign.whole_reason(conv))
    assert foreign.whole_reason(pyg.GraphConv(A, OUT)) is None


class Own(MessagePassing):
    def __init__(self, norm: Module | None = None, **options: Any) -> None:
        super().__init__(**options)
        self.lin, self.norm = Linear(A, OUT), norm

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = self.lin(x if self.norm is None else self.norm(x))
        return self.propagate(edge_index, x=x) + x


class OwnPart(Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.sin()


class OwnGraphConv(pyg.GraphConv):
    pass


def test_a_class_that_is_not_known_is_trimmed_if_the_user_names_it() -> None:
    conv = Own().double()
    assert "accelerate(model, trims=[Own])" in str(foreign.whole_reason(conv))
    assert foreign.whole_reason(conv, trims=[Own]) is None
    for cut in cuts():
        call = Call.of(conv, Case(Own), cut)
        assert torch.allclose(call.trimmed(), call.plain(), atol=1e-12)
    assert "not known" in str(foreign.whole_reason(OwnGraphConv(A, OUT)))
    assert foreign.whole_reason(OwnGraphConv(A, OUT), trims=[OwnGraphConv]) is None


def test_a_named_class_is_whole_where_it_cannot_be_trimmed() -> None:
    assert "flow" in str(foreign.whole_reason(Own(flow="target_to_source"), trims=[Own]))
    normed = Own(BatchNorm1d(A))
    assert "norm, a batch norm" in str(foreign.whole_reason(normed, trims=[Own]))
    assert foreign.whole_reason(normed.eval(), trims=[Own]) is None
    normed.register_message_forward_hook(print)
    assert "hooks" in str(foreign.whole_reason(normed, trims=[Own]))
    assert "aggr_module (LSTMAggregation)" in str(
        foreign.whole_reason(Own(aggr=aggr.LSTMAggregation(OUT, OUT)), trims=[Own])
    )
    assert "degrees" in str(foreign.whole_reason(pyg.SGConv(A, OUT), trims=[pyg.SGConv]))
    assert "degrees" in str(foreign.whole_reason(pyg.GCNConv(A, OUT), trims=[pyg.GCNConv]))
    assert "no MessagePassing" in str(foreign.whole_reason(OwnPart(), trims=[OwnPart]))


def test_a_part_that_is_not_known_is_trimmed_if_the_user_names_it() -> None:
    conv = pyg.GINConv(Sequential(Linear(A, OUT), OwnPart()))
    assert "nn.1 (OwnPart)" in str(foreign.whole_reason(conv))
    assert "accelerate(model, trims=[OwnPart])" in str(foreign.whole_reason(conv))
    assert foreign.whole_reason(conv, trims=[OwnPart]) is None


def test_rows_of_other_dimensions_are_whole() -> None:
    conv = pyg.SAGEConv(A, OUT)
    assert "x of 3 dimensions" in str(foreign.whole_reason(conv, torch.ones(2, 3, A)))
    assert foreign.whole_reason(conv, torch.ones(3, A)) is None
    assert foreign.whole_reason(pyg.DNAConv(A, normalize=False), torch.ones(3, 2, A)) is None
