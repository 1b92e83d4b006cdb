"""Graphs with more than 2^31 and 2^32 edges and nodes, in arrays of which almost no page exists.

Anonymous memory that nobody wrote to reads as zeros and takes no room: only the few pages are real
in which a test wrote the ends of indptr, and some sources and edge ids. The graphs are given to
CscGraph's constructor, because `from_csc` would read all of the 34 GB of zeros to check them.
"""

from __future__ import annotations

import mmap

import numpy as np
import psutil
import pytest
import torch
from torch import Tensor

from pyg_batchgnn.ops import InEdges
from pyg_batchgnn.ops.checks import remember
from pyg_batchgnn.sample import MacrobatchSampler, Replacement, SamplingPlan
from pyg_batchgnn.store import CscGraph
from tests.support.sampling_cases import check_sampler

NO_RESERVE = 0x4000  # MAP_NORESERVE of Linux: take no swap for the pages that nobody touches
GIB = 2**30


def zeros(count: int, dtype: type[np.integer]) -> Tensor:
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NO_RESERVE
    return torch.from_numpy(
        np.frombuffer(mmap.mmap(-1, count * np.dtype(dtype).itemsize, flags=flags), dtype=dtype)
    )


def check(graph: CscGraph, seed_lists: list[Tensor], fanouts: tuple[int, ...]) -> None:
    """Both kinds of sampling equal the reference, and take memory for the sample alone."""
    # NumPy's views are sequences that the reference can index without reading all of them.
    edge_ids = None if graph.edge_ids is None else graph.edge_ids.numpy()
    lists = (graph.indptr.numpy(), graph.indices.numpy(), edge_ids)
    before = psutil.Process().memory_info().rss
    for replacement in Replacement:
        plan = SamplingPlan(fanouts, replacement)
        for threads in (1, 2):
            sampler = MacrobatchSampler(graph, plan, seed=3, threads=threads)
            check_sampler(sampler, lists, plan, 3, seed_lists, epoch=1)  # type: ignore[arg-type]
    assert psutil.Process().memory_info().rss - before < GIB // 4


def far_edges(first_degree: int, dtype: type[np.integer], ids: type[np.integer] | None) -> CscGraph:
    generator = np.random.default_rng(5)
    degrees = np.concatenate([[first_degree], generator.integers(0, 30, 99)])
    indptr = torch.from_numpy(np.concatenate([[0], degrees.cumsum()]))
    num_edges = int(indptr[-1])
    indices = zeros(num_edges, dtype)
    far = num_edges - first_degree
    indices[first_degree:] = torch.from_numpy(generator.integers(1, 100, far)).to(indices.dtype)
    edge_ids = None
    if ids is not None:
        edge_ids = zeros(num_edges, ids)
        edge_ids[first_degree:] = torch.arange(num_edges - far, num_edges).clamp(max=np.iinfo(ids).max)
    return known_graph(indptr, indices, edge_ids)


def known_graph(indptr: Tensor, indices: Tensor, edge_ids: Tensor | None = None) -> CscGraph:
    remember(indptr, indices.numel() + 1, ascends=True)
    remember(indices, indptr.numel() - 1)
    if edge_ids is not None:
        remember(edge_ids, indices.numel())
    return CscGraph(InEdges(indptr, indices, edge_ids))


@pytest.mark.parametrize("first_degree", [2**31 - 3, 2**31, 2**32 - 3, 2**32 + 5])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_positions(first_degree: int, dtype: type[np.integer]) -> None:
    """Adjacency lists at positions on both sides of 2^31 and 2^32, and a degree beyond them."""
    graph = far_edges(first_degree, dtype, ids=None)
    check(graph, [torch.tensor([1, 2, 3, 0]), torch.arange(99, 60, -1), torch.tensor([0])], (10, 3))


@pytest.mark.parametrize("ids", [np.int32, np.int64])
def test_edge_ids_at_far_positions(ids: type[np.integer]) -> None:
    check(far_edges(2**32 - 3, np.int32, ids), [torch.arange(1, 100), torch.tensor([0])], (50, 3))


def test_check_of_far_entries() -> None:
    """`from_csc` sees a wrong source beyond position 2^31, after reading all zeros before."""
    graph = far_edges(2**31 + 5, np.int32, ids=None)
    graph.indices[2**31 + 8] = 100
    with pytest.raises(IndexError, match="100"):
        CscGraph.from_csc(graph.indptr, graph.indices)


def many_nodes(num_nodes: int, dtype: type[np.integer], sources: list[int]) -> tuple[Tensor, Tensor]:
    """The indptr and indices of a graph whose last eight nodes have `sources` as in-neighbours."""
    count = len(sources)
    indptr = zeros(num_nodes + 1, np.int64)
    indptr[-9:] = torch.arange(9) * count
    indices = torch.tensor(sources * 8, dtype=torch.int32 if dtype is np.int32 else torch.int64)
    return indptr, indices


@pytest.mark.parametrize("num_nodes", [2**31 + 50, 2**32 + 50])
def test_node_ids(num_nodes: int) -> None:
    """Sources whose ids need 32 and 33 bits, among them ids that agree in their low 32 bits."""
    low = [3, 2**31 + 3, 2**31 - 1, 2**31, num_nodes - 1, num_nodes - 8]
    high = [2**32 + 3, 2**32, 0] if num_nodes > 2**32 else []
    graph, first = known_graph(*many_nodes(num_nodes, np.int64, low + high)), num_nodes - 8
    seed_lists = [
        torch.arange(first, num_nodes),
        torch.tensor([3, first, first, 2**31 + 3, num_nodes - 1, 3]),
    ]
    check(graph, seed_lists, (4, 2))
    check(graph, seed_lists, (-1, -1))


def test_narrow_sources_among_many_nodes_are_refused() -> None:
    """int32 sources may fit where seeds do not: 2^32 + 42 must not be taken for 42."""
    indptr, indices = many_nodes(2**31 + 50, np.int32, [42, 7])
    with pytest.raises(TypeError, match=r"\.to\(torch\.int64\)"):
        CscGraph.from_csc(indptr, indices)
