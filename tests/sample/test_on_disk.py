"""Sampling from files of edges gives what memory gives, and reads what the picks lie in."""

from __future__ import annotations

import dataclasses
import os
import tempfile
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given
from torch import Tensor

from pyg_batchgnn.disk import DiskReader
from pyg_batchgnn.ops import InEdges
from pyg_batchgnn.sample import DiskSampler, Layout, MacrobatchSampler, SamplingPlan, Subgraph, on_disk
from pyg_batchgnn.store import CscGraph, TypedGraph
from tests.support.mapped_data import empty_page_cache, mapped, resident
from tests.support.sampling_cases import fixed, random_seeds
from tests.support.tiers import each
from tests.support.typed_graphs import TypedCase, assert_same_typed, typed_cases, typed_plans, typed_seeds

EPOCH, NOTHING = 3, 1


def in_files(graph: TypedGraph, folder: Path) -> TypedGraph:
    """Returns a graph whose arrays are mapped, and are known to be right. Empty files cannot be."""

    def put(name: str, array: Tensor | None) -> Tensor | None:
        return array if array is None or not array.numel() else mapped(array, folder / f"{name}.npy")

    relations = []
    for number, one in enumerate(graph.relations):
        indptr, indices = put(f"{number}-indptr", one.indptr), put(f"{number}-indices", one.indices)
        assert indptr is not None and indices is not None
        relations.append(InEdges(indptr, indices, put(f"{number}-ids", one.edge_ids)))
        relations[-1].note_checked(graph.num_nodes[graph.schema.source_types[number]])
    return dataclasses.replace(graph, relations=tuple(relations))


def on_files(made: MacrobatchSampler, folder: Path, most: int = 1 << 16) -> DiskSampler:
    """Returns the sampler of the same graph in files, which reads ``most`` picks at a time."""
    graph = in_files(made.typed, folder)
    same = MacrobatchSampler(
        graph, made.plan, made.seed, made.threads, made.layout, times=made.times, weights=made.weights
    )
    found = DiskSampler(same, NOTHING)
    found._most_picks = most
    return found


@each
@pytest.mark.parametrize("timed", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("excluding", [False, True])
def test_minibatches_are_those_in_memory(timed: bool, weighted: bool, excluding: bool) -> None:
    """Graphs, plans, layouts, seeds and the picks of a read differ from case to case."""

    @fixed(10)
    @given(st.data(), typed_cases(timed, weighted), random_seeds)
    def run(data: st.DataObject, case: TypedCase, seed: int) -> None:
        plan = data.draw(typed_plans(case.schema, True, not case.timed))
        plan = dataclasses.replace(plan, subgraph=Subgraph.DIRECTIONAL)
        layout, most = data.draw(st.sampled_from(Layout)), data.draw(st.sampled_from([1, 3, 1000]))
        seeds = [one.seeds for one in data.draw(st.lists(typed_seeds(case, excluding), max_size=3))]
        alone = case.sampler(plan, seed, layout)
        with tempfile.TemporaryDirectory() as folder:
            found = on_files(alone, Path(folder), most)
            pairs = zip(found.sample(seeds, EPOCH), alone.sample(seeds, EPOCH), strict=True)
            for batch, right in pairs:
                assert_same_typed(batch, right)

    run()


def a_graph(ids: bool = False) -> CscGraph:
    random = np.random.default_rng(0)
    ends = [random.integers(0, 20_000, 300_000), (random.random(300_000) ** 3 * 20_000).astype(np.int64)]
    graph = CscGraph.from_edge_index(torch.from_numpy(np.stack(ends)), 20_000)
    return graph if ids else CscGraph.from_csc(graph.indptr, graph.indices)


@pytest.mark.parametrize("ids", [False, True])
@pytest.mark.parametrize("threads", [1, 3])
def test_large_hops(ids: bool, threads: int, tmp_path: Path) -> None:
    alone = MacrobatchSampler(a_graph(ids), SamplingPlan((30, 10), edge_ids=True), threads=threads)
    found = on_files(alone, tmp_path)
    seeds = list(torch.randperm(20_000)[:4000].split(500))
    for batch, right in zip(found.sample(seeds, 0), alone.sample(seeds, 0), strict=True):
        assert_same_typed(batch, right)


def blocks_of(positions: Tensor, reader: DiskReader) -> int:
    table, block = reader.table, reader._file.rule.block
    return block * len(
        (torch.div(table.offset + positions * table.row_bytes, block, rounding_mode="floor")).unique()
    )


@pytest.mark.parametrize("ids", [False, True])
def test_a_hop_reads_the_blocks_of_its_picks(
    ids: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = DiskReader.read
    monkeypatch.setattr(DiskReader, "read", lambda *given: plain(*given, gap=0))
    graph = a_graph(ids)
    alone = MacrobatchSampler(graph, SamplingPlan((-1,), edge_ids=True))
    found = on_files(alone, tmp_path)
    seeds = [torch.arange(10), torch.arange(5, 3000, 7)]
    found.sample(seeds, 0)
    read = found.take_counters()
    degrees = graph.indptr.diff()
    picks = int(sum(degrees[one].sum() for one in seeds))
    each = [
        torch.arange(graph.indptr[node], graph.indptr[node + 1]) for one in seeds for node in one.tolist()
    ]
    files = on_disk.EdgeFiles.of(found.typed.relations[0])
    readers = [one for one in (files.sources, files.edge_ids) if isinstance(one, DiskReader)]
    assert len(readers) == 1 + ids
    assert read.rows == picks * len(readers)
    assert read.bytes == sum(blocks_of(torch.cat(each), one) for one in readers)
    assert found.take_counters().bytes == 0


def test_the_page_cache_is_left_alone(tmp_path: Path) -> None:
    found = on_files(MacrobatchSampler(a_graph(), SamplingPlan((10, 10))), tmp_path)
    path = str(tmp_path / "0-indices.npy")
    empty_page_cache(path)
    if any(resident(path)):
        pytest.skip("this file system keeps its pages")
    found.sample([torch.arange(1000)], 0)
    assert not any(resident(path)) and found.take_counters().rows


def test_edges_in_memory_are_not_read(tmp_path: Path) -> None:
    graph = a_graph(True)
    half = InEdges(graph.indptr, graph.indices, mapped(graph.edge_ids.long(), tmp_path / "ids.npy"))  # type: ignore[union-attr]
    alone = MacrobatchSampler(graph, SamplingPlan((5,), edge_ids=True))
    found = DiskSampler(MacrobatchSampler(CscGraph(half), alone.plan), NOTHING)
    (batch,), (right,) = found.sample([torch.arange(100)], 0), alone.sample([torch.arange(100)], 0)
    assert_same_typed(batch, right)
    assert found.take_counters().rows == right.num_edges  # ids of another width than in answers


def told(sampler: DiskSampler) -> Any:
    with pytest.raises((OSError, ValueError)) as caught:
        sampler.sample([torch.arange(20_000)], 0)
    return caught.value


def test_a_file_that_was_cut(tmp_path: Path) -> None:
    found = on_files(MacrobatchSampler(a_graph(), SamplingPlan((4,))), tmp_path)
    path = tmp_path / "0-indices.npy"
    os.truncate(path, 4096 + 128)
    error = told(found)
    assert error.filename == str(path) and "cut or written to" in str(error)


def test_a_file_that_ends_early(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = on_files(MacrobatchSampler(a_graph(), SamplingPlan((4,))), tmp_path)
    path = tmp_path / "0-indices.npy"
    files = on_disk.EdgeFiles.of(found.typed.relations[0])
    assert isinstance(files.sources, DiskReader)
    monkeypatch.setattr(files.sources._file, "_check_identity", lambda: None)
    os.truncate(path, 100_000)
    error = told(found)
    assert error.filename == str(path) and "ends before byte" in str(error)


def test_a_file_with_other_nodes(tmp_path: Path) -> None:
    found = on_files(MacrobatchSampler(a_graph(), SamplingPlan((-1,))), tmp_path)
    file = tmp_path / "0-indices.npy"
    before = file.stat()
    with file.open("r+b") as opened:
        opened.seek(-4, os.SEEK_END)
        opened.write(b"\xff\xff\xff\x7f")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert "names node 2147483647, but there are 20000" in str(told(found))
