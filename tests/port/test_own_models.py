"""Own models of any shape, random ones among them, compute the rows of the plain model."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import hypothesis.strategies as st
import pytest
import torch
import torch.nn.functional as F
import torch_geometric.nn as pyg
from hypothesis import assume, given, note
from torch import Tensor
from torch_geometric.data import HeteroData

from pyg_batchgnn import MacrobatchLinkNeighborLoader, MacrobatchNeighborLoader
from tests.support.ported_models import GRAPH
from tests.support.random_models import CONVS, EDGE_FEATURES, FEATURES, WIDTH, Plan, RandomModel, plans
from tests.support.recorded_models import (
    assert_close,
    assert_recorded,
    assert_trimmed,
    batches,
    compare,
    compare_plain_calls,
    cut,
    found_in,
    gradients,
    pair,
)
from tests.support.tiers import examples
from tests.support.typed_graphs import TypedCase, typed_cases

FANOUTS = ((4, 3), (3,), (3, 2, 2), (2, 2, 2, 2))


def values_of(plan: Plan, batch: Any) -> dict[str, Any]:
    return {name: batch[name] for name in ("edge_weight", "edge_attr")} if plan.values else {}


@examples()
@given(plans(), st.sampled_from(FANOUTS), st.booleans(), st.integers(0, 2**31))
def test_random_models(plan: Plan, fanouts: tuple[int, ...], training: bool, seed: int) -> None:
    """All outputs, and gradients of them, for seeds and for all nodes."""
    torch.manual_seed(seed)
    ours, plain = pair(RandomModel(plan))
    for model in (ours, plain):
        model.train(training and not plan.has_statistics)
    given_now, native = batches(fanouts)[::2], batches(fanouts, export="native")[::2]
    for batch, other in zip(given_now, native, strict=True):
        values = values_of(plan, batch)
        every = plain(batch.x, batch.edge_index, **values)
        wanted = cut(every, batch.batch_size)
        grads = gradients(plain, wanted)
        for one in (batch, other):
            found = ours(one, **values)
            note(found_in(ours).reasons)
            assert_close(found, wanted)
            assert_close(gradients(ours, found), grads)
        every = plain(batch.x, batch.edge_index, **values)
        found = ours(batch.x, batch.edge_index, **values)
        assert_close(found, every)
        assert_close(gradients(ours, found), gradients(plain, every))
    assert found_in(ours).reasons == []
    assert bool(found_in(ours).notes) <= plan.looks_at_all_rows


NATIVE = ("sage", "sage, max, projected", "gcn", "gin", "gat", "gat, features", "gatv2")


class Skips(torch.nn.Module):
    """Two convolutions with a skip connection, and dropout that drops."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        make, self.values = CONVS[kind]
        self.first, self.second = make(FEATURES), make(WIDTH)
        self.skip, self.drop = torch.nn.Linear(FEATURES, WIDTH), torch.nn.Dropout(0.3)

    def forward(self, x: Tensor, edge_index: Tensor, **values: Tensor) -> Any:
        h = self.first(x, edge_index, **values) + self.skip(x)
        h = F.dropout(self.drop(h.relu()), 0.2, self.training)
        return self.second(h, edge_index, **values), h


@pytest.mark.parametrize("kind", NATIVE)
def test_any_number_of_threads_gives_the_same_bits(kind: str) -> None:
    torch.manual_seed(0)
    ours, _ = pair(Skips(kind), torch.float32)
    outcomes = []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        torch.manual_seed(1)
        one: list[Tensor] = []
        for batch in batches(dtype=torch.float32):
            for found in (ours(batch), ours(batch.x, batch.edge_index)):
                one += [*found, *gradients(ours, found).values()]
        outcomes.append(one)
    assert found_in(ours).reasons == [] and found_in(ours).notes == []
    for other in outcomes[1:]:
        assert all(map(torch.equal, outcomes[0], other))


# Batch norms in training ##########################################################################


class Normed(torch.nn.Module):
    """A model with batch norms. ``trims``: it is the reference, which leaves out rows by itself."""

    def __init__(self, kinds: Sequence[type[torch.nn.Module]], trims: bool = False) -> None:
        super().__init__()
        self.convs = torch.nn.ModuleList(
            pyg.SAGEConv(FEATURES if number == 0 else WIDTH, WIDTH) for number in range(len(kinds))
        )
        self.norms = torch.nn.ModuleList(kind(WIDTH) for kind in kinds)
        self.skips = torch.nn.ModuleList(torch.nn.Linear(one.in_channels, WIDTH) for one in self.convs)
        self.trims = trims

    def forward(self, x: Tensor, edge_index: Tensor, nodes: Any = None, edges: Any = None) -> Tensor:
        for number, (conv, norm, skip) in enumerate(zip(self.convs, self.norms, self.skips, strict=True)):
            if self.trims:
                left = len(self.convs) - number - 1
                rows, count = sum(nodes[: left + 2]), sum(edges[: left + 1])
                x, edge_index = x[:rows], edge_index[:, :count]
                targets = x[: sum(nodes[: left + 1])]
                x = F.relu(norm(conv((x, targets), edge_index) + skip(targets)))
            else:
                x = F.relu(norm(conv(x, edge_index) + skip(x)))
        return x


@pytest.mark.parametrize("kinds", [[torch.nn.BatchNorm1d], [torch.nn.BatchNorm1d, pyg.BatchNorm]])
def test_batch_norms_take_the_statistics_of_the_rows_that_are_computed(kinds: Any) -> None:
    torch.manual_seed(0)
    ours, _ = pair(Normed(kinds))
    reference = Normed(kinds, trims=True).double()
    reference.load_state_dict(ours.state_dict())
    for _ in range(2):
        for batch in batches((4, 3)[: len(kinds)]):
            counts = batch.num_sampled_nodes, batch.num_sampled_edges
            found, wanted = ours(batch), reference(batch.x, batch.edge_index, *counts)
            assert_close(found, wanted)
            assert_close(gradients(ours, found), gradients(reference, wanted))
        assert_close(dict(ours.named_buffers()), dict(reference.named_buffers()))
    assert_trimmed(ours, [1, 0][-len(kinds) :])
    for model in (ours, reference):
        model.eval()
    reference.trims = False
    compare(ours, reference)


def test_batch_norms_of_plain_calls_take_those_of_all_rows() -> None:
    torch.manual_seed(0)
    ours, plain = pair(Normed([torch.nn.BatchNorm1d, pyg.BatchNorm]))
    compare_plain_calls(ours, plain)
    assert_close(dict(ours.named_buffers()), dict(plain.named_buffers()))
    assert_recorded(ours)


# Links ############################################################################################


class Linked(torch.nn.Module):
    """A model of links, with its decoder inside."""

    def __init__(self, conv: Callable[..., torch.nn.Module] = pyg.SAGEConv) -> None:
        super().__init__()
        self.first, self.second = conv(FEATURES, WIDTH), conv(WIDTH, WIDTH)
        self.decoder = torch.nn.Sequential(
            torch.nn.Linear(2 * WIDTH, WIDTH), torch.nn.ReLU(), torch.nn.Linear(WIDTH, 1)
        )

    def encode(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.second(self.first(x, edge_index).relu(), edge_index)


class Pairs(Linked):
    def forward(self, x: Tensor, edge_index: Tensor, edge_label_index: Tensor) -> Tensor:
        z = self.encode(x, edge_index)
        row, col = edge_label_index
        return self.decoder(torch.cat([z[row], z[col]], dim=-1)).view(-1)


class Products(Linked):
    def forward(self, x: Tensor, edge_index: Tensor, edge_label_index: Tensor) -> Any:
        z = self.encode(x, edge_index)
        return (z[edge_label_index[0]] * z[edge_label_index[1]]).sum(dim=-1), z[edge_label_index].mean()


class Selected(Linked):
    def forward(self, x: Tensor, edge_index: Tensor, edge_label_index: Tensor) -> Tensor:
        z = self.encode(x, edge_index).index_select(0, edge_label_index.flatten())
        return self.decoder(z.view(2, -1, WIDTH).transpose(0, 1).flatten(1))


class Triplets(Linked):
    def forward(
        self, x: Tensor, edge_index: Tensor, src_index: Tensor, dst_pos_index: Tensor, dst_neg_index: Tensor
    ) -> Any:
        z = self.encode(x, edge_index)
        source = z[src_index]
        return (source * z[dst_pos_index]).sum(-1), (source * z[dst_neg_index]).sum(-1)


class Outside(Linked):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.encode(x, edge_index)


def link_batches(export: str = "pyg", **options: Any) -> list[Any]:
    loader = MacrobatchLinkNeighborLoader(
        GRAPH,
        [4, 3],
        edge_label_index=GRAPH.edge_index[:, 5:45],
        batch_size=16,
        seed=3,
        export=export,
        **options,
    )
    return list(loader)


@pytest.mark.parametrize("kind", [Pairs, Products, Selected, Triplets])
@pytest.mark.parametrize("conv", [pyg.SAGEConv, pyg.GCNConv, pyg.GraphConv])
def test_models_of_links(kind: type[torch.nn.Module], conv: Any) -> None:
    torch.manual_seed(0)
    ours, plain = pair(kind(conv))
    mode = "triplet" if kind is Triplets else "binary"
    for batch in link_batches(neg_sampling=mode):
        named = ("src_index", "dst_pos_index", "dst_neg_index") if kind is Triplets else ("edge_label_index",)
        found, wanted = ours(batch), plain(batch.x, batch.edge_index, *(batch[name] for name in named))
        assert_close(found, wanted)
        assert_close(gradients(ours, found), gradients(plain, wanted))
    assert_trimmed(ours, [1, 0])
    for batch in link_batches(neg_sampling=mode):
        given_now = [batch[name] for name in named]
        found, wanted = (model(batch.x, batch.edge_index, *given_now) for model in (ours, plain))
        assert_close(found, wanted)
        assert_close(gradients(ours, found), gradients(plain, wanted))
    assert found_in(ours).reasons == []


@pytest.mark.parametrize("export", ["pyg", "native"])
def test_links_outside_of_a_model(export: str) -> None:
    torch.manual_seed(0)
    ours, plain = pair(Outside())
    for batch, given_now in zip(link_batches(), link_batches(export), strict=True):
        found, wanted = ours(given_now), plain(batch.x, batch.edge_index)
        assert found.size(0) == batch.num_sampled_nodes[0]
        assert_close(found[batch.edge_label_index], wanted[batch.edge_label_index])
    assert_trimmed(ours, [1, 0])


# Types ############################################################################################

TYPED_CONVS: dict[str, Callable[[int, int, bool], torch.nn.Module]] = {
    "sage": lambda a, b, same: pyg.SAGEConv((a, b), WIDTH),
    "sage, max": lambda a, b, same: pyg.SAGEConv((a, b), WIDTH, aggr="max"),
    "gat": lambda a, b, same: pyg.GATConv((a, b), WIDTH, add_self_loops=False),
    "gatv2": lambda a, b, same: pyg.GATv2Conv((a, b), WIDTH, add_self_loops=False),
    "gcn": lambda a, b, same: pyg.GCNConv(a, WIDTH) if same else pyg.SAGEConv((a, b), WIDTH),
    "graph": lambda a, b, same: pyg.GraphConv((a, b), WIDTH),
    "mixed": lambda a, b, same: pyg.GCNConv(a, WIDTH) if same else pyg.GraphConv((a, b), WIDTH),
    "attentive": lambda a, b, same: (
        pyg.GATConv((a, b), WIDTH, add_self_loops=False) if same else pyg.TransformerConv((a, b), WIDTH)
    ),
}


@dataclass(frozen=True)
class TypedPlan:
    """A typed model: of each layer the convolutions, how it joins relations, and what follows."""

    layers: tuple[tuple[str, str, str, bool], ...]
    output: str


@st.composite
def typed_plans(draw: st.DrawFn) -> TypedPlan:
    layer = st.tuples(
        st.sampled_from(list(TYPED_CONVS)),
        st.sampled_from(["sum", "sum", "mean", "max", "cat"]),
        st.sampled_from(["none", "layer", "relu", "drop"]),
        st.booleans(),
    )
    return TypedPlan(
        tuple(draw(st.lists(layer, min_size=1, max_size=3))), draw(st.sampled_from(["one", "all", "tuple"]))
    )


class TypedModel(torch.nn.Module):
    """The model of a plan over the relations of a graph."""

    def __init__(self, plan: TypedPlan, data: HeteroData, seeds: str) -> None:
        super().__init__()
        self.plan, self.seeds = plan, seeds
        widths = {name: data[name].x.size(1) for name in data.node_types}
        self.convs, self.skips = torch.nn.ModuleList(), torch.nn.ModuleList()
        self.norms = torch.nn.ModuleList()
        for kind, aggr, after, _ in plan.layers:
            convs = {
                one: TYPED_CONVS[kind](widths[one[0]], widths[one[2]], one[0] == one[2])
                for one in data.edge_types
            }
            self.convs.append(pyg.HeteroConv(convs, aggr))
            into = {name: [one for one in data.edge_types if one[2] == name] for name in data.node_types}
            wide = {name: WIDTH * (len(into[name]) if aggr == "cat" else 1) for name in widths}
            wide = {name: wide[name] if into[name] else WIDTH for name in widths}
            self.skips.append(
                torch.nn.ModuleDict({name: torch.nn.Linear(widths[name], wide[name]) for name in widths})
            )
            norms = {name: torch.nn.LayerNorm(wide[name]) for name in widths} if after == "layer" else {}
            self.norms.append(torch.nn.ModuleDict(norms))
            widths = wide
        self.lin = torch.nn.Linear(widths[seeds], 3)

    def forward(self, x_dict: dict[str, Tensor], edge_index_dict: dict[Any, Tensor]) -> Any:
        for number, (_, _, after, skips) in enumerate(self.plan.layers):
            found = self.convs[number](x_dict, edge_index_dict)
            for name, x in x_dict.items():
                if name not in found or skips:
                    more = self.skips[number][name](x)
                    found[name] = found[name] + more if name in found else more
            if after == "layer":
                found = {name: self.norms[number][name](x).relu() for name, x in found.items()}
            elif after == "relu":
                for name, x in found.items():
                    found[name] = F.relu(x, inplace=True)
            elif after == "drop":
                found = {name: F.dropout(x.tanh(), 0.0, self.training) for name, x in found.items()}
            x_dict = found
        rows = self.lin(x_dict[self.seeds])
        return rows if self.plan.output == "one" else x_dict if self.plan.output == "all" else (rows, x_dict)


def data_of(case: TypedCase) -> HeteroData:
    """The graph of a case with features of other widths for each type."""
    data, draw = HeteroData(), torch.Generator().manual_seed(1)
    for place, (name, count) in enumerate(case.num_nodes.items()):
        data[name].x = torch.randn(count, 3 + place, generator=draw, dtype=torch.float64)
    for relation, edges in case.edge_index.items():
        data[relation].edge_index = edges.long()
    return data


def seeds_of(batch: HeteroData, tree: Any, seeds: str) -> Any:
    """The rows of the seeds in what a typed model returns."""
    if isinstance(tree, tuple):
        return tuple(seeds_of(batch, one, seeds) for one in tree)
    if isinstance(tree, dict):
        return {name: one[: batch[name].num_sampled_nodes[0]] for name, one in tree.items()}
    return tree[: batch[seeds].batch_size]


@examples()
@given(st.data(), typed_cases(), typed_plans(), st.integers(1, 3))
def test_random_typed_models(data: st.DataObject, case: TypedCase, plan: TypedPlan, hops: int) -> None:
    relations = [one for one in case.schema.relations if case.schema.num_types > 1]
    assume(relations)
    graph, seeds = data_of(case), data.draw(st.sampled_from([one[2] for one in relations]))
    torch.manual_seed(0)
    ours, plain = pair(TypedModel(plan, graph, seeds))
    options: dict[str, Any] = {
        "num_neighbors": [3] * hops,
        "input_nodes": (seeds, torch.arange(case.num_nodes[seeds])),
        "batch_size": 5,
        "seed": 2,
    }
    given_now, native = (
        list(itertools.islice(MacrobatchNeighborLoader(graph, export=export, **options), 2))
        for export in ("pyg", "native")
    )
    for batch, other in zip(given_now, native, strict=True):
        wanted = plain(batch.x_dict, batch.edge_index_dict)
        cut_now = seeds_of(batch, wanted, seeds)
        grads = gradients(plain, cut_now)
        for one in (batch, other):
            found = ours(one)
            note(found_in(ours).reasons)
            assert_close(found, cut_now)
            assert_close(gradients(ours, found), grads)
        wanted = plain(batch.x_dict, batch.edge_index_dict)
        found = ours(batch.x_dict, batch.edge_index_dict)
        assert_close(found, wanted)
        assert_close(gradients(ours, found), gradients(plain, wanted))
    assert found_in(ours).reasons == [] and found_in(ours).notes == []


def test_one_tensor_in_two_places() -> None:
    """Rows that are those of two types, and a buffer that is given as an argument."""

    class Both(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.other = pyg.SAGEConv((4, 4), WIDTH), pyg.SAGEConv((4, 4), WIDTH)
            self.register_buffer("table", torch.randn(9, 4, dtype=torch.float64))

        def forward(self, x_dict: dict[str, Tensor], edge_index_dict: dict[Any, Tensor]) -> Any:
            a, b = x_dict["a"], x_dict["b"]
            scale = self.table.mean(dim=0)
            return {
                "b": self.one((a * scale, b), edge_index_dict["a", "to", "b"]),
                "a": self.other((b, a * scale), edge_index_dict["b", "to", "a"]),
            }

    ours, plain = pair(Both())
    edges = torch.randint(9, (2, 30))
    for x in (ours.table, torch.randn(9, 4, dtype=torch.float64), torch.randn(9, 4, dtype=torch.float64)):
        given_now = {"a": x, "b": x}, {("a", "to", "b"): edges, ("b", "to", "a"): edges}
        assert_close(ours(*given_now), plain(*given_now))
    assert_recorded(ours)


# Other forms of typed models ######################################################################

A_TO_B, B_TO_A, A_TO_A = ("a", "to", "b"), ("b", "to", "a"), ("a", "in", "a")


def make_typed() -> HeteroData:
    """A graph of two types and three relations, with values of edges."""
    data, draw = HeteroData(), torch.Generator().manual_seed(4)
    counts = {"a": 70, "b": 50}
    for name, count in counts.items():
        data[name].x = torch.randn(count, FEATURES, generator=draw, dtype=torch.float64)
    for source, name, target in (A_TO_B, B_TO_A, A_TO_A):
        ends = [torch.randint(counts[one] - 5, (400,), generator=draw) for one in (source, target)]
        data[source, name, target].edge_index = torch.stack(ends)
        data[source, name, target].edge_weight = torch.rand(400, generator=draw, dtype=torch.float64)
        attr = torch.randn(400, EDGE_FEATURES, generator=draw, dtype=torch.float64)
        data[source, name, target].edge_attr = attr
    return data


TYPED = make_typed()


def typed_batches(export: str = "pyg", fanouts: Sequence[int] = (4, 3), seeds: str = "a") -> list[Any]:
    loader = MacrobatchNeighborLoader(
        TYPED, list(fanouts), (seeds, torch.tensor([*range(30), 3, 3, 68, 12])), batch_size=12, seed=5,
        export=export,
    )  # fmt: skip
    return list(loader)


class Gnn(torch.nn.Module):
    """The rows that `to_hetero` transforms."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = torch.nn.ModuleList([pyg.SAGEConv((-1, -1), WIDTH), pyg.GraphConv((-1, -1), WIDTH)])
        self.norm, self.lin, self.drop = (
            torch.nn.LayerNorm(WIDTH),
            pyg.Linear(-1, WIDTH),
            torch.nn.Dropout(0.0),
        )

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        first = self.lin(x)
        x = self.drop(self.norm(self.convs[0](x, edge_index) + first).relu())
        return F.dropout(self.convs[1](x, edge_index).relu(), p=0.0) + first


class ByRelation(torch.nn.Module):
    """A model that calls a convolution of each relation itself."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = torch.nn.ModuleList(
            torch.nn.ModuleDict({"__".join(one): pyg.SAGEConv((n, n), WIDTH) for one in TYPED.edge_types})
            for n in (FEATURES, WIDTH)
        )
        self.act = torch.nn.ModuleDict({"a": torch.nn.PReLU(), "b": torch.nn.ReLU()})

    def forward(self, x_dict: dict[str, Tensor], edge_index_dict: dict[Any, Tensor]) -> Any:
        for convs in self.convs:
            found: dict[str, list[Tensor]] = {name: [] for name in x_dict}
            for relation, edges in edge_index_dict.items():
                source, _, target = relation
                x = (x_dict[source], x_dict[target])
                found[target].append(convs["__".join(relation)](x, edges))
            x_dict = {name: self.act[name](sum(rows)) for name, rows in found.items()}
        return x_dict["a"], {"b": x_dict["b"]}


class Weighted(torch.nn.Module):
    """Values of edges by relation, by place and by name."""

    def __init__(self) -> None:
        super().__init__()
        self.first = pyg.HeteroConv(
            {one: pyg.GraphConv((FEATURES, FEATURES), WIDTH) for one in TYPED.edge_types}
        )
        self.second = pyg.HeteroConv({
            one: pyg.GATConv((WIDTH, WIDTH), WIDTH, edge_dim=EDGE_FEATURES, add_self_loops=False)
            for one in TYPED.edge_types
        })  # fmt: skip

    def forward(
        self, x_dict: Any, edge_index_dict: Any, edge_weight_dict: Any = None, edge_attr_dict: Any = None
    ) -> Any:
        if edge_weight_dict is None:
            x_dict = self.first(x_dict, edge_index_dict)
        else:
            x_dict = self.first(x_dict, edge_index_dict, edge_weight_dict)
        x_dict = {name: x.relu() for name, x in x_dict.items()}
        if edge_attr_dict is None:
            return self.second(x_dict, edge_index_dict)["a"]
        return self.second(x_dict, edge_index_dict, edge_attr_dict=edge_attr_dict)["a"]


class Transformers(torch.nn.Module):
    """Layers over all types that are not known to trim."""

    def __init__(self) -> None:
        super().__init__()
        self.first = pyg.HGTConv(FEATURES, WIDTH, TYPED.metadata(), heads=2)
        self.second = pyg.HGTConv(WIDTH, WIDTH, TYPED.metadata())

    def forward(self, x_dict: Any, edge_index_dict: Any) -> Any:
        x_dict = self.first(x_dict, edge_index_dict)
        return self.second({name: x.tanh() for name, x in x_dict.items()}, edge_index_dict)


class Numbered(torch.nn.Module):
    """Edges of all relations at once, with the number of the type of each."""

    def __init__(self) -> None:
        super().__init__()
        self.first = pyg.RGCNConv(FEATURES, WIDTH, 4)

    def forward(self, x_dict: Any, edge_index_dict: Any) -> Any:
        x = torch.cat([x_dict["a"], x_dict["b"]])
        edges = torch.cat([edge_index_dict[A_TO_A], edge_index_dict[A_TO_B]], dim=1)
        kinds = torch.cat([edge_index_dict[A_TO_A][0] * 0, edge_index_dict[A_TO_B][0] * 0 + 1])
        return self.first(x, edges, kinds).split([x_dict["a"].size(0), x_dict["b"].size(0)])[0]


def to_hetero() -> torch.nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = pyg.to_hetero(Gnn(), TYPED.metadata()).double()
        with torch.no_grad():
            model(TYPED.x_dict, TYPED.edge_index_dict)
    return model


FORMS: dict[str, tuple[Callable[[], torch.nn.Module], bool]] = {
    "to_hetero": (to_hetero, True),
    "by relation": (ByRelation, True),
    "weighted": (Weighted, True),
    "transformers": (Transformers, False),
    "numbered": (Numbered, False),
}


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("export", ["pyg", "native"])
def test_forms_of_typed_models(name: str, export: str) -> None:
    make, trims = FORMS[name]
    torch.manual_seed(0)
    ours, plain = pair(make())
    for batch, other in zip(typed_batches(), typed_batches(export), strict=True):
        wanted = seeds_of(batch, plain(batch.x_dict, batch.edge_index_dict), "a")
        found = ours(other)
        assert_close(found, wanted)
        assert_close(gradients(ours, found), gradients(plain, wanted))
        wanted = plain(batch.x_dict, batch.edge_index_dict)
        found = ours(batch.x_dict, batch.edge_index_dict)
        assert_close(found, wanted)
        assert_close(gradients(ours, found), gradients(plain, wanted))
    assert found_in(ours).reasons == []
    assert bool(found_in(ours).notes) == (not trims)


def test_values_of_edges_by_relation() -> None:
    torch.manual_seed(0)
    ours, plain = pair(Weighted())
    for batch in typed_batches():
        for names in (["edge_weight_dict"], ["edge_attr_dict"], ["edge_weight_dict", "edge_attr_dict"]):
            values = {name: getattr(batch, name) for name in names}
            found, wanted = ours(batch, **values), plain(batch.x_dict, batch.edge_index_dict, **values)
            assert_close(found, wanted[: batch["a"].batch_size])
            assert_close(gradients(ours, found), gradients(plain, wanted[: batch["a"].batch_size]))
    assert found_in(ours).reasons == []
