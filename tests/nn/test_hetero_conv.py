"""`nn.HeteroConv` beside PyG's convolutions on the edges of each relation."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor

from pyg_batchgnn import accelerate, nn
from pyg_batchgnn.data import Relation
from tests.support.accuracy import assert_as_pygs, distance
from tests.support.quantized_tables import decoded_rows, drawn_table
from tests.support.tiers import each
from tests.support.typed_layers import (
    ABOUT,
    CITES,
    KNOWS,
    SCHEMA,
    TOPIC,
    WIDTHS,
    WRITES,
    WROTE,
    pyg_layer,
    rows_of,
    tables,
    typed_cases,
    typed_minibatch,
    with_tables,
)

CASES = typed_cases()
OUT = 6


def _each(make: Callable[[Any, Relation], Any]) -> Callable[[Any], dict[Relation, Any]]:
    return lambda room: {one: make(room, one) for one in SCHEMA.relations}


def _widths(relation: Relation) -> tuple[int, int]:
    return WIDTHS[relation[0]], WIDTHS[relation[2]]


def _gin(room: Any, relation: Relation) -> Any:
    layers = torch.nn.Linear(WIDTHS[relation[0]], 8), torch.nn.ReLU(), torch.nn.Linear(8, OUT)
    return room.GINConv(torch.nn.Sequential(*layers), train_eps=True)


def attention_layer(kind: str, **options: Any) -> Callable[[Any, Relation], Any]:
    def make(room: Any, relation: Relation) -> Any:
        width = _widths(relation)
        loops = relation[0] == relation[2]
        return getattr(room, kind)(width[0] if loops else width, 3, 2, add_self_loops=loops, **options)

    return make


#: By name, what makes the convolutions of all relations.
LAYERS: dict[str, Callable[[Any], dict[Relation, Any]]] = {
    "sage": _each(lambda room, one: room.SAGEConv(_widths(one), OUT)),
    "sage, sum, no root": _each(lambda room, one: room.SAGEConv(_widths(one), OUT, "sum", root_weight=False)),
    "sage, max": _each(lambda room, one: room.SAGEConv(_widths(one), OUT, "max")),
    "sage, project": _each(lambda room, one: room.SAGEConv(_widths(one), OUT, project=True)),
    "sage, normalize": _each(lambda room, one: room.SAGEConv(_widths(one), OUT, normalize=True)),
    "gat": _each(attention_layer("GATConv")),
    "gat, residual": _each(attention_layer("GATConv", residual=True)),
    "gatv2": _each(attention_layer("GATv2Conv", residual=True)),
    "transformer": _each(lambda room, one: room.TransformerConv(_widths(one), 3, 2)),
    "transformer, beta": _each(lambda room, one: room.TransformerConv(_widths(one), OUT, beta=True)),
    "gin": lambda room: {one: _gin(room, one) for one in (CITES, KNOWS)},
    "mixed": lambda room: {
        CITES: room.GCNConv(WIDTHS["paper"], OUT),
        WRITES: room.SAGEConv(_widths(WRITES), OUT),
        ABOUT: room.GATConv(_widths(ABOUT), 3, 2, add_self_loops=False, residual=True),
        WROTE: room.GATConv(_widths(WROTE), OUT, 2, concat=False, add_self_loops=False, residual=True),
        KNOWS: _gin(room, KNOWS),
        TOPIC: room.GATv2Conv(_widths(TOPIC), OUT, add_self_loops=False),
    },
}


def pair(name: str, aggr: str | None = "sum", dtype: torch.dtype = torch.float64) -> tuple[Any, Any]:
    torch.manual_seed(3)
    ours = nn.HeteroConv(LAYERS[name](nn), aggr).to(dtype)
    pygs = pyg.HeteroConv(LAYERS[name](pyg), aggr).to(dtype)
    pygs.load_state_dict(ours.state_dict())
    ours.load_state_dict(pygs.state_dict())
    for one, other in zip(ours.parameters(), pygs.parameters(), strict=True):
        if one.dim() == 1 and one.numel() > 1:  # biases begin at zero, where they prove little
            one.data.uniform_(-0.5, 0.5)
            other.data.copy_(one.data)
    return ours, pygs


def assert_equal_layers(
    ours: Any, pygs: Any, case: str, dtype: torch.dtype, aggr: str | None = "sum", layers: Any = (1, 2)
) -> None:
    minibatch = CASES[case]
    for layer in layers:
        x = rows_of(minibatch, layer, dtype)
        assert_as_pygs(
            *(ours, pygs),
            lambda conv, *rows, layer=layer, types=tuple(x): conv(
                dict(zip(types, rows, strict=True)), minibatch, layer
            ),
            lambda conv, *rows, layer=layer, types=tuple(x): pyg_layer(
                dict(conv.convs.items()), aggr, dict(zip(types, rows, strict=True)), minibatch, layer
            ),
            *x.values(),
        )


def named(minibatch: Any) -> Any:
    return zip(SCHEMA.node_types, minibatch.nodes, strict=True)


@each
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", LAYERS)
def test_equals_pyg_on_a_minibatch(name: str, case: str, dtype: torch.dtype) -> None:
    assert_equal_layers(*pair(name, dtype=dtype), case, dtype)


@pytest.mark.parametrize("aggr", ["mean", "min", "max", "cat", None])
@pytest.mark.parametrize("name", ["sage", "gat, residual", "mixed"])
def test_aggregations(name: str, aggr: str | None) -> None:
    assert_equal_layers(*pair(name, aggr), "two types", torch.float64, aggr)


@each
@pytest.mark.parametrize("aggr", ["sum", "mean", "max", "cat", None])
@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("accelerates", [False, True])
def test_equals_pyg_on_a_graph_held_whole(accelerates: bool, name: str, aggr: str | None) -> None:
    ours, pygs = pair(name, aggr)
    if accelerates:
        ours = accelerate(copy.deepcopy(pygs))
        assert all(isinstance(one, nn.NativeConv) for one in ours.convs.values())
        assert list(ours.state_dict()) == list(pygs.state_dict())
    minibatch = CASES["all neighbours"]
    edges = {one: minibatch.edges_of(one).edge_index for one in SCHEMA.relations if one != WRITES}
    x = rows_of(minibatch, 1, torch.float64)

    def call(conv: Any, *rows: Tensor) -> dict[str, Tensor]:
        return conv(dict(zip(x, rows, strict=True)), edges)

    assert_as_pygs(ours, pygs, call, call, *x.values())


@pytest.mark.parametrize(
    ("form", "accelerates"),
    [("minibatch", False), *((form, one) for form in ("named", "third") for one in (False, True))],
)
def test_values_of_edges(form: str, accelerates: bool) -> None:
    torch.manual_seed(0)
    ours, pygs = (
        room.HeteroConv(
            {one: attention_layer("GATConv", edge_dim=4)(room, one) for one in (CITES, WRITES)}
        ).double()
        for room in (nn, pyg)
    )
    pygs.load_state_dict(ours.state_dict())
    ours = accelerate(copy.deepcopy(pygs)) if accelerates else ours
    minibatch = CASES["papers"]
    edges = {one: minibatch.edges_of(one).edge_index for one in (CITES, WRITES)}
    values = {one: torch.randn(index.size(1), 4, dtype=torch.float64) for one, index in edges.items()}
    if form == "minibatch":
        for layer in (1, 2):
            x = rows_of(minibatch, layer, torch.float64)
            wanted = pyg_layer(dict(pygs.convs.items()), "sum", x, minibatch, layer, values)
            found = ours(x, minibatch, layer, edge_attr_dict=values)
            assert distance(found["paper"], wanted["paper"]) < 1e-10
        return
    x = rows_of(minibatch, 1, torch.float64)
    wanted = pygs(x, edges, edge_attr_dict=values)
    found = ours(x, edges, values) if form == "third" else ours(x, edges, edge_attr_dict=values)
    assert distance(found["paper"], wanted["paper"]) < 1e-10


@pytest.mark.parametrize("name", ["sage", "gat", "gatv2", "mixed"])
def test_reads_rows_of_tables_in_place(name: str) -> None:
    ours, _ = pair(name, dtype=torch.float32)
    minibatch = with_tables(CASES["two types"], torch.float32)
    views = nn.features_by_type(minibatch)
    assert all(isinstance(one, nn.RowView) for one in views.values())
    found = ours(views, minibatch, 1)
    wanted = ours({key: one.gather() for key, one in views.items()}, minibatch, 1)
    assert all(torch.equal(found[key], wanted[key]) for key in wanted)


@pytest.mark.parametrize("name", LAYERS)
def test_an_update_is_relu_and_keyed_dropout(name: str) -> None:
    ours, _ = pair(name)
    minibatch = CASES["papers"]
    x = {key: one.detach() for key, one in rows_of(minibatch, 1, torch.float64).items()}
    plain = ours(x, minibatch, 1)
    found = ours(x, minibatch, 1, update=nn.Update(relu=True, drop=0.5))
    assert all(torch.equal(one, plain[key].relu() * 2 * (one != 0)) for key, one in found.items())
    again = ours(x, minibatch, 1, update=nn.Update(relu=True, drop=0.5))
    assert all(torch.equal(one, again[key]) for key, one in found.items())
    ours.eval()
    kept = ours(x, minibatch, 1, update=nn.Update(relu=True, drop=0.5))
    assert all(torch.equal(one, plain[key].relu()) for key, one in kept.items())


def test_dropout_differs_between_examples_of_a_node() -> None:
    ours, _ = pair("sage")
    minibatch = typed_minibatch([3, 3], disjoint=True)
    x = {name: torch.ones(len(one.node), WIDTHS[name], dtype=torch.float64) for name, one in named(minibatch)}
    out = ours(x, minibatch, 2, update=nn.Update(drop=0.5))["paper"]
    assert not torch.equal(out[0] == 0, out[1] == 0)


def test_reads_codes_in_place() -> None:
    torch.manual_seed(5)
    rows = [drawn_table(25, width, seed=width, extreme=False) for width in (12, 7)]
    attention = nn.GATConv((12, 7), 5, add_self_loops=False)
    relations = {("a", "to", "b"): attention, ("b", "to", "b"): nn.SAGEConv(7, 5)}
    conv, edges = nn.HeteroConv(relations), {one: torch.randint(25, (2, 70)) for one in relations}
    with decoded_rows() as decoded:
        found = conv(dict(zip("ab", rows, strict=True)), edges)["b"]
    assert decoded == []
    wanted = conv({name: one.dequantize() for name, one in zip("ab", rows, strict=True)}, edges)["b"]
    assert distance(found, wanted) < 1e-5


def test_who_watches_a_layer_sees_it() -> None:
    ours, _ = pair("sage")
    minibatch = CASES["papers"]
    x = rows_of(minibatch, 1, torch.float64)
    wanted, seen = ours(x, minibatch, 1), []
    ours.convs[WRITES].register_forward_hook(lambda *given: seen.append(given[2].shape))
    found = ours(x, minibatch, 1)
    assert seen == [wanted["paper"].shape]
    assert all(distance(found[key], wanted[key]) < 1e-12 for key in wanted)


def test_layers_without_rows_of_targets() -> None:
    ours, pygs = pair("sage, sum, no root")
    minibatch = CASES["papers"]
    x = {"paper": rows_of(minibatch, 1, torch.float64)["paper"]}
    kept = {one: conv for one, conv in ours.convs.items() if one[0] == "paper"}
    found = nn.HeteroConv(kept)(x, minibatch, 1)
    every = rows_of(minibatch, 1, torch.float64)
    wanted = pyg_layer({one: pygs.convs[one] for one in kept}, "sum", every, minibatch, 1)
    assert all(distance(found[key], wanted[key]) < 1e-10 for key in wanted)


SAGE = LAYERS["sage"](nn)
REFUSED: dict[str, tuple[Callable[[Any, dict[str, Tensor]], Any], type[Exception], str]] = {
    "pyg's layers": (lambda *_: nn.HeteroConv(LAYERS["sage"](pyg)), TypeError, "pyg_batchgnn.nn"),
    "aggregation": (lambda *_: nn.HeteroConv(SAGE, "mul"), ValueError, "'mul'"),
    "loops": (lambda *_: nn.HeteroConv({WRITES: nn.GATConv(3, 4)}), ValueError, "add_self_loops"),
    "loops of gcn": (lambda *_: nn.HeteroConv({WRITES: nn.GCNConv(3, 4)}), ValueError, "add_self_loops"),
    "gcn between types": (
        lambda batch, x: nn.HeteroConv({WRITES: nn.GCNConv(7, 4, add_self_loops=False).double()})(
            x, batch, 1
        ),
        ValueError,
        "bipartite",
    ),
    "no layer": (lambda batch, x: nn.HeteroConv(SAGE)(x, batch), ValueError, "number of the layer"),
    "values": (
        lambda batch, x: nn.HeteroConv(SAGE).double()(x, batch, 1, edge_attr_dict={CITES: x["paper"]}),
        TypeError,
        "takes no edge_attr_dict",
    ),
    "values in third place": (
        lambda batch, x: nn.HeteroConv(SAGE).double()(
            x, {CITES: batch.edges_of(CITES).edge_index}, {CITES: x["paper"]}
        ),
        TypeError,
        "takes no values",
    ),
    "few rows": (
        lambda batch, x: nn.HeteroConv(SAGE)({**x, "author": x["author"][:1]}, batch, 1),
        ValueError,
        "x_dict\\['author'\\] has 1 rows",
    ),
    "many rows": (lambda batch, _: nn.HeteroConv(SAGE)(tables(), batch, 1), ValueError, "features_by_type"),
    "a layer of one relation": (
        lambda batch, x: nn.SAGEConv(12, 3)(x["paper"], batch, 1),
        TypeError,
        "HeteroConv",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_refused(what: str) -> None:
    call, error, words = REFUSED[what]
    minibatch = CASES["papers"]
    with pytest.raises(error, match=words):
        call(minibatch, rows_of(minibatch, 1, torch.float64))
