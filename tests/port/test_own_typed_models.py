"""Own models of several types compute the rows of the plain model."""

from __future__ import annotations

import itertools
from typing import Any

import hypothesis.strategies as st
import pytest
import torch
import torch_geometric.nn as pyg
from hypothesis import assume, given, note
from torch import Tensor

from pyg_batchgnn import MacrobatchNeighborLoader
from tests.support.random_models import WIDTH
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
    assert_close,
    assert_recorded,
    found_in,
    gradients,
    pair,
)
from tests.support.tiers import examples
from tests.support.typed_graphs import TypedCase, typed_cases


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
