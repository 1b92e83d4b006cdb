"""Accelerated layers find the edges of batches by identity and version, and hold nothing alive."""

from __future__ import annotations

import copy
import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch_geometric.nn as pyg

from pyg_batchgnn import nn, ops
from pyg_batchgnn.port import structure
from pyg_batchgnn.sample import handed_out
from tests.support.ported_models import MODELS, accelerated, batch_of, loader_of, trimming
from tests.support.tiers import each

#: Products of options are in `make test-all`.
pytestmark = each


@pytest.fixture
def sorts(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The edges that were sorted, as long as the test runs."""
    found: list[Any] = []
    build = nn.whole_graph.__globals__["ops"].build_csc

    def counted(edge_index: torch.Tensor, *arguments: Any, **options: Any) -> Any:
        found.append(edge_index)
        return build(edge_index, *arguments, **options)

    monkeypatch.setattr(nn.whole_graph.__globals__["ops"], "build_csc", counted)
    return found


def test_a_batch_of_a_loader_is_not_sorted(sorts: list[Any]) -> None:
    model, batch = accelerated(MODELS["sage"](2)), batch_of(2)
    before = set(batch.keys())
    for _ in range(2):
        sorts.clear()  # the loader sorted the graph, and a capture sorts small ones
        model(batch.x, batch.edge_index).sum().backward()
        model(batch.x, batch.edge_index, **trimming(batch))
        model(batch)
        model.convs[0](batch.x, batch.edge_index)
    assert sorts == []
    assert set(batch.keys()) == before


def test_copies_and_modified_edges_are_sorted(sorts: list[Any]) -> None:
    reference, batch = MODELS["gcn"](2), batch_of(2)
    ours = accelerated(reference)
    ours(batch.x, batch.edge_index.clone())
    sorts.clear()
    for edges in (batch.edge_index.clone(), copy.deepcopy(batch).edge_index, batch.edge_index.flip(1)):
        assert torch.allclose(ours(batch.x, edges), reference(batch.x, edges), atol=1e-12)
    assert len(sorts) == 3
    with torch.no_grad():
        ours(batch.x, batch.edge_index)
        batch.edge_index[0, 0] = 0
        assert handed_out(batch.edge_index) is None
        found = ours(batch.x, batch.edge_index)
        assert torch.allclose(found, reference(batch.x, batch.edge_index), atol=1e-12)


def test_batches_of_worker_processes_are_sorted() -> None:
    reference = MODELS["gcn"](2)
    ours = accelerated(reference)
    (batch,) = loader_of([4, 3], torch.float64, num_workers=1)
    assert handed_out(batch.edge_index) is None
    for options in ({}, trimming(batch)):
        wanted = reference(batch.x, batch.edge_index, **options)
        assert torch.allclose(ours(batch.x, batch.edge_index, **options), wanted, atol=1e-12)


def test_other_views_of_the_edges_are_sorted() -> None:
    batch, conv = batch_of(2), pyg.SAGEConv(6, 4).double()
    ours = accelerated(conv)
    whole = batch.edge_index
    for edges in (whole[:, 2:], whole[:, ::2], whole[:, :5], whole):
        for x in (batch.x, torch.cat([batch.x, batch.x])):
            assert torch.allclose(ours(x, edges), conv(x, edges), atol=1e-12)


def test_nothing_is_held_when_the_batch_is_gone() -> None:
    model, batch = accelerated(MODELS["gat"](2)), batch_of(2)
    edges, node = weakref.ref(batch.edge_index), weakref.ref(batch.n_id)
    model(batch.x, batch.edge_index).sum().backward()
    with torch.no_grad():
        model(batch)
        model.convs[0](batch.x, batch.edge_index)
    before = len(structure._prefixes)
    del batch
    gc.collect()
    assert edges() is None and node() is None
    assert len(structure._prefixes) < before


def test_edges_in_inference_mode() -> None:
    with torch.inference_mode():
        batch = batch_of(2)
        reference = MODELS["sage"](2).eval()
        ours = accelerated(reference)
        wanted = reference(batch.x, batch.edge_index)
        assert torch.allclose(ours(batch.x, batch.edge_index), wanted, atol=1e-12)


def _swap(edges: torch.Tensor) -> None:
    """Swaps two sources, which changes no sum over all edges."""
    edges[0, [3, 9]] = edges[0, [9, 3]]


#: Writes that leave the version counter of the tensor as it is.
WRITES: dict[str, Callable[[torch.Tensor], Any]] = {
    "data": lambda edges: _swap(edges.data),
    "data of the targets": lambda edges: edges.data[1].__setitem__(slice(0, 5), 2),
    "numpy": lambda edges: edges.numpy().__setitem__((0, 4), (int(edges[0, 4]) + 1) % 9),
    "storage": lambda edges: edges.untyped_storage().copy_(edges.flip(1).contiguous().untyped_storage()),
    "dlpack": lambda edges: _swap(torch.from_dlpack(edges.__dlpack__())),
    "detached": lambda edges: _swap(
        torch.empty(0, dtype=torch.int64).set_(edges.untyped_storage()).view(2, -1)
    ),
}


@pytest.mark.parametrize("first", [False, True], ids=["before a call", "after one"])
@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("name", ["gcn", "sage"])
def test_writes_around_torch_are_seen(name: str, write: str, first: bool) -> None:
    reference = MODELS[name](2).eval()
    ours, batch = accelerated(reference), batch_of(2)
    conv, whole = accelerated(reference.convs[0]), batch.edge_index.clone()
    for edges in (batch.edge_index, whole):
        if first:
            ours(batch.x, edges), conv(batch.x, edges), ours(batch)
        version = edges._version
        WRITES[write](edges)
        assert edges._version == version
        wanted = reference(batch.x, edges)
        assert torch.allclose(ours(batch.x, edges), wanted, atol=1e-12)
        assert torch.allclose(conv(batch.x, edges), reference.convs[0](batch.x, edges), atol=1e-12)
    wanted = reference(batch.x, batch.edge_index)
    assert torch.allclose(ours(batch), wanted[:8], atol=1e-12)


def test_any_change_of_few_entries_changes_the_sums() -> None:
    draw = torch.Generator().manual_seed(0)
    for entries in (0, 1, 5, 1023, 1024, 3000):
        for dtype in (torch.int64, torch.int32):
            values = torch.randint(1000, (2, entries), generator=draw).to(dtype)
            wanted = ops.content_sums(values)
            assert torch.equal(wanted, ops.content_sums(values.clone()))
            for _ in range(20 if entries > 1 else 0):
                other = values.clone()
                one, two = torch.randperm(2 * entries, generator=draw)[:2].tolist()
                flat = other.view(-1)
                flat[one], flat[two] = flat[two].item(), flat[one].item()
                same = torch.equal(other, values)
                assert torch.equal(wanted, ops.content_sums(other)) == same
