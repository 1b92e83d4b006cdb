"""A saved cache is the one that was made, and no other one is taken for it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch_geometric.data import Data

from pyg_batchgnn.cache import AggregationCache, is_aggregation_cache, verify_aggregation_cache
from pyg_batchgnn.cache.pieces import OwnedTargets, PieceLimits, cut_pieces
from pyg_batchgnn.data import DatasetError, DatasetNotFoundError
from pyg_batchgnn.ops import InEdges, OwnedEdges
from tests.support.damaged_folders import said
from tests.support.partitioned_graphs import CASES, whole
from tests.support.reference_aggregates import with_loops
from tests.support.tiny_datasets import cut_bytes, flip_byte


@pytest.fixture
def data() -> Data:
    return with_loops(whole(CASES[0]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_what_is_loaded_is_what_was_saved(data: Data, tmp_path: Path, dtype: torch.dtype) -> None:
    data.x = data.x.to(dtype)
    built = AggregationCache.build(data, "symmetric")
    folder = built.save(tmp_path / "caches" / "one")
    assert sorted(path.name for path in folder.iterdir()) == ["META.json", "aggregates.npy"]
    assert list(folder.parent.iterdir()) == [folder]
    loaded = AggregationCache.load(folder, data)
    assert torch.equal(loaded.rows, built.rows) and loaded.rows.dtype == built.rows.dtype
    assert (loaded.kind, loaded.fingerprint) == (built.kind, built.fingerprint)
    assert is_aggregation_cache(folder)
    verify_aggregation_cache(folder)
    with pytest.raises(DatasetError, match="exists already"):
        built.save(folder)


def _elsewhere(folder: Path) -> None:
    """Lets META.json name a file outside of the folder, with its right checksum."""
    (folder.parent / "other.npy").write_bytes((folder / "aggregates.npy").read_bytes())
    said("relations", 0, "array", value="../other")(folder)
    said("arrays", value=lambda old: {"../other": old["aggregates"]})(folder)


@pytest.mark.parametrize(
    ("spoil", "text"),
    [
        (said("format", value="pyg_batchgnn.partition"), "META.json: format: is 'pyg_batchgnn.partition'"),
        (said("version", value=1), "version: is 1"),
        (said("relations", 0, "relation", value=["a", "b"]), "damaged"),
        (said("relations", 0, "made_of", value={}), "damaged"),
        (said("relations", 0, "aggregation", value="max"), "damaged"),
        (
            said("arrays", "aggregates", "shape", value=[3, 4]),
            "shape is",
        ),
        (
            said("relations", value=lambda old: old * 2),
            "META.json: relations: has aggregates of",
        ),
        (_elsewhere, "damaged .*aggregates"),
        (lambda folder: flip_byte(folder / "aggregates.npy", -3), "aggregates.npy: aggregates: sha256"),
        (lambda folder: cut_bytes(folder / "aggregates.npy", 8), "file is truncated"),
        (lambda folder: (folder / "aggregates.npy").unlink(), "the file does not exist"),
        (lambda folder: (folder / "META.json").unlink(), "META"),
    ],
)
def test_a_damaged_folder_is_refused_by_name(
    data: Data, tmp_path: Path, spoil: Callable[[Path], object], text: str
) -> None:
    folder = AggregationCache.build(data, "mean").save(tmp_path / "cache")
    spoil(folder)
    with pytest.raises(DatasetError, match=text) as error:
        AggregationCache.load(folder, data)
    assert str(folder) in str(error.value)
    with pytest.raises(DatasetError, match=str(folder)):
        verify_aggregation_cache(folder)


def test_verifying_names_a_file_that_is_gone_and_the_remedy(data: Data, tmp_path: Path) -> None:
    folder = AggregationCache.build(data, "mean").save(tmp_path / "cache")
    file = folder / "aggregates.npy"
    file.unlink()
    with pytest.raises(DatasetNotFoundError, match="does not exist; restore it or make") as error:
        verify_aggregation_cache(folder)
    assert str(file) in str(error.value)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda data: data.x.add_(1), "has other features; make"),
        (lambda data: data.edge_index[:, :1].fill_(9), "has other edges; make"),
        (lambda data: setattr(data, "x", data.x[:, :4]), "4 feature columns instead of 5"),
        (lambda data: setattr(data, "x", data.x.double()), "float64 dtype instead of float32"),
        (lambda data: setattr(data, "edge_index", data.edge_index[:, 1:]), "918 edges instead of 919"),
    ],
)
def test_a_cache_of_other_data_is_refused_by_name(
    data: Data, tmp_path: Path, change: Callable[[Data], object], text: str
) -> None:
    folder = AggregationCache.build(data, "mean").save(tmp_path / "cache")
    change(data)
    with pytest.raises(DatasetError, match=f"{folder}: the aggregation cache was made of other data.*{text}"):
        AggregationCache.load(folder, data)


def test_a_folder_that_cannot_be_made_is_an_error_of_data(data: Data, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DatasetError, match="file is no folder"):
        AggregationCache.build(data, "mean").save(tmp_path / "file" / "cache")


def test_another_aggregation_is_refused(data: Data, tmp_path: Path) -> None:
    folder = AggregationCache.build(data, "mean").save(tmp_path / "cache")
    with pytest.raises(DatasetError, match="aggregates by mean, but sum is wanted"):
        AggregationCache.load(folder, data, kind="sum")
    with pytest.raises(DatasetNotFoundError, match="that AggregationCache"):
        AggregationCache.load(tmp_path, data)


RELATIONS = 3


@given(
    degrees=st.lists(st.lists(st.integers(0, 6), max_size=30), min_size=RELATIONS, max_size=RELATIONS),
    budget=st.integers(1, 4000),
    source=st.lists(st.integers(0, 300), min_size=RELATIONS, max_size=RELATIONS),
    result=st.sampled_from([0, 30]),
    seed=st.integers(0, 9),
)
@example(degrees=[[0, 1, 0, 0, 2], [], []], budget=1, source=[100, 1, 1], result=0, seed=0)
def test_pieces(degrees: list[list[int]], budget: int, source: list[int], result: int, seed: int) -> None:
    random = torch.Generator().manual_seed(seed)
    nodes = max(map(len, degrees))
    counts = [nodes, nodes, len(degrees[2])]
    edges = []
    for count, listed in zip(counts, degrees, strict=True):
        indptr = torch.tensor([0, *listed, *[0] * (count - len(listed))]).cumsum(0)
        indices = torch.randint(max(nodes, 1), (int(indptr[-1]),), generator=random)
        edges.append(OwnedEdges(InEdges(indptr, indices), torch.arange(count), 0, nodes, indices.numel()))
    targets = [OwnedTargets(0, edges[:2], [0, 1]), OwnedTargets(1, edges[2:], [0])]
    limits = PieceLimits(budget, dict(enumerate(source[:2]))).with_results({1: result})
    cuts = list(cut_pieces(targets, limits, {0: nodes, 1: nodes}))
    assert [row for cut in cuts for row in cut[0]] == list(range(nodes))
    assert [row for cut in cuts for row in cut[1]] == list(range(counts[2]))
    for cut in cuts:
        read = [edges[0].in_edges.sources(cut[0]), edges[2].in_edges.sources(cut[1])]
        other = edges[1].in_edges.sources(cut[0])
        distinct = {0: torch.cat(read).unique().numel(), 1: other.unique().numel()}
        count = sum(one.numel() for one in read) + other.numel()
        alone = sum(map(len, cut.values())) == 1
        assert alone or count <= 1 or limits.bytes(distinct, count) <= limits.budget
        assert alone or len(cut[1]) * result <= budget // 2
