"""The generated graph in the shape of papers100M: its laws, and the same bytes in any way."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pyg_batchgnn.data import (
    Dataset,
    DatasetError,
    PapersSpec,
    generate_papers,
    generate_papers_folder,
    load_dataset,
    read_folder,
    verify_folder,
)
from pyg_batchgnn.data.generator import papers
from pyg_batchgnn.data.generator.papers import class_means, scale_of_degrees, to_bfloat16
from tests.support.tiny_datasets import same
from tests.support.training_runs import batchgnn

SPEC = PapersSpec(nodes=40_000, classes=8, features=8, seed=3)


@pytest.fixture(scope="module")
def graph() -> Dataset:
    return generate_papers(SPEC)


def test_a_folder_has_the_same_bytes(tmp_path: Path, graph: Dataset) -> None:
    folder = generate_papers_folder(SPEC, tmp_path / "graph")
    assert verify_folder(folder) == 7
    assert same(read_folder(folder), graph)
    assert same(generate_papers(SPEC), graph)
    other = generate_papers(PapersSpec(nodes=40_000, classes=8, features=8, seed=4))
    assert not torch.equal(other.nodes.tables["x"], graph.nodes.tables["x"])
    assert other.num_edges != graph.num_edges


def test_blocks_that_end_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(papers, "BLOCK_NODES", 77)
    spec = PapersSpec(nodes=1000, classes=5, features=3)
    assert same(read_folder(generate_papers_folder(spec, tmp_path / "graph")), generate_papers(spec))


def test_in_degrees(graph: Dataset) -> None:
    csc = graph.edges.csc
    assert csc is not None
    degrees, scale = csc.degrees.double(), scale_of_degrees(SPEC)
    assert scale == pytest.approx(7.6, abs=0.05)  # 7.55 of more nodes
    for least in (1, 4, 20, 200):
        chance = (1 + least / scale) ** -SPEC.tail
        assert float((degrees >= least).double().mean()) == pytest.approx(
            chance, abs=5 * (chance / 40_000) ** 0.5
        )
    k = np.arange(1, SPEC.most_in_edges + 1)
    assert float(((1 + k / scale) ** -SPEC.tail).sum()) == pytest.approx(SPEC.degree)


def test_sources(graph: Dataset) -> None:
    """The first hundredth of the ranks is a tenth of all sources, and lies anywhere."""
    csc, y = graph.edges.csc, graph.nodes.tables["y"].long()
    assert csc is not None
    count = torch.bincount(csc.indices, minlength=SPEC.nodes)
    share = count.sort(descending=True).values[:400].sum() / csc.num_edges
    assert float(share) == pytest.approx(0.1, abs=0.01)
    hubs = count.argsort(descending=True)[:400]
    assert float(hubs.double().mean()) == pytest.approx(SPEC.nodes / 2, rel=0.1)
    alike = float((y[csc.indices.long()] == y[csc.targets()]).double().mean())
    assert alike == pytest.approx(SPEC.homophily + (1 - SPEC.homophily) / SPEC.classes, abs=0.01)


@pytest.mark.parametrize(("homophily", "alike"), [(0.0, 1 / 4), (1.0, 1.0)])
def test_sources_at_the_ends_of_homophily(homophily: float, alike: float) -> None:
    spec = PapersSpec(nodes=5001, classes=4, features=1, homophily=homophily, skew=1)
    graph = generate_papers(spec)
    csc, y = graph.edges.csc, graph.nodes.tables["y"].long()
    assert csc is not None
    found = float((y[csc.indices.long()] == y[csc.targets()]).double().mean())
    assert found == pytest.approx(alike, abs=0.02)
    count = torch.bincount(csc.indices, minlength=spec.nodes).double()
    assert float(count.var() / count.mean()) < 2  # as of equally likely sources


def test_labels_features_and_splits(graph: Dataset) -> None:
    y, x = graph.nodes.tables["y"], graph.nodes.tables["x"]
    assert (y.dtype, x.dtype) == (torch.uint8, torch.bfloat16)
    assert (
        generate_papers(PapersSpec(nodes=2000, classes=300, features=1)).nodes.tables["y"].dtype
        is torch.int16
    )
    assert torch.bincount(y.long()).tolist() == [5000] * 8
    means = torch.from_numpy(class_means(SPEC))
    assert torch.allclose(means.norm(dim=1), torch.full((8,), SPEC.signal))
    noise = x.float() - means[y.long()]
    assert torch.allclose(noise.mean(dim=0), torch.zeros(8), atol=0.03)
    assert torch.allclose(noise.var(dim=0), torch.ones(8), atol=0.03)
    sizes = {name: len(ids) for name, ids in graph.splits.items()}
    assert sizes == SPEC.splits == {"train": 435, "val": 45, "test": 77}
    assert PapersSpec().splits == {"train": 1_207_179, "val": 125_265, "test": 214_338}


@given(st.lists(st.floats(-1048576, 1048576, width=32), min_size=1))
def test_bfloat16_is_rounded_as_torch_rounds(values: list[float]) -> None:
    x = np.array(values, np.float32)
    wanted = torch.from_numpy(x).bfloat16().view(torch.int16)
    assert torch.equal(torch.from_numpy(to_bfloat16(x).view(np.int16)), wanted)


def test_by_name_and_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = "papers-like:nodes=1000,classes=4,features=3"
    made = load_dataset(name, tmp_path)
    assert same(load_dataset(name, tmp_path), made)
    assert same(load_dataset(name), made)
    arguments = ["--papers-like", "--nodes", 1000, "--classes", 4, "--features", 3]
    assert batchgnn("generate", tmp_path / "graph", *arguments) == 0
    assert same(read_folder(tmp_path / "graph"), made)
    assert batchgnn("datasets", tmp_path / "graph") == 0
    assert batchgnn("generate", tmp_path / "half", "--papers-like", "--half") == 2
    assert "do not go with --papers-like" in capsys.readouterr().err
    with pytest.raises(DatasetError, match="too large to make in memory"):
        load_dataset("papers-like")


@pytest.mark.parametrize(
    ("fields", "said"),
    [({"nodes": 100}, "nodes is 100"), ({"skew": 1.5}, "skew is 1.5"), ({"tail": 1}, "tail is 1")],
)
def test_wrong_parameters_are_refused(fields: dict, said: str) -> None:
    with pytest.raises(DatasetError, match=said):
        PapersSpec(**fields)


def test_a_disk_without_room_is_refused_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(papers.shutil, "disk_usage", lambda _: SimpleNamespace(free=5000))
    with pytest.raises(
        DatasetError, match=r"takes about [\d,]+ bytes, and the disk has 5,000 free; free some"
    ):
        generate_papers_folder(SPEC, tmp_path / "graph")
    assert not list(tmp_path.iterdir())
