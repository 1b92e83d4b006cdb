"""Comparisons of minibatches with the reference's, and with each other."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from pyg_batchgnn.sample import Layout, MacrobatchSampler, SampledMinibatch, SamplingPlan
from tests.support.graph_strategies import Csc
from tests.support.reference_sampler import ReferenceMinibatch, reference_sample

Lists = tuple[Sequence[int], Sequence[int], Sequence[int] | None]


def expected_minibatches(
    lists: Lists, plan: SamplingPlan, seed: int, seed_lists: Sequence[Tensor], epoch: int
) -> list[ReferenceMinibatch]:
    """The reference's minibatches of a graph given as (indptr, indices, edge_ids)."""
    return [
        reference_sample(*lists, seeds.tolist(), plan.fanouts, plan.replacement, seed, epoch)
        for seeds in seed_lists
    ]


def assert_equals_reference(
    batch: SampledMinibatch, expected: ReferenceMinibatch, plan: SamplingPlan
) -> None:
    """Every field has the reference's numbers and the documented dtype and shape."""
    assert list(batch.nodes_per_hop) == expected.nodes_per_hop
    assert list(batch.edges_per_hop) == expected.edges_per_hop
    assert batch.batch_size == expected.nodes_per_hop[0]
    assert (batch.node.dtype, batch.indptr.dtype) == (torch.int64, torch.int64)
    assert batch.indices.dtype in (torch.int32, torch.int64)
    assert batch.node.tolist() == expected.node
    assert batch.indptr.tolist() == expected.indptr
    assert batch.indices.tolist() == expected.indices
    assert_edge_index(batch)
    if plan.edge_ids:
        assert batch.edge is not None and batch.edge.dtype == torch.int64
        assert batch.edge.tolist() == expected.edge
    else:
        assert batch.edge is None


def assert_edge_index(batch: SampledMinibatch) -> None:
    """edge_index [2, E] int64 holds (source, destination) of every edge in the order of the CSC."""
    rows = torch.arange(batch.indptr.numel() - 1).repeat_interleave(batch.indptr.diff())
    assert batch.edge_index.dtype == torch.int64
    assert torch.equal(batch.edge_index, torch.stack([batch.indices.long(), rows]))


def assert_same(first: SampledMinibatch, second: SampledMinibatch) -> None:
    """Two minibatches of the package are the same, bit for bit."""
    assert list(first.nodes_per_hop) == list(second.nodes_per_hop)
    assert list(first.edges_per_hop) == list(second.edges_per_hop)
    assert first.batch_size == second.batch_size and first.key == second.key
    for a, b in zip(fields(first), fields(second), strict=True):
        assert a.dtype == b.dtype and torch.equal(a, b)


def fields(batch: SampledMinibatch) -> list[Tensor]:
    """The tensors of a minibatch."""
    return [t for t in (batch.node, batch.indptr, batch.indices, batch.edge) if t is not None]


def check_sampler(
    sampler: MacrobatchSampler,
    lists: Lists,
    plan: SamplingPlan,
    seed: int,
    seed_lists: Sequence[Tensor],
    epoch: int,
) -> None:
    """One call of a sampler gives what the reference gives for each of the seed lists."""
    batches = sampler.sample(seed_lists, epoch)
    assert len(batches) == len(seed_lists)
    for batch, expected in zip(
        batches, expected_minibatches(lists, plan, seed, seed_lists, epoch), strict=True
    ):
        assert_equals_reference(batch, expected, plan)


def check_graph(
    csc: Csc,
    plan: SamplingPlan,
    seed: int,
    seed_lists: Sequence[Tensor],
    epoch: int,
    threads: int | None = None,
) -> None:
    """Checks new samplers on a graph in CSC form against the reference, in each layout."""
    graph = csc.graph()
    for layout in Layout:
        sampler = MacrobatchSampler(graph, plan, seed=seed, threads=threads, layout=layout)
        check_sampler(sampler, csc.lists(), plan, seed, seed_lists, epoch)
