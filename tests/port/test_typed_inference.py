"""The inference of all nodes of typed graphs equals the forward pass of the whole graph."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping
from typing import Any
from unittest import mock

import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor
from torch_geometric.data import HeteroData

from pyg_batchgnn import MacrobatchNeighborLoader, nn
from pyg_batchgnn.comm import Communicator, MessageKind
from pyg_batchgnn.embed import Embedding
from tests.support.accuracy import ALONE, distance
from tests.support.hetero_cases import CITES, REV_WRITES, WRITES, edges_of
from tests.support.ported_models import stirred
from tests.support.rank_graphs import stores_of
from tests.support.thread_ranks import run_threads
from tests.support.tiers import each, in_all, some

#: Products of options are in `make test-all`.
pytestmark = each

COUNTS = {"paper": 60, "author": 40, "venue": 3}
COLUMNS = {"paper": 5, "author": 3, "venue": 2}
KNOWS = ("author", "knows", "author")
HAS = ("venue", "has", "paper")
AT = ("paper", "at", "venue")
RELATIONS = {CITES: 300, WRITES: 150, REV_WRITES: 150, AT: 60, HAS: 60, KNOWS: 0}
BUDGETS = (None, 20_000)


def make_data(dtype: torch.dtype = torch.float32) -> HeteroData:
    """Returns a graph with parallel edges, self loops, and a relation without edges."""
    data, draw = HeteroData(), torch.Generator().manual_seed(3)
    for name, count in COUNTS.items():
        data[name].x = torch.randn(count, COLUMNS[name], generator=draw).to(dtype)
    for place, (relation, number) in enumerate(RELATIONS.items()):
        data[relation].edge_index = edges_of(COUNTS, relation, number, place)
    return data


DATA = make_data()
#: By name: the class in our room, PyG's, and the options.
MODELS: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "sage": (nn.SAGE, pyg.GraphSAGE, {"num_layers": 3, "dropout": 0.5}),
    "sage, cat": (nn.SAGE, pyg.GraphSAGE, {"num_layers": 2, "norm": "batch_norm", "jk": "cat"}),
    "sage, one layer": (nn.SAGE, pyg.GraphSAGE, {"num_layers": 1}),
    "gat": (nn.GAT, pyg.GAT, {"num_layers": 2, "heads": 2, "add_self_loops": False}),
    "gin": (nn.GIN, pyg.GIN, {"num_layers": 2, "norm": "batch_norm"}),
}
WIDTH = 5


def pair(name: str, aggr: str = "sum", data: HeteroData = DATA) -> tuple[nn.TypedModel, torch.nn.Module]:
    """Returns our model and PyG's with the same weights, for features of one width."""
    ours, pygs, options = MODELS[name]
    torch.manual_seed(1)
    arguments = {"in_channels": WIDTH, "hidden_channels": 8, "out_channels": 4, **options}
    one = stirred(nn.to_hetero(ours(**arguments), data.metadata(), aggr))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        other = pyg.to_hetero(pygs(**arguments), data.metadata(), aggr)
    other.load_state_dict(one.state_dict())
    return one, other.eval()


def of_one_width(dtype: torch.dtype = torch.float32) -> HeteroData:
    data = make_data(dtype)
    for name, count in COUNTS.items():
        draw = torch.Generator().manual_seed(count)
        data[name].x = torch.randn(count, WIDTH, generator=draw).to(dtype)
    return data


def loader_of(data: Any) -> MacrobatchNeighborLoader:
    return MacrobatchNeighborLoader(data, [2], "author", batch_size=7, seed=0)


def assert_close(found: Mapping[str, Tensor], wanted: Mapping[str, Tensor], tolerance: float = ALONE) -> None:
    assert set(found) == set(wanted)
    for name, rows in wanted.items():
        assert found[name].shape == rows.shape, name
        assert distance(found[name], rows) < tolerance, name


WAYS = [("sage", None), *((name, 20_000) for name in MODELS), ("sage, one layer", 1)]
OTHER_WAYS = in_all(*((name, None) for name in MODELS if name != "sage"))


@torch.no_grad()
@pytest.mark.parametrize(("name", "budget"), [*WAYS, *OTHER_WAYS])
def test_inference_is_the_forward_pass_of_pygs_model(name: str, budget: int | None) -> None:
    data = of_one_width()
    ours, pygs = pair(name)
    wanted = pygs(data.x_dict, data.edge_index_dict)
    found = ours.train().inference(loader_of(data), memory_budget=budget)
    assert_close(found, wanted)
    assert ours.training and all(one.training for one in ours.modules())
    outputs = ours.infer(loader_of(data).all_nodes(budget), ["venue"])
    assert_close({"venue": outputs["venue"].logits}, {"venue": wanted["venue"]})
    if hasattr(ours, "jk"):
        with pytest.raises(ValueError, match="hidden rows by infer"):
            ours.infer_hidden(loader_of(data).all_nodes(budget), ["venue"])
        return
    with mock.patch.object(ours, "_step", wraps=ours._step) as step:
        hidden = ours.infer_hidden(loader_of(data).all_nodes(budget), ["venue"])
    assert {call.args[0] for call in step.call_args_list} == set(range(ours.num_layers - 1))
    assert torch.equal(hidden["venue"], outputs["venue"].hidden)
    assert set(hidden) == {one[0] for one in ours.relations if one[2] == "venue"} | {"venue"}
    some = ours.infer_hidden(loader_of(data).all_nodes(budget), ["venue"], hidden_types=["paper"])
    assert_close(some, {"paper": hidden["paper"]})


@torch.no_grad()
@pytest.mark.parametrize("aggr", ["mean", "max"])
def test_aggregations_of_relations(aggr: str) -> None:
    data = of_one_width()
    ours, pygs = pair("sage", aggr)
    wanted = pygs(data.x_dict, data.edge_index_dict)
    assert_close(ours.inference(loader_of(data), memory_budget=9_000), wanted)


@torch.no_grad()
def test_own_stacks_of_layers_of_any_widths() -> None:
    """Each type has its own width, a projection comes first, and the last layer is for one type."""
    torch.manual_seed(2)
    first, second = (
        nn.HeteroConv({one: nn.SAGEConv((8, 8), 8) for one in RELATIONS}, aggr) for aggr in ("mean", "sum")
    )
    last = nn.HeteroConv({one: nn.SAGEConv((8, 8), 4) for one in (WRITES, HAS)})
    project = nn.HeteroDictLinear(COLUMNS, 8)

    def layer(conv: Any, x: Any, edges: Any) -> dict[str, Tensor]:
        return {name: rows.relu() for name, rows in conv(x, edges).items()}

    edges, x = DATA.edge_index_dict, project(DATA.x_dict)
    wanted = last(layer(second, layer(first, x, edges), edges), edges)
    steps = [
        nn.LayerStep(dict(conv.convs.items()), lambda x, edges, conv=conv: layer(conv, x, edges))
        for conv in (first, second)
    ]
    steps.append(nn.LayerStep(dict(last.convs.items()), last))
    for budget in BUDGETS:
        (found,) = nn.infer_layers(steps, loader_of(DATA).all_nodes(budget), inputs=project)
        assert_close(found, wanted)


@torch.no_grad()
def test_learned_rows_are_features() -> None:
    data = of_one_width()
    embedding = Embedding(data, {"author": WIDTH})
    del data["author"].x
    data["author"].num_nodes = COUNTS["author"]
    ours, pygs = pair("sage")
    with_rows = embedding.as_features(data)
    wanted = pygs(with_rows.x_dict, data.edge_index_dict)
    assert_close(ours.inference(loader_of(with_rows), memory_budget=9_000), wanted)
    with pytest.raises(ValueError, match=r"features x of the nodes of type 'author'.*as_features"):
        ours.inference(loader_of(data))


@pytest.mark.parametrize("policy", some(["types apart", "random", "hole"]))
def test_ranks_have_the_rows_of_their_nodes(policy: str) -> None:
    data = of_one_width()
    models = {name: pair(name) for name in ("sage", "sage, cat", "gat")}
    with torch.no_grad():
        wanted = {name: pygs(data.x_dict, data.edge_index_dict) for name, (_, pygs) in models.items()}

    def rank(comm: Communicator) -> None:
        loader = loader_of(stores_of(comm, data, policy))
        nodes = loader.all_nodes()
        for name, budget in (("sage", None), ("sage", 20_000), ("sage, cat", None), ("gat", 9_000)):
            found = copy.deepcopy(models[name][0]).inference(loader, memory_budget=budget)
            rows = {kind: one[nodes.node_of(kind)] for kind, one in wanted[name].items()}
            assert_close(found, rows)

    run_threads(rank, 3)


def test_halo_rows_of_all_types_travel_in_one_exchange_per_layer() -> None:
    data, ours = of_one_width(), pair("sage")[0]

    def rank(comm: Communicator) -> tuple[int, int, int]:
        both = stores_of(comm, data, "random")
        loader, part = loader_of(both), both[0].part
        halo = 0
        for kind, name in enumerate(part.schema.node_types):
            own = part.nodes_of(kind)
            read = [
                edges.indices.long()
                for (source, _, _), edges in zip(part.schema.relations, part.relations, strict=True)
                if source == name
            ]
            halo += sum(int(one) not in own for one in torch.cat(read).unique())
        before = comm.counters.snapshot()
        copy.deepcopy(ours).inference(loader)
        spent = (comm.counters.snapshot() - before)[MessageKind.INFERENCE]
        return spent.rounds, spent.rows_received, halo

    found = run_threads(rank, 3)
    assert all(rounds == 2 * 3 for rounds, _, _ in found)
    # A row is counted where it was asked for and where it arrived.
    assert sum(rows for _, rows, _ in found) == 3 * 2 * sum(halo for _, _, halo in found)


def test_what_cannot_be_inferred_is_refused() -> None:
    ours, plain = pair("sage")[0], nn.SAGE(5, 8, 2, 4)
    normed = nn.to_hetero(nn.SAGE(5, 8, 2, 4, norm="graph_norm"), DATA.metadata())
    with pytest.raises(TypeError, match=r"takes a pyg_batchgnn.MacrobatchNeighborLoader"):
        ours.inference(DATA)
    with pytest.raises(ValueError, match=r"leads to the node types \['item'\]"):
        ours.inference(loader_of(of_one_width()), node_types=["item"])
    with pytest.raises(ValueError, match=r"for one node type and one relation.*'author'.*to_hetero"):
        plain.inference(loader_of(DATA))
    with pytest.raises(ValueError, match="GraphNorm takes statistics over all nodes"):
        normed.inference(loader_of(DATA))
