"""Cached aggregates are PyG's over all neighbours, for all partitions and sizes of pieces."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from pyg_batchgnn import AggregationCache, CscGraph
from tests.support.partitioned_graphs import CASES, Case, whole
from tests.support.ranks import run_ranks
from tests.support.reference_aggregates import KINDS, close, with_loops
from tests.support.tiers import WORLDS

JOBS = "tests.cache.job_values"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_one_process(case: Case, kind: str, dtype: torch.dtype) -> None:
    data = with_loops(whole(case))
    data.x = data.x.to(dtype)
    cache = AggregationCache.build(data, kind)
    assert cache.rows.dtype == (torch.float32 if dtype == torch.float16 else dtype)
    assert close(cache.rows, kind, data)
    small = AggregationCache.build(data, kind, memory_budget=1)
    assert torch.equal(cache.rows, small.rows) and small.fingerprint == cache.fingerprint


def test_a_budget_of_no_bytes_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1, got 0"):
        AggregationCache.build(whole(CASES[0]), "mean", memory_budget=0)


def test_a_graph_and_its_features() -> None:
    data = whole(CASES[0])
    graph = CscGraph.from_edge_index(data.edge_index, data.num_nodes)
    one = AggregationCache.build((graph, data.x.numpy()), "mean", progress=True)
    assert torch.equal(one.rows, AggregationCache.build(data, "mean").rows)


@pytest.mark.parametrize(("ranks", "hosts"), WORLDS, ids=str)
def test_over_ranks(ranks: int, hosts: Sequence[int]) -> None:
    run_ranks(f"{JOBS}:values", ranks, hosts=hosts)


def test_each_remote_row_is_fetched_once_a_piece() -> None:
    run_ranks(f"{JOBS}:rows_fetched", 3, hosts=[0, 1, 2])


@pytest.mark.parametrize(
    ("change", "differs"),
    [
        (lambda data: data.x[5, 2].add_(1e-6), True),
        (lambda data: data.x.__setitem__(slice(2), data.x[:2].flip(0)), True),
        (lambda data: data.edge_index[0, 3].add_(1), True),
        (lambda data: data.edge_index.__setitem__((1, 3), (data.edge_index[1, 3] + 1) % 120), True),
        (lambda data: data.edge_index.copy_(data.edge_index.flip(1)), False),
        (lambda data: data.y.zero_(), False),
    ],
)
def test_a_fingerprint_is_of_edges_and_features_and_of_nothing_else(change: object, differs: bool) -> None:
    data = whole(CASES[0])
    before = AggregationCache.build(data, "mean").fingerprint
    change(data)  # type: ignore[operator]
    assert (AggregationCache.build(data, "mean").fingerprint != before) is differs


@pytest.mark.parametrize(
    ("data", "kind", "error", "text"),
    [
        (whole(CASES[0]), "max", ValueError, "the maximum over sampled neighbours"),
        (whole(CASES[0]), "attention", ValueError, "GAT weighs"),
        (whole(CASES[0]), "median", ValueError, "one of 'mean', 'sum', 'symmetric', got 'median'"),
        (Data(edge_index=torch.zeros(2, 1).long(), num_nodes=2), "mean", ValueError, "no features x"),
        (Data(x=torch.ones(2), edge_index=torch.zeros(2, 1).long()), "mean", ValueError, "columns"),
        (Data(x=torch.ones(2, 1).int(), edge_index=torch.zeros(2, 1).long()), "sum", TypeError, "float"),
        (
            Data(x=torch.ones(2, 1, requires_grad=True), edge_index=torch.zeros(2, 1).long()),
            "sum",
            ValueError,
            "features that are learned",
        ),
        (np.ones(3), "sum", TypeError, "got ndarray"),
    ],
)
def test_what_cannot_be_cached(data: object, kind: str, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        AggregationCache.build(data, kind)
