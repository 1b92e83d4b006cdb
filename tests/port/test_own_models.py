"""Own models of any shape, typed and random ones, compute the rows of the plain model."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import hypothesis.strategies as st
import pytest
import torch
import torch.nn.functional as F
import torch_geometric.nn as pyg
from hypothesis import assume, given, note
from torch import Tensor
from torch_geometric.data import Batch

from pyg_batchgnn import MacrobatchLinkNeighborLoader, MacrobatchNeighborLoader
from tests.support.ported_models import GRAPH
from tests.support.random_models import FEATURES, WIDTH, Plan, RandomModel, plans
from tests.support.random_typed_models import (
    FORMS,
    TypedModel,
    TypedPlan,
    Weighted,
    data_of,
    seeds_of,
    typed_batches,
    typed_plans,
)
from tests.support.recorded_models import (
    assert_as_plain,
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
from tests.support.tiers import each, examples, some
from tests.support.typed_graphs import TypedCase, typed_cases

#: Products of options are in `make test-all`.
pytestmark = each

FANOUTS = ((4, 3), (3,), (3, 2, 2), (2, 2, 2, 2))


@examples(6)
@given(plans(), st.sampled_from(FANOUTS), st.booleans(), st.booleans(), st.integers(0, 2**31))
def test_random_models(
    plan: Plan, fanouts: tuple[int, ...], disjoint: bool, training: bool, seed: int
) -> None:
    """All outputs, and gradients of them, for seeds and for all nodes, of which there are copies if
    samples are disjoint."""
    torch.manual_seed(seed)
    ours, plain = pair(RandomModel(plan))
    for model in (ours, plain):
        model.train(training and not plan.has_statistics)
    given_now, native = (
        batches(fanouts, export=export, disjoint=disjoint)[::2] for export in ("pyg", "native")
    )
    for batch, other in zip(given_now, native, strict=True):
        values = {name: batch[name] for name in ("edge_weight", "edge_attr") if plan.values}
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
    ours, _ = pair(Normed(kinds))
    reference = Normed(kinds, trims=True).double()
    reference.load_state_dict(ours.state_dict())
    for _ in range(2):
        for batch in batches((4, 3)[: len(kinds)]):
            counts = batch.num_sampled_nodes, batch.num_sampled_edges
            assert_as_plain(ours, reference, ours(batch), reference(batch.x, batch.edge_index, *counts))
        assert_close(dict(ours.named_buffers()), dict(reference.named_buffers()))
    assert_trimmed(ours, [1, 0][-len(kinds) :])
    for model in (ours, reference):
        model.eval()
    reference.trims = False
    compare(ours, reference)


def test_batch_norms_of_plain_calls_take_those_of_all_rows() -> None:
    ours, plain = pair(Normed([torch.nn.BatchNorm1d, pyg.BatchNorm]))
    compare_plain_calls(ours, plain)
    assert_close(dict(ours.named_buffers()), dict(plain.named_buffers()))
    assert_recorded(ours)


class Linked(torch.nn.Module):
    """A model of links; ``scores`` is called with it, with rows of nodes and with the links."""

    def __init__(self, scores: Callable[..., Any], conv: Callable[..., Any] = pyg.SAGEConv) -> None:
        super().__init__()
        self.first, self.second, self.scores = conv(FEATURES, WIDTH), conv(WIDTH, WIDTH), scores
        self.decoder = torch.nn.Linear(2 * WIDTH, 1)

    def encode(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.second(self.first(x, edge_index).relu(), edge_index)

    def forward(self, x: Tensor, edge_index: Tensor, edge_label_index: Tensor) -> Any:
        return self.scores(self, self.encode(x, edge_index), edge_label_index)


class Triplets(Linked):
    def forward(  # type: ignore[override]
        self, x: Tensor, edge_index: Tensor, src_index: Tensor, dst_pos_index: Tensor, dst_neg_index: Tensor
    ) -> Any:
        z = self.encode(x, edge_index)
        source = z[src_index]
        return (source * z[dst_pos_index]).sum(-1), (source * z[dst_neg_index]).sum(-1)


SCORES: dict[str, Callable[..., Any]] = {
    "pairs": lambda model, z, ends: model.decoder(torch.cat([z[ends[0]], z[ends[1]]], dim=-1)).view(-1),
    "products": lambda _, z, ends: ((z[ends[0]] * z[ends[1]]).sum(dim=-1), z[ends].mean()),
    "selected": lambda model, z, ends: model.decoder(
        z.index_select(0, ends.flatten()).view(2, -1, WIDTH).transpose(0, 1).flatten(1)
    ),
    "triplets": lambda *_: None,
}


class Outside(Linked):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:  # type: ignore[override]
        return self.encode(x, edge_index)


def link_batches(export: str = "pyg", **options: Any) -> list[Any]:
    options |= {"batch_size": 16, "seed": 3, "export": export}
    return list(MacrobatchLinkNeighborLoader(GRAPH, [4, 3], GRAPH.edge_index[:, 5:45], **options))


@pytest.mark.parametrize("name", SCORES)
@pytest.mark.parametrize("conv", [pyg.SAGEConv, pyg.GCNConv])
def test_models_of_links(name: str, conv: Any) -> None:
    triplets = name == "triplets"
    ours, plain = pair((Triplets if triplets else Linked)(SCORES[name], conv))
    names = ("src_index", "dst_pos_index", "dst_neg_index") if triplets else ("edge_label_index",)
    for whole in (False, True):
        for batch in link_batches(neg_sampling="triplet" if triplets else "binary"):
            given_now = batch.x, batch.edge_index, *(batch[one] for one in names)
            found = ours(*given_now) if whole else ours(batch)
            assert_as_plain(ours, plain, found, plain(*given_now))
        if not whole:
            assert_trimmed(ours, [1, 0])
    assert found_in(ours).reasons == []


@pytest.mark.parametrize("export", ["pyg", "native"])
def test_links_outside_of_a_model(export: str) -> None:
    ours, plain = pair(Outside(SCORES["pairs"]))
    for batch, given_now in zip(link_batches(), link_batches(export), strict=True):
        found, wanted = ours(given_now), plain(batch.x, batch.edge_index)
        assert found.size(0) == batch.num_sampled_nodes[0]
        assert_close(found[batch.edge_label_index], wanted[batch.edge_label_index])
    assert_trimmed(ours, [1, 0])


def test_links_of_a_batch_of_graphs() -> None:
    """What such a batch calls its size is the number of its graphs."""
    ours, plain = pair(Outside(SCORES["pairs"]))
    several = Batch.from_data_list([GRAPH, GRAPH])
    loader = MacrobatchLinkNeighborLoader(
        several, [4, 3], edge_label_index=several.edge_index[:, 5:25], batch_size=16, seed=3
    )
    for batch in loader:
        assert isinstance(batch, Batch) and batch.batch_size == 2
        rows = batch.edge_label_index
        assert_close(ours(batch)[rows], plain(batch.x, batch.edge_index)[rows])
    assert_trimmed(ours, [1, 0])


@examples(3)
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
        "disjoint": data.draw(st.booleans()),
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
        given_whole = batch.x_dict, batch.edge_index_dict
        assert_as_plain(ours, plain, ours(*given_whole), plain(*given_whole))
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
    assert found_in(ours).reasons == []


@pytest.mark.parametrize("name", some(FORMS))
@pytest.mark.parametrize("export", ["pyg", "native"])
def test_forms_of_typed_models(name: str, export: str) -> None:
    make, trims = FORMS[name]
    torch.manual_seed(0)
    ours, plain = pair(make())
    for batch, other in zip(typed_batches(), typed_batches(export), strict=True):
        wanted = seeds_of(batch, plain(batch.x_dict, batch.edge_index_dict), "a")
        found = ours(other)
        if any("tracer stopped" in one for one in found_in(ours).reasons):  # HGTConv, before torch 2.12
            found = seeds_of(batch, found, "a")
        assert_as_plain(ours, plain, found, wanted)
        given_now = batch.x_dict, batch.edge_index_dict
        assert_as_plain(ours, plain, ours(*given_now), plain(*given_now))
    found = found_in(ours)
    assert bool(found.notes or found.reasons) == (not trims)


def test_values_of_edges_by_relation() -> None:
    ours, plain = pair(Weighted())
    for batch in typed_batches():
        for names in (["edge_weight_dict"], ["edge_attr_dict"], ["edge_weight_dict", "edge_attr_dict"]):
            values = {name: getattr(batch, name) for name in names}
            found, wanted = ours(batch, **values), plain(batch.x_dict, batch.edge_index_dict, **values)
            assert_close(found, wanted[: batch["a"].batch_size])
            assert_close(gradients(ours, found), gradients(plain, wanted[: batch["a"].batch_size]))
    assert found_in(ours).reasons == [] and found_in(ours).notes == []
