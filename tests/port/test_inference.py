"""The inference of all nodes, of native and of own models, is the pass over the whole graph."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import hypothesis.strategies as st
import pytest
import torch
import torch_geometric.nn
import torch_geometric.nn as pyg
from hypothesis import assume, given
from torch import Tensor
from torch_geometric.data import Data, HeteroData
from torch_geometric.nn import GraphNorm

from pyg_batchgnn import MacrobatchNeighborLoader, accelerate, inference
from pyg_batchgnn.comm import Communicator, MessageKind
from pyg_batchgnn.nn import GAT, GCN, GIN, SAGE, BatchNorm, NativeModel
from pyg_batchgnn.store import DistFeatureStore, DistGraphStore
from tests.support.accuracy import ALONE
from tests.support.partitioned_graphs import CASES, Case, owners, whole
from tests.support.ported_models import GRAPH
from tests.support.random_models import FEATURES, WIDTH, Plan, RandomModel, plans
from tests.support.random_typed_models import FORMS, TYPED, TypedModel, TypedPlan, data_of, typed_plans
from tests.support.ranks import run_ranks
from tests.support.recorded_models import Written, assert_close, pair
from tests.support.reference_aggregates import with_loops
from tests.support.reference_partition import split_graph
from tests.support.tiers import ALL, each, examples, in_all
from tests.support.typed_graphs import TypedCase, typed_cases

#: Products of options are in `make test-all`.
pytestmark = each

BUDGETS = (None, 20_000, 1)


def looped(case: Case) -> Data:
    data, draw = with_loops(whole(case)), torch.Generator().manual_seed(8)
    data.edge_attr = torch.randn(data.num_edges, 3, generator=draw)
    data.edge_weight = torch.rand(data.num_edges, generator=draw)
    return data


@pytest.fixture(scope="module")
def data() -> Data:
    """A graph with self loops, parallel edges, isolated nodes and a hub."""
    return looped(Case("random", nodes=150, edges=700))


def close(found: Tensor, expected: Tensor, tolerance: float = ALONE) -> bool:
    largest = expected.abs().max().clamp(min=1e-30)
    same = found.shape == expected.shape and found.dtype == expected.dtype
    return same and bool((found - expected).abs().max() <= tolerance * largest)


def with_running_statistics(model: torch.nn.Module) -> torch.nn.Module:
    draw = torch.Generator().manual_seed(3)
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm1d) and module.running_mean is not None:
            module.running_mean.normal_(generator=draw)
            module.running_var.uniform_(0.5, 2.0, generator=draw)
    return model


MODELS: dict[str, Callable[[], NativeModel]] = {
    "sage": lambda: SAGE(5, 8, 3, 3, dropout=0.5),
    "gcn": lambda: GCN(5, 8, 2, 3, dropout=0.5),
    "gin": lambda: GIN(5, 8, 3, 3, norm="batch_norm"),
    "gat": lambda: GAT(5, 8, 2, 3, dropout=0.5, heads=2),
    "one layer": lambda: GCN(5, 8, 1, 3),
    "gat, edge_attr": lambda: GAT(5, 8, 2, 3, heads=2, edge_dim=3),
    "gatv2, edge_attr": lambda: GAT(5, 8, 2, 3, v2=True, edge_dim=3, jk="cat"),
    "gcn, edge_weight": lambda: GCN(5, 8, 2, 3, norm="batch_norm", improved=True),
    "gcn without loops, edge_weight": lambda: GCN(5, 8, 2, 3, add_self_loops=False),
    "gcn, not normalised, edge_weight": lambda: GCN(5, 8, 2, 3, normalize=False),
}


def read_by(name: str) -> list[str]:
    return [one for one in ("edge_attr", "edge_weight") if name.endswith(one)]


@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("name", MODELS)
def test_inference_is_the_forward_pass_of_the_whole_graph(name: str, budget: int | None, data: Data) -> None:
    torch.manual_seed(1)
    model = with_running_statistics(MODELS[name]())
    loader = MacrobatchNeighborLoader(data, [2], input_nodes=torch.arange(3), batch_size=2)
    model.eval()
    with torch.no_grad():
        expected = model(data.x, data.edge_index, **{one: data[one] for one in read_by(name)})
    model.train()
    found = model.inference(loader, memory_budget=budget, edge_values=read_by(name))
    assert close(found, expected) and not found.requires_grad
    assert model.training and all(module.training for module in model.modules())


@pytest.mark.parametrize(
    "model",
    [
        lambda: SAGE(5, 8, 2, 3, aggr="max"),
        lambda: SAGE(5, 8, 2, 3, project=True, normalize=True),
        lambda: SAGE(5, 8, 2, 3, root_weight=False),
        lambda: GIN(5, 8, 2, 3, norm="layer_norm", norm_kwargs={"mode": "node"}, act="elu", jk="last"),
        lambda: GAT(5, 8, 2, 3, norm="batch_norm", act_first=True, jk="max"),
        lambda: SAGE(5, 8, 3, norm="batch_norm", jk="lstm"),
        lambda: SAGE(5, 8, 3, 4, jk="cat"),
    ],
)
def test_other_arguments(model: Callable[[], NativeModel], data: Data) -> None:
    made = with_running_statistics(model()).eval()
    with torch.no_grad():
        expected = made.outputs(data.x, data.edge_index)
    found = made.infer(MacrobatchNeighborLoader(data, [2]).all_nodes(memory_budget=30_000))
    assert close(found.logits, expected.logits) and close(found.hidden, expected.hidden)


@pytest.mark.parametrize("jk", [None, "cat", "lstm", *in_all("last", "max")])
@pytest.mark.parametrize("kind", ["GraphSAGE", "GCN", "GIN", "GAT"])
def test_accelerated_models_of_pyg(kind: str, jk: str | None, data: Data) -> None:
    torch.manual_seed(2)
    model = getattr(torch_geometric.nn, kind)(5, 8, 3, 4, dropout=0.5, norm="batch_norm", jk=jk)
    with_running_statistics(model).eval()
    with torch.no_grad():
        expected = model(data.x, data.edge_index)
    loader = MacrobatchNeighborLoader(data, [2], input_nodes=torch.arange(3))
    ours = accelerate(model)
    for budget in (None, 30_000):
        assert close(ours.inference(loader, memory_budget=budget), expected)


@pytest.mark.parametrize(
    "options",
    [
        *in_all({"norm": "layer_norm", "norm_kwargs": {"mode": "node"}}),
        {"norm": torch.nn.LayerNorm(8), "act": "prelu", "act_first": True},
        *in_all({"norm": torch.nn.GroupNorm(2, 8), "act": torch.nn.functional.elu}),
        {"norm": "diff_group_norm", "norm_kwargs": {"groups": 2}, "jk": "max"},
        *in_all({"act": "softmax"}),
        {"act": torch.nn.LogSoftmax(dim=-1), "jk": "cat"},
        {"act": torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh())},
        {"dropout": 1.0, "norm": "instance_norm", "norm_kwargs": {"track_running_stats": True}},
    ],
    ids=lambda options: "-".join(options),
)
def test_rows_are_normalised_and_activated_in_pieces(options: dict[str, Any], data: Data) -> None:
    torch.manual_seed(2)
    model = with_running_statistics(torch_geometric.nn.GraphSAGE(5, 8, 3, 4, **options)).eval()
    with torch.no_grad():
        expected = model(data.x, data.edge_index)
    found = accelerate(model).train().inference(MacrobatchNeighborLoader(data, [2]), memory_budget="30kB")
    assert close(found, expected) and model.training


def test_widths_that_are_not_known_yet(data: Data) -> None:
    for model in (SAGE(-1, 8, 2, 3), accelerate(torch_geometric.nn.GAT(-1, 8, 2, 3))):
        found = model.inference(MacrobatchNeighborLoader(data, [2]), memory_budget=30_000)
        with torch.no_grad():
            assert close(found, model.eval()(data.x, data.edge_index))


def test_what_cannot_be_inferred_is_refused(data: Data) -> None:
    model, loader = MODELS["sage"](), MacrobatchNeighborLoader(data, [2])
    with pytest.raises(TypeError, match=r"takes a pyg_batchgnn\.MacrobatchNeighborLoader, got Data"):
        model.inference(data)
    with pytest.raises(ValueError, match="runs on the CPU, got device 'cuda'"):
        model.inference(loader, "cuda")
    with pytest.raises(ValueError, match="memory_budget must be a number of bytes, at least 1, got 0"):
        model.inference(loader, memory_budget=0)
    model.extra = GraphNorm(8)
    with pytest.raises(ValueError, match="GraphNorm takes statistics over all nodes of a call"):
        model.inference(loader)
    model.extra = BatchNorm(8, track_running_stats=False)
    with pytest.raises(ValueError, match="BatchNorm has no running statistics"):
        model.inference(loader)
    with pytest.raises(ValueError, match="the edges have no attribute 'time' to read"):
        MODELS["sage"]().inference(loader, edge_values=["time"])
    without = MacrobatchNeighborLoader(Data(edge_index=data.edge_index, num_nodes=150), [2])
    with pytest.raises(ValueError, match="there are no features x"):
        MODELS["sage"]().inference(without)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"norm": "graph_norm"}, "GraphNorm takes statistics over all nodes"),
        ({"norm": "layer_norm"}, "LayerNorm takes statistics over all nodes"),
        ({"norm": "pair_norm"}, "PairNorm takes"),
        ({"norm": "instance_norm"}, "InstanceNorm has no running statistics"),
        ({"norm": "batch_norm", "norm_kwargs": {"track_running_stats": False}}, "^BatchNorm1d has no"),
        ({"act": torch.nn.Softmax(dim=0)}, r"Softmax\(dim=0\) goes over all nodes"),
    ],
    ids=str,
)
def test_modules_that_look_at_all_rows_are_refused(options: dict[str, Any], words: str, data: Data) -> None:
    model = accelerate(torch_geometric.nn.GraphSAGE(5, 8, 2, 3, **options)).eval()
    for fanouts in ([5, 3], [-1]):
        with pytest.raises(ValueError, match=words):
            model.inference(MacrobatchNeighborLoader(data, fanouts, batch_size=64))


def test_a_part_that_must_be_called(data: Data) -> None:
    torch.manual_seed(2)
    foreign = accelerate(torch_geometric.nn.GraphSAGE(5, 8, 2, 3, aggr="median")).eval()
    some = MacrobatchNeighborLoader(data, [5, 3], torch.arange(9), batch_size=64)
    model = accelerate(torch_geometric.nn.GraphSAGE(5, 8, 2, 3)).eval()
    model.norms[0].register_forward_hook(lambda *_: None)
    with torch.no_grad():
        assert close(foreign.inference(some), foreign(data.x, data.edge_index))
    with pytest.raises(ValueError, match=r"norms\.0 has hooks"):
        model.inference(some)
    with pytest.raises(TypeError, match="got Data"):
        model.inference(data)


# Inference over ranks #############################################################################

RANK_MODELS = {**MODELS, "of PyG": lambda: accelerate(torch_geometric.nn.GCN(5, 8, 3, 3, jk="max"))}


def model_of(name: str) -> NativeModel:
    torch.manual_seed(4)
    return with_running_statistics(RANK_MODELS[name]()).eval()


def equality(comm: Communicator) -> None:
    """A rank's rows are those of the whole graph's forward pass, shared memory or not. No rank asks
    another for values of edges."""
    for number, case in enumerate(CASES):
        data = looped(case)
        part = split_graph(
            data.edge_index, owners(case, comm.size), comm.size, comm.rank,
            tables={"x": data.x}, splits={},
            edge_tables={"edge_attr": data.edge_attr, "edge_weight": data.edge_weight},
        )  # fmt: skip
        both = (DistFeatureStore(part, comm, share=number % 2 == 0), DistGraphStore(part, comm))
        loader = MacrobatchNeighborLoader(both, [2], batch_size=4)
        before = comm.counters.snapshot()
        more = RANK_MODELS if ALL else ("sage", "gcn", "of PyG")
        for name in more if number == 0 else ("gcn", "gat, edge_attr")[not ALL and number > 1 :]:
            with torch.no_grad():
                values = {one: data[one] for one in read_by(name)}
                expected = model_of(name)(data.x, data.edge_index, **values)
            for budget in (None, 20_000) if number < 2 else (None,):
                found = model_of(name).inference(loader, memory_budget=budget, edge_values=read_by(name))
                error = (found - expected[part.node]).abs().max() if len(part.node) else torch.zeros(())
                assert found.shape == (len(part.node), 3), found.shape
                assert error <= 1e-5 * expected.abs().max(), (case.name, name, budget, error)
        assert not (comm.counters.snapshot() - before)[MessageKind.FEATURES].rounds


@pytest.mark.parametrize("hosts", [*in_all([0], [0, 0], [0, 1, 1, 2]), [0, 1, 1]], ids=str)
def test_each_rank_has_the_rows_of_its_nodes(hosts: list[int]) -> None:
    run_ranks(equality, len(hosts), hosts=hosts)


# Own models #######################################################################################

SMALL_BUDGETS = (None, 20_000, 3_000)


def loader_of(data: Any, seeds: Any = None) -> MacrobatchNeighborLoader:
    return MacrobatchNeighborLoader(data, [2], seeds, batch_size=7, seed=0)


@torch.no_grad()
def check(
    model: torch.nn.Module,
    data: Data | HeteroData,
    budget: int | None,
    seeds: Any = None,
    names: Sequence[str] = (),
) -> None:
    """Fails unless all rows are those of the plain model, which is given values of edges."""
    ours, plain = pair(model.eval())
    typed = isinstance(data, HeteroData)
    given_now = (data.x_dict, data.edge_index_dict) if typed else (data.x, data.edge_index)
    ours.train()
    found = inference(ours, loader_of(data, seeds), budget, edge_values=names)
    wanted = plain(*given_now, **{name: data[name] for name in names})
    assert all(one.training for one in ours.modules())
    assert_close(found, wanted, 1e-9)


@examples(6)
@given(plans(), st.sampled_from(SMALL_BUDGETS), st.integers(0, 2**31))
def test_random_models(plan: Plan, budget: int | None, seed: int) -> None:
    torch.manual_seed(seed)
    model = RandomModel(plan)
    try:
        check(model, GRAPH, budget, None, ["edge_weight", "edge_attr"] if plan.values else [])
    except ValueError as error:
        assert "call the model on the whole graph" in str(error)
        unable = plan.looks_at_all_rows or plan.reads_ends
        assert unable or "but RandomModel has none" in str(error)


class ReadsEdges(torch.nn.Module):
    def __init__(self, conv: Callable[..., torch.nn.Module], change: Any) -> None:
        super().__init__()
        self.convs = torch.nn.ModuleList([conv(FEATURES, WIDTH), conv(WIDTH, 3)])
        self.change = change

    def forward(
        self, x: Tensor, edge_index: Tensor, edge_attr: Any = None, edge_weight: Any = None
    ) -> Tensor:
        values = edge_weight if edge_attr is None else edge_attr
        h = self.convs[0](x, edge_index, self.change(values)).relu()
        result: Tensor = self.convs[1](h, edge_index, values)
        return result


OVER_EDGES: dict[str, Callable[..., torch.nn.Module]] = {
    "gat": lambda a, b: pyg.GATConv(a, b, edge_dim=3),
    "gatv2": lambda a, b: pyg.GATv2Conv(a, b, edge_dim=3),
    "transformer": lambda a, b: pyg.TransformerConv(a, b, edge_dim=3),
    "gine": lambda a, b: pyg.GINEConv(torch.nn.Linear(a, b), edge_dim=3),
    "network": lambda a, b: pyg.NNConv(a, b, torch.nn.Linear(3, a * b), "mean"),
    "residual": lambda a, b: pyg.ResGatedGraphConv(a, b, edge_dim=3),
    "gcn, edge_weight": pyg.GCNConv,
    "gcn without loops, edge_weight": lambda a, b: pyg.GCNConv(a, b, add_self_loops=False),
    "not normalised, edge_weight": lambda a, b: pyg.GCNConv(a, b, normalize=False),
    "mean, edge_weight": lambda a, b: pyg.GraphConv(a, b, "mean"),
    "max, edge_weight": lambda a, b: pyg.GraphConv(a, b, "max"),
}


@pytest.mark.parametrize("budget", SMALL_BUDGETS)
@pytest.mark.parametrize("changes", [False, True])
@pytest.mark.parametrize("name", OVER_EDGES)
def test_values_of_edges(name: str, changes: bool, budget: int | None) -> None:
    names = read_by(name) or ["edge_attr"]
    change = {"edge_attr": torch.nn.Linear(3, 3), "edge_weight": torch.sqrt}[names[0]]
    model = ReadsEdges(OVER_EDGES[name], change if changes else torch.nn.Identity())
    if changes and name.startswith("gcn"):
        with pytest.raises(ValueError, match="divides by the weights of edges of other nodes"):
            check(model, GRAPH, budget, names=names)
    else:
        check(model, GRAPH, budget, names=names)


# Types ############################################################################################


@examples(4)
@given(st.data(), typed_cases(), typed_plans(), st.sampled_from(SMALL_BUDGETS))
def test_random_typed_models(
    data: st.DataObject, case: TypedCase, plan: TypedPlan, budget: int | None
) -> None:
    relations = [one for one in case.schema.relations if case.schema.num_types > 1]
    assume(relations)
    graph, seeds = data_of(case), data.draw(st.sampled_from([one[2] for one in relations]))
    torch.manual_seed(0)
    model = TypedModel(plan, graph, seeds)
    try:
        check(model, graph, budget, (seeds, torch.arange(case.num_nodes[seeds])))
    except ValueError as error:  # no edges lead to some type in a layer
        assert re.search("but no edges lead to .*; call the model on the whole graph", str(error))
        assert set(case.schema.node_types) > {one[2] for one in relations}


@pytest.mark.parametrize("budget", SMALL_BUDGETS)
@pytest.mark.parametrize("name", ["to_hetero", "by relation", "weighted"])
def test_forms_of_typed_models(name: str, budget: int | None) -> None:
    check(FORMS[name][0](), TYPED, budget, "b")


# Refused, and left to the user ####################################################################


def between(middle: Callable[[Tensor], Tensor], conv: Any = pyg.SAGEConv) -> torch.nn.Module:
    layers = {"first": conv(FEATURES, WIDTH), "second": conv(WIDTH, WIDTH), "middle": middle}
    return Written(lambda m, x, edges: m.second(m.middle(m.first(x, edges)), edges), **layers)


class ThreeArguments(Written):
    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:  # type: ignore[override]
        return super().forward(x, edge_index)


class ByIds(Written):
    def forward(self, n_id: Tensor, edge_index: Tensor) -> Tensor:  # type: ignore[override]
        return super().forward(n_id, edge_index)


REFUSED: dict[str, tuple[Callable[[], torch.nn.Module], str]] = {
    "mean": (lambda: between(lambda h: h - h.mean(0)), "mean looks at all rows"),
    "size": (lambda: between(lambda h: h / h.size(0)), "uses numbers of nodes"),
    "compared": (lambda: between(lambda h: h * 2 if h.size(0) > 100 else h), "uses numbers of nodes"),
    "item": (lambda: between(lambda h: h / h.max().item()), "max looks at all rows"),
    "norm": (lambda: between(pyg.GraphNorm(WIDTH)), "GraphNorm takes statistics"),
    "arguments": (lambda: ThreeArguments(lambda _, x, __: x), "batch; the edges have no attribute"),
    "ids": (lambda: ByIds(lambda _, x, __: x), "the first parameter of ByIds is n_id"),
    "edges' rows": (
        lambda: Written(lambda m, x, e: (m.conv(x, e), e[0] * 2), conv=pyg.SAGEConv(FEATURES, 3)),
        "forward returns values of edges|looks at other rows",
    ),
    "edges": (
        lambda: Written(lambda m, x, edges: m.conv(x, edges.flip(0)), conv=pyg.SAGEConv(FEATURES, 3)),
        "other edges than those",
    ),
    "layer": (lambda: between(torch.relu, pyg.SGConv), "SGConv normalises by the degrees"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_looks_at_other_rows_is_refused(name: str) -> None:
    make, reason = REFUSED[name]
    ours, _ = pair(make())
    with pytest.raises(ValueError, match=reason):
        inference(ours, loader_of(GRAPH))
    with pytest.raises(TypeError, match="call accelerate"):
        inference(make(), loader_of(GRAPH))


def test_an_inference_of_ones_own_is_not_replaced() -> None:
    class Own(Written):
        def inference(self, loader: Any) -> str:
            return f"own {len(loader)}"

    ours = accelerate(Own(lambda m, *given: m.conv(*given), conv=pyg.SAGEConv(FEATURES, 3)).double())
    assert ours.inference([1, 2]) == "own 2"
    assert inference(ours.eval(), loader_of(GRAPH)).shape == (GRAPH.num_nodes, 3)


@torch.no_grad()
def test_weights_and_attributes_of_now() -> None:
    """What changed since the last call acts, and what a batch recorded does not matter."""
    ours, plain = pair(between(torch.nn.BatchNorm1d(WIDTH)).eval())
    norm = torch.nn.Tanh()
    changes = (lambda _: None, lambda m: m.middle.weight.mul_(3), lambda m: setattr(m, "middle", norm))
    for change in changes:
        for model in (ours, plain):
            change(model)
        wanted = plain(GRAPH.x, GRAPH.edge_index)
        assert_close(inference(ours, loader_of(GRAPH)), wanted, 1e-9)
        assert_close(ours(GRAPH.x, GRAPH.edge_index), wanted, 1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@torch.no_grad()
def test_other_types_of_numbers(dtype: torch.dtype) -> None:
    ours, plain = pair(between(torch.nn.BatchNorm1d(WIDTH)).eval(), torch.float32)
    data = Data(x=GRAPH.x.float(), edge_index=GRAPH.edge_index)
    with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
        found, wanted = inference(ours, loader_of(data)), plain(data.x, data.edge_index)
    assert found.dtype == dtype
    assert_close(found.float(), wanted.float(), 1e-5 if dtype == torch.float32 else 5e-2)
