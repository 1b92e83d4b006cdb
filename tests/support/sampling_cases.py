"""Graphs (from none to stars), plans and seeds for samplers, and comparisons of minibatches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import hypothesis.strategies as st
import numpy as np
import torch
from torch import Tensor

from pyg_batchgnn.sample import Layout, MacrobatchSampler, Replacement, SampledMinibatch, SamplingPlan
from pyg_batchgnn.store import CscGraph
from tests.support.reference_sampler import ReferenceMinibatch, reference_csc, reference_sample
from tests.support.tiers import fixed as fixed

INDEX_DTYPES = (torch.int32, torch.int64)


@dataclass(frozen=True)
class Csc:
    """A graph in CSC form: the tensors for the package, the lists for the reference."""

    indptr: Tensor  # [N + 1] int64
    indices: Tensor  # [E] int32 or int64
    edge_ids: Tensor | None  # [E] int32 or int64, ascending in every adjacency list

    @property
    def num_nodes(self) -> int:
        return self.indptr.numel() - 1

    def graph(self) -> CscGraph:
        return CscGraph.from_csc(self.indptr, self.indices, self.edge_ids)

    def lists(self) -> tuple[list[int], list[int], list[int] | None]:
        return (
            self.indptr.tolist(),
            self.indices.tolist(),
            None if self.edge_ids is None else self.edge_ids.tolist(),
        )


@dataclass(frozen=True)
class Coo:
    """A list of edges as a user has it: [2, E] int32 or int64, in any order."""

    edge_index: Tensor
    num_nodes: int

    def lists(self) -> tuple[list[int], list[int], list[int]]:
        sources, destinations = self.edge_index.tolist()
        return reference_csc(sources, destinations, self.num_nodes)


@st.composite
def small_coo(draw: st.DrawFn) -> Coo:
    """Draws a graph of up to 12 nodes with self loops, parallel edges and isolated nodes."""
    num_nodes = draw(st.integers(0, 12))
    node = st.integers(0, max(num_nodes - 1, 0))
    edges = draw(st.lists(st.tuples(node, node), max_size=40 if num_nodes else 0))
    dtype = draw(st.sampled_from(INDEX_DTYPES))
    return Coo(torch.tensor(edges, dtype=dtype).reshape(-1, 2).t().contiguous(), num_nodes)


@st.composite
def random_coo(draw: st.DrawFn) -> Coo:
    """Draws a graph of up to 300 nodes and 3,000 edges with hubs among the destinations."""
    num_nodes, num_edges = draw(st.integers(1, 300)), draw(st.integers(0, 3000))
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    sources = generator.integers(0, num_nodes, num_edges)
    destinations = (generator.random(num_edges) ** 2 * num_nodes).astype(np.int64)
    dtype = draw(st.sampled_from(INDEX_DTYPES))
    return Coo(torch.from_numpy(np.stack([sources, destinations])).to(dtype), num_nodes)


@st.composite
def csc_graphs(draw: st.DrawFn) -> Csc:
    """Draws graphs in CSC form: without edge ids, with a permutation, or with repeated ids."""
    coo = draw(st.one_of(small_coo(), random_coo()))
    indptr, indices, edge_ids = coo.lists()
    shared_by = draw(st.sampled_from([None, 1, 2]))
    ids = None
    if shared_by is not None:
        dtype = draw(st.sampled_from(INDEX_DTYPES))
        ids = torch.tensor([edge // shared_by for edge in edge_ids], dtype=dtype)
    return Csc(torch.tensor(indptr), torch.tensor(indices, dtype=coo.edge_index.dtype), ids)


def star(degree: int, dtype: torch.dtype = torch.int64) -> Csc:
    """Returns a star: in-edges of node 0 from nodes 1..degree, and one of node 1 from node 0."""
    indptr = torch.full((degree + 2,), degree + 1)
    indptr[0], indptr[1] = 0, degree
    indices = torch.cat([torch.arange(1, degree + 1), torch.zeros(1, dtype=torch.int64)]).to(dtype)
    return Csc(indptr, indices, None)


@st.composite
def stars(draw: st.DrawFn) -> Csc:
    degree = draw(st.one_of(st.integers(1, 1100), st.sampled_from([4096, 65_535, 65_536, 65_537, 100_000])))
    return star(degree, draw(st.sampled_from(INDEX_DTYPES)))


def fanouts(max_hops: int = 5) -> st.SearchStrategy[tuple[int, ...]]:
    fanout = st.one_of(st.sampled_from([0, 1, -1, 2]), st.integers(1, 20), st.sampled_from([63, 64, 65, 200]))
    return st.lists(fanout, min_size=1, max_size=max_hops).map(tuple)


def big_fanouts() -> st.SearchStrategy[tuple[int, ...]]:
    first = st.one_of(st.sampled_from([1, 10, 200, 1000, -1]), st.integers(1, 1100))
    return st.one_of(first.map(lambda k: (k,)), first.map(lambda k: (k, 2)))


def plans(shapes: st.SearchStrategy[tuple[int, ...]]) -> st.SearchStrategy[SamplingPlan]:
    return st.builds(SamplingPlan, shapes, st.sampled_from(list(Replacement)))


def seed_lists(num_nodes: int, max_lists: int = 5, max_seeds: int = 8) -> st.SearchStrategy[list[Tensor]]:
    """Lists of seed tensors [S] int64; duplicates and empty sets included."""
    seeds = st.lists(st.integers(0, max(num_nodes - 1, 0)), max_size=max_seeds if num_nodes else 0)
    return st.lists(seeds.map(lambda s: torch.tensor(s, dtype=torch.int64)), max_size=max_lists)


random_seeds = st.one_of(st.integers(0, 9), st.integers(-(2**63), 2**64 - 1))
epochs = st.one_of(st.integers(0, 9), st.integers(0, 2**40))
thread_counts = st.sampled_from([None, 1, 2, 3, 4, 8, 16])


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
    assert list(first.nodes_per_hop) == list(second.nodes_per_hop)
    assert list(first.edges_per_hop) == list(second.edges_per_hop)
    assert first.batch_size == second.batch_size and first.key == second.key
    for a, b in zip(fields(first), fields(second), strict=True):
        assert a.dtype == b.dtype and torch.equal(a, b)


def fields(batch: SampledMinibatch) -> list[Tensor]:
    return [t for t in (batch.node, batch.indptr, batch.indices, batch.edge) if t is not None]


def check_sampler(
    sampler: MacrobatchSampler,
    lists: Lists,
    plan: SamplingPlan,
    seed: int,
    seed_lists: Sequence[Tensor],
    epoch: int,
) -> None:
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
