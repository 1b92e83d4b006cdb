"""Minibatches before and after fetching: keys, attributes by group, and whose bytes are counted."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from pyg_batchgnn.data import EDGES, NODES
from pyg_batchgnn.sample import (
    AttributeRows,
    Layout,
    MacrobatchSampler,
    MacrobatchSeeds,
    Minibatch,
    Placement,
    SampledMinibatch,
    SamplingPlan,
    minibatch_key,
)
from pyg_batchgnn.store import CscGraph
from tests.support.minibatch_checks import assert_same

NODE_COUNT = 50


def sampler(layout: Layout = Layout.CSC) -> MacrobatchSampler:
    generator = torch.Generator().manual_seed(0)
    edges = torch.randint(NODE_COUNT, (2, 400), generator=generator)
    graph = CscGraph.from_edge_index(edges, NODE_COUNT)
    return MacrobatchSampler(graph, SamplingPlan((3, 2)), seed=1, layout=layout)


def sampled(layout: Layout = Layout.CSC) -> SampledMinibatch:
    return sampler(layout).sample([torch.tensor([4, 2, 4])], 0)[0]


def test_the_key_is_that_of_the_seeds_and_stays_when_node_ids_change() -> None:
    batch = sampled()
    assert batch.key == minibatch_key(torch.tensor([4, 2, 4]))
    renamed = Minibatch.of(batch, {}, original=batch.node + 7)
    assert renamed.key == batch.key and torch.equal(renamed.node, batch.node + 7)


def test_seeds_of_a_macrobatch_are_sampled_as_lists_are() -> None:
    lists = [torch.tensor([1, 2]), torch.tensor([3]), torch.empty(0, dtype=torch.int64)]
    made = sampler().sample_macrobatch(MacrobatchSeeds(5, 0, lists))
    for one, other in zip(made, sampler().sample(lists, 5), strict=True):
        assert_same(one, other)


def test_destinations_are_those_of_either_layout() -> None:
    csc, coo = sampled(), sampled(Layout.COO)
    assert torch.equal(csc.destination, coo.destination)
    assert torch.equal(csc.edge_index, coo.edge_index)


def test_bytes_that_are_shared_are_not_counted() -> None:
    batch, table = sampled(), torch.randn(NODE_COUNT, 8)
    in_place = Minibatch.in_place(batch, {"x": table})
    assert in_place.placement is Placement.IN_PLACE and in_place.nbytes == batch.nbytes
    row = torch.arange(batch.num_nodes)
    block = AttributeRows({"x": table[batch.node]}, row, Placement.BLOCK)
    copied = Minibatch.of(batch, {NODES: block})
    assert copied.nbytes == batch.nbytes + row.nbytes
    assert torch.equal(copied.attribute("x"), in_place.attribute("x"))
    own = AttributeRows({"w": torch.randn(batch.num_edges)}, None, Placement.MINIBATCH)
    with_edges = Minibatch.of(batch, {NODES: block, EDGES: own})
    assert with_edges.nbytes == copied.nbytes + 4 * batch.num_edges
    assert with_edges.edge_block.keys() == {"w"}


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        (torch.randn(3, 2), "has 3 rows"),
        (torch.randn(()), "one number"),
        (torch.randn(NODE_COUNT, 2).to_sparse(), "dense"),
    ],
)
def test_a_table_that_does_not_fit_is_refused(table: Tensor, problem: str) -> None:
    batch = sampled()
    in_place = Minibatch.in_place(batch, {"x": torch.randn(NODE_COUNT, 8), "bad": table})
    with pytest.raises(ValueError, match=problem):
        in_place.attribute("bad")
    assert in_place.x.shape == (batch.num_nodes, 8)


def test_tables_of_one_block_have_as_many_rows() -> None:
    batch = sampled()
    tables = {"x": torch.randn(batch.num_nodes, 8), "bad": torch.randn(NODE_COUNT, 2)}
    row = torch.arange(batch.num_nodes)
    with pytest.raises(ValueError, match="different numbers of rows"):
        Minibatch.of(batch, {NODES: AttributeRows(tables, row, Placement.BLOCK)}).attribute("bad")
    with pytest.raises(ValueError, match=f"nodes of a minibatch|{batch.num_nodes}"):
        Minibatch.of(batch, {NODES: AttributeRows(tables, row[:-1], Placement.BLOCK)}).attribute("x")
    edges = AttributeRows({"w": torch.randn(2)}, None, Placement.MINIBATCH)
    with pytest.raises(ValueError, match=f"2 rows.*{batch.num_edges} edges"):
        _ = Minibatch.of(batch, {EDGES: edges}).edge_block


def test_without_attributes_there_is_nothing_to_read() -> None:
    batch = Minibatch.of(sampled(), {})
    assert batch.row is None and batch.placement is None
    assert not batch.block and not batch.edge_block


@pytest.mark.parametrize("make", [torch.Tensor.clone, lambda table: table.T.contiguous().T])
@pytest.mark.parametrize("shape", [(9,), (9, 3), (9, 2, 2)])
def test_rows_are_those_of_torch(
    monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...], make: Callable[[Tensor], Tensor]
) -> None:
    """Those of several numbers are copied by the kernel, which reuses memory."""
    table, row = torch.arange(math.prod(shape)).view(shape), torch.tensor([8, 0, 0, 3])
    rows = AttributeRows.in_place({"y": make(table) if len(shape) == 2 else table}, row)
    for count in (None, 0, 2):
        assert torch.equal(rows.gather("y", count), table[row][:count])
    learned = torch.rand(9, 2, requires_grad=True)
    AttributeRows.in_place({"y": learned}, row).gather("y").sum().backward()
    assert learned.grad is not None and learned.grad[:, 0].tolist() == [2, 0, 0, 1, 0, 0, 0, 0, 1]
    if rows.tables["y"].is_contiguous():
        torch.set_num_threads(4)  # from which on the kernel copies rows of one number, too
        monkeypatch.setattr(torch.Tensor, "index_select", None)
        assert torch.equal(rows.gather("y"), table[row])
