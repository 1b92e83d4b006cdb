"""`nn.to_hetero` beside PyG's `to_hetero` of PyG's model."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor

from pyg_batchgnn import nn
from pyg_batchgnn.data import Schema
from tests.support.accuracy import assert_as_pygs
from tests.support.ported_models import stirred
from tests.support.tiers import each
from tests.support.typed_layers import CITES, SCHEMA, rows_of, typed_cases, typed_minibatch, with_tables

CASES = typed_cases()
METADATA = (list(SCHEMA.node_types), list(SCHEMA.relations))
ONE_TYPE = (["paper"], [CITES, ("paper", "cited by", "paper")])
NO_LOOPS = {"add_self_loops": False}
#: By name: the class in our room, PyG's, and the options.
MODELS: dict[str, tuple[type[nn.NativeModel], Any, dict[str, Any]]] = {
    "sage": (nn.SAGE, pyg.GraphSAGE, {}),
    "sage, batch norm": (nn.SAGE, pyg.GraphSAGE, {"norm": "batch_norm"}),
    "sage, act first, cat": (
        nn.SAGE,
        pyg.GraphSAGE,
        {"norm": "layer_norm", "norm_kwargs": {"mode": "node"}, "act": "elu", "act_first": True, "jk": "cat"},
    ),
    "sage, prelu, last": (nn.SAGE, pyg.GraphSAGE, {"act": "prelu", "jk": "last", "aggr": "max"}),
    "gat": (nn.GAT, pyg.GAT, {"heads": 2, **NO_LOOPS}),
    "gatv2": (nn.GAT, pyg.GAT, {"heads": 2, "v2": True, "residual": True, **NO_LOOPS}),
    "gin": (nn.GIN, pyg.GIN, {"train_eps": True}),
    "gin, batch norm": (nn.GIN, pyg.GIN, {"norm": "batch_norm"}),
}
WIDTH = 4


def pair(
    name: str, aggr: str = "sum", metadata: Any = METADATA, dtype: torch.dtype = torch.float64
) -> tuple[nn.TypedModel, torch.nn.Module]:
    ours, pygs, options = MODELS[name]
    arguments = (WIDTH, 8, 2, 3)
    one = nn.to_hetero(ours(*arguments, **options), metadata, aggr).to(dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        other = pyg.to_hetero(pygs(*arguments, **options), metadata, aggr).to(dtype)
    stirred(one)
    other.load_state_dict(one.state_dict())
    one.load_state_dict(other.state_dict())
    assert set(one.state_dict()) == set(other.state_dict())
    return one, other


def inputs(minibatch: Any, dtype: torch.dtype) -> dict[str, Tensor]:
    scale = torch.linspace(-1, 1, WIDTH, dtype=dtype)
    return {name: rows.detach()[:, :1] * scale for name, rows in rows_of(minibatch, 1, dtype).items()}


def edges_of(minibatch: Any) -> dict[Any, Tensor]:
    return {one: minibatch.edges_of(one).edge_index for one in SCHEMA.relations}


def of_types(names: Iterable[str], *given: Any) -> Callable[..., dict[str, Tensor]]:
    """Returns a call of a model with rows of node types, which come one after the other."""

    def call(model: Any, *x: Tensor) -> dict[str, Tensor]:
        return dict(model(dict(zip(names, x, strict=True)), *given))

    return call


@pytest.mark.parametrize(
    ("name", "aggr"),
    [*((name, "sum") for name in MODELS), *(("sage", one) for one in ("mean", "max", "mul"))],
)
def test_a_graph_held_whole(name: str, aggr: str) -> None:
    ours, pygs = pair(name, aggr)
    minibatch = CASES["all neighbours"]
    x = inputs(minibatch, torch.float64)
    call = of_types(x, edges_of(minibatch))
    assert_as_pygs(ours, pygs, call, call, *x.values())


@each
@pytest.mark.parametrize(
    ("case", "dtype"),
    [("two types", torch.float64), ("all neighbours", torch.float32), ("induced", torch.float64)],
)
@pytest.mark.parametrize("name", MODELS)
def test_the_seeds_of_a_minibatch(name: str, case: str, dtype: torch.dtype) -> None:
    """In evaluation every row is computed by itself, so PyG's whole forward has the rows too."""
    minibatch = CASES[case]
    ours, pygs = (one.train(not minibatch.has_layers) for one in pair(name, dtype=dtype))
    seeds = {name: minibatch.nodes_of(name).nodes_per_hop[0] for name in SCHEMA.node_types}
    x = inputs(minibatch, dtype)

    def theirs(model: Any, *rows: Tensor) -> dict[str, Tensor]:
        found = model(dict(zip(x, rows, strict=True)), edges_of(minibatch))
        return {name: one[: seeds[name]] for name, one in found.items()}

    def mine(model: Any, *rows: Tensor) -> dict[str, Tensor]:
        return dict(model(minibatch, x=dict(zip(x, rows, strict=True))))

    assert_as_pygs(ours, pygs, mine, theirs, *x.values())


def test_gcn_within_one_type() -> None:
    schema = Schema(*map(tuple, ONE_TYPE))
    ours = nn.to_hetero(nn.GCN(WIDTH, 8, 2, 3), ONE_TYPE).double()
    pygs = pyg.to_hetero(pyg.GCN(WIDTH, 8, 2, 3), ONE_TYPE).double()
    pygs.load_state_dict(ours.state_dict())
    torch.manual_seed(0)
    edges = {one: torch.randint(20, (2, 60)) for one in schema.relations}
    weights = {one: torch.rand(60, dtype=torch.float64) for one in schema.relations}
    x = torch.randn(20, WIDTH, dtype=torch.float64)
    for call in (of_types(["paper"], edges), of_types(["paper"], edges, weights)):
        assert_as_pygs(ours, pygs, call, call, x)


def test_features_that_the_minibatch_carries() -> None:
    model = nn.to_hetero(nn.SAGE((-1, -1), 8, 2, 3), METADATA).double()
    minibatch = with_tables(CASES["two types"])
    found = model(minibatch)
    wanted = model(minibatch, x={name: x.gather() for name, x in nn.features_by_type(minibatch).items()})
    assert all(torch.equal(found[name], wanted[name]) for name in wanted)
    assert [len(found[name]) for name in SCHEMA.node_types] == [3, 2, 0]


def test_dropout_is_keyed() -> None:
    torch.manual_seed(0)
    model = nn.to_hetero(nn.SAGE((-1, -1), 16, 2, 4, dropout=0.5), METADATA)
    minibatch = with_tables(typed_minibatch(list(range(40))), torch.float32)
    model(minibatch)
    first = model(minibatch)["paper"]
    assert torch.equal(first, model(minibatch)["paper"])
    assert not torch.equal(model.eval()(minibatch)["paper"], model.train()(minibatch)["paper"])


REFUSED: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "edges twice": (
        lambda: nn.to_hetero(nn.SAGE(3, 4, 2), METADATA)(CASES["papers"], {}),
        TypeError,
        "its own edges",
    ),
    "aggregation": (lambda: nn.to_hetero(nn.SAGE(3, 4, 2), METADATA, "cat"), ValueError, "'cat'"),
    "loops": (lambda: nn.to_hetero(nn.GAT(3, 4, 2), METADATA), ValueError, "add_self_loops"),
    "gcn": (lambda: nn.to_hetero(nn.GCN(3, 4, 2, **NO_LOOPS), METADATA), ValueError, "take SAGE"),
    "unreached": (
        lambda: nn.to_hetero(nn.SAGE(3, 4, 2), (["a", "b"], [("a", "to", "b")])),
        ValueError,
        r"no relation leads to \['a'\]",
    ),
    "two names": (
        lambda: nn.to_hetero(nn.SAGE(3, 4, 2), (["a-b", "a b"], [("a-b", "to", "a b")])),
        ValueError,
        "have the same name",
    ),
    "hops": (
        lambda: nn.to_hetero(nn.SAGE(3, 4, 3), METADATA)(CASES["papers"]),
        ValueError,
        "needs minibatches of 3 hops",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_refused(what: str) -> None:
    call, error, words = REFUSED[what]
    with pytest.raises(error, match=words):
        call()


def test_one_layer_between_types() -> None:
    model = nn.to_hetero(nn.SAGE((-1, -1), 4, 1), (["a", "b"], [("a", "to", "b")]))
    out = model(
        {"a": torch.randn(3, 2), "b": torch.randn(2, 5)}, {("a", "to", "b"): torch.tensor([[0], [1]])}
    )
    assert list(out) == ["b"] and out["b"].shape == (2, 4)
