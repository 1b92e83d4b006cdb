"""First layers of several relations that begin with aggregates equal PyG over all neighbours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch_geometric.nn
from torch import Tensor
from torch_geometric.data import HeteroData

from pyg_batchgnn import AggregationCache, MacrobatchNeighborLoader, Minibatch, nn
from pyg_batchgnn.data import Relation
from tests.cache.typed_cases import CACHED, CITED, CITES, WRITES

Convs = dict[Relation, Any]


def sage(made: Any, inputs: Any) -> Any:
    return made.SAGEConv(inputs, 4)


def gin(made: Any, inputs: Any) -> Any:
    del inputs
    return made.GINConv(torch.nn.Linear(2, 4), train_eps=True)


def graph() -> HeteroData:
    """Authors write papers, and papers, which have features of their own, cite papers."""
    data = CACHED[0][0].to_pyg()
    data["paper"].x = torch.randn(data["paper"].num_nodes, 3, generator=torch.Generator().manual_seed(3))
    return data


#: A graph, and for each relation the aggregation and what makes the convolution.
CASES: list[tuple[HeteroData, dict[Relation, tuple[str, Callable[[Any], Any]]]]] = [
    (
        CACHED[2][0].to_pyg(),
        {CITES: ("symmetric", lambda made: made.GCNConv(2, 4)), CITED: ("mean", lambda made: sage(made, 2))},
    ),
    (
        CACHED[2][0].to_pyg(),
        {CITES: ("sum", lambda made: gin(made, 2)), CITED: ("mean", lambda made: sage(made, 2))},
    ),
    (
        graph(),
        {WRITES: ("mean", lambda made: sage(made, (2, 3))), CITES: ("mean", lambda made: sage(made, 3))},
    ),
]


def pair(kinds: dict[Relation, tuple[str, Callable[[Any], Any]]], aggr: str | None) -> tuple[Any, Any]:
    """Returns our layer and PyG's, with the same weights."""
    torch.manual_seed(0)
    ours = nn.HeteroConv({relation: make(nn) for relation, (_, make) in kinds.items()}, aggr)
    theirs = torch_geometric.nn.HeteroConv(
        {relation: make(torch_geometric.nn) for relation, (_, make) in kinds.items()}, aggr
    )
    theirs.load_state_dict(ours.state_dict())
    return ours, theirs


def minibatches(data: HeteroData, kinds: dict[Relation, tuple[str, Any]], **options: Any) -> list[Minibatch]:
    cache = AggregationCache.build(data, {relation: kind for relation, (kind, _) in kinds.items()})
    fanouts = {one: [2, 3 * (one in kinds)] for one in data.edge_types}
    arguments = {"batch_size": 9, "seed": 1, "export": "native", **options}
    return list(MacrobatchNeighborLoader(data, fanouts, "paper", aggregation_cache=cache, **arguments))


@pytest.mark.parametrize("aggr", ["sum", "mean", "cat"])
@pytest.mark.parametrize("case", range(len(CASES)))
def test_the_first_layer_is_that_of_pyg_over_all_neighbours(case: int, aggr: str) -> None:
    data, kinds = CASES[case]
    ours, theirs = pair(kinds, aggr)
    whole = theirs(
        {name: data[name].x for name in data.node_types if "x" in data[name]},
        {relation: data[relation].edge_index for relation in kinds},
    )
    expected = _zeros(theirs)
    for batch in minibatches(data, kinds):
        out = ours(nn.aggregates_by_relation(batch), batch)
        assert out.keys() == whole.keys()
        for name, rows in out.items():
            node = batch.nodes_of(name).node
            torch.testing.assert_close(rows, whole[name][node])
        sum(rows.square().sum() for rows in out.values()).backward()
        loss = sum(whole[name][batch.nodes_of(name).node].square().sum() for name in out)
        grads = torch.autograd.grad(loss, list(theirs.parameters()), retain_graph=True)
        expected = [one + grad for one, grad in zip(expected, grads, strict=True)]
    for parameter, grad in zip(ours.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, grad, rtol=1e-4, atol=1e-4)


def _zeros(module: torch.nn.Module) -> list[Tensor]:
    return [torch.zeros_like(one) for one in module.parameters()]


def test_a_model_of_two_layers_trains_on_them() -> None:
    data, kinds = CASES[0]
    torch.manual_seed(0)
    first = nn.HeteroConv({relation: make(nn) for relation, (_, make) in kinds.items()})
    second = nn.HeteroConv({CITES: nn.SAGEConv(4, 3), CITED: nn.SAGEConv(4, 3)})
    for batch in minibatches(data, kinds, prefetch=1):
        hidden = first(nn.aggregates_by_relation(batch), batch, update=nn.Update(relu=True))
        out = second(hidden, batch, 1)["paper"]
        assert out.shape == (batch.batch_size, 3)
        out.square().sum().backward()
    assert all(parameter.grad is not None for one in (first, second) for parameter in one.parameters())


@pytest.mark.parametrize(("made", "kind"), [(nn.SAGE, "mean"), (nn.GIN, "sum"), (nn.GCN, "symmetric")])
def test_models_made_of_homogeneous_ones_begin_with_them(made: Any, kind: str) -> None:
    """On minibatches of all neighbours, aggregates give what sampled neighbours give."""
    data = CASES[0][0]
    torch.manual_seed(0)
    model = nn.to_hetero(made(2, 8, 2, 3), data.metadata())
    sampled = MacrobatchNeighborLoader(data, [-1, -1], "paper", batch_size=50, seed=1, export="native")
    cache = AggregationCache.build(data, kind)
    known = MacrobatchNeighborLoader(
        data, [-1, -1], "paper", batch_size=50, seed=1, export="native", aggregation_cache=cache
    )
    for one, other in zip(known, sampled, strict=True):
        assert len(one.edges[0].edges_per_hop) == 1
        torch.testing.assert_close(model(one), model(other))


def test_what_cannot_read_aggregates() -> None:
    data, kinds = CASES[0]
    batch = minibatches(data, kinds)[0]
    known = nn.aggregates_by_relation(batch)
    assert list(known) == [CITES, CITED]
    refusals: list[tuple[Convs, str]] = [
        ({CITES: nn.GATConv(2, 4, add_self_loops=False)}, "weights that it learns"),
        ({CITES: nn.SAGEConv(2, 4)}, "carries aggregates by symmetric"),
        ({CITED: nn.SAGEConv(2, 4, aggr="max")}, "the maximum"),
    ]
    for convs, said in refusals:
        with pytest.raises(ValueError, match=said):
            nn.HeteroConv(convs)(known, batch)
    layer = nn.HeteroConv({CITED: nn.SAGEConv(2, 4)})
    with pytest.raises(ValueError, match="no aggregates of"):
        layer({CITES: known[CITES]}, batch)
    with pytest.raises(ValueError, match="take no layer"):
        layer(known, batch, 1)
    with pytest.raises(TypeError, match="belong to a minibatch's nodes"):
        layer(known, {CITED: data[CITED].edge_index})
