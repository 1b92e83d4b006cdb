"""The graph generators: what they make, and that they make the same thing every time."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from pyg_batchgnn.data import (
    Dataset,
    DatasetError,
    GeneratorSpec,
    PapersSpec,
    TypedGeneratorSpec,
    generate,
    generate_folder,
    generate_papers,
    generate_papers_folder,
    generate_typed,
    load_dataset,
    read_folder,
    verify_folder,
)
from pyg_batchgnn.data.generator import AnySpec, communities, papers, write
from pyg_batchgnn.data.generator.communities import BLOCK_NODES, IdPermutation
from pyg_batchgnn.data.generator.papers import class_means, scale_of_degrees
from pyg_batchgnn.data.generator.pieces import ProgressBar
from tests.data.test_folder import assert_same
from tests.support.tiers import in_all
from tests.support.tiny_datasets import same
from tests.support.training_runs import batchgnn

TWO_BLOCKS = GeneratorSpec(nodes=BLOCK_NODES + 3000, seed=7, degree=6.0, features=4)


@pytest.fixture(scope="module")
def graph() -> Dataset:
    return generate(GeneratorSpec(nodes=50_000, seed=3, features=8))


def degrees(dataset: Dataset) -> torch.Tensor:
    return torch.bincount(dataset.edge_index[1].long(), minlength=dataset.num_nodes)


def test_symmetrical_sorted_no_loops_no_repeats(graph: Dataset) -> None:
    source, destination = graph.edge_index.long()
    key = source * graph.num_nodes + destination
    assert bool((key[1:] > key[:-1]).all())
    assert not bool((source == destination).any())
    assert torch.equal(torch.sort(destination * graph.num_nodes + source).values, key)


def test_degrees_follow_a_power_law(graph: Dataset) -> None:
    degree = degrees(graph).double()
    assert 0.85 * 16 < degree.mean() <= 16
    assert degree.max() > 60 * degree.mean()
    # Hill's estimate of the exponent of P(D > d) ~ d^-(exponent - 1) from the largest degrees.
    tail = torch.sort(degree, descending=True).values[:500]
    exponent = 1 + 1 / (tail[:-1] / tail[-1]).log().mean()
    assert 2.0 < exponent < 3.0
    # A Poisson distribution of this mean would hardly reach three times the mean.
    assert (degree > 3 * degree.mean()).sum() > 0.01 * graph.num_nodes


def test_most_neighbours_are_of_the_same_class(graph: Dataset) -> None:
    source, destination = graph.edge_index.long()
    share = (graph.nodes.tables["y"][source] == graph.nodes.tables["y"][destination]).float().mean()
    assert 0.6 < share < 0.85
    assert torch.bincount(graph.nodes.tables["y"], minlength=16).min() > 0


def test_ids_say_nothing_of_communities(graph: Dataset) -> None:
    distance = (graph.edge_index[0].double() - graph.edge_index[1].double()).abs().mean() / graph.num_nodes
    assert abs(float(distance) - 1 / 3) < 0.02
    same_class = (graph.nodes.tables["y"][1:] == graph.nodes.tables["y"][:-1]).float().mean()
    chance = (torch.bincount(graph.nodes.tables["y"]).float() / graph.num_nodes).square().sum()
    assert abs(float(same_class - chance)) < 0.02


def ridge_accuracy(x: torch.Tensor, dataset: Dataset) -> float:
    x = torch.cat([x, torch.ones(len(x), 1)], dim=1).double()
    train, test = dataset.split("train"), dataset.split("test")
    target = torch.nn.functional.one_hot(dataset.nodes.tables["y"], dataset.num_classes).double()
    gram = x[train].T @ x[train] + torch.eye(x.shape[1], dtype=torch.float64)
    weight = torch.linalg.solve(gram, x[train].T @ target[train])
    return float(((x[test] @ weight).argmax(1) == dataset.nodes.tables["y"][test]).double().mean())


def neighbour_mean(x: torch.Tensor, dataset: Dataset) -> torch.Tensor:
    source, destination = dataset.edge_index.long()
    total = torch.zeros_like(x).index_add_(0, destination, x[source])
    return total / degrees(dataset).clamp(min=1)[:, None]


@pytest.mark.parametrize(("nodes", "seed"), [(1000, 0), *in_all((1000, 1), (5000, 0), (5000, 1))])
def test_a_gnn_clearly_beats_an_mlp(nodes: int, seed: int) -> None:
    """The same linear classifier on the features alone and with the neighbours' mean."""
    dataset = generate(GeneratorSpec(nodes=nodes, seed=seed))
    alone = ridge_accuracy(dataset.nodes.tables["x"], dataset)
    with_neighbours = ridge_accuracy(
        torch.cat([dataset.nodes.tables["x"], neighbour_mean(dataset.nodes.tables["x"], dataset)], 1), dataset
    )
    assert with_neighbours > alone + 0.2
    assert with_neighbours > 0.6


def test_same_seed_same_bytes_other_seed_other_bytes() -> None:
    for kind in (GeneratorSpec, PapersSpec):
        first, again, other = (generate(kind(nodes=3000, features=8, seed=seed)) for seed in (1, 1, 2))
        assert same(first, again)
        assert not torch.equal(first.edge_index[:, :100], other.edge_index[:, :100])
        for name in ("x", "y"):
            assert not torch.equal(first.nodes.tables[name], other.nodes.tables[name])


@pytest.mark.parametrize(
    "spec",
    [
        TWO_BLOCKS,
        TypedGeneratorSpec(papers=1000, seed=2, classes=5, features=12),
        PapersSpec(nodes=1000, classes=5, features=3),
    ],
)
def test_folder_equals_memory_whatever_the_piece(
    spec: AnySpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(communities, "_BLOCK", 700)
    monkeypatch.setattr(papers, "BLOCK_NODES", 77)
    whole, files = generate(spec), []
    for piece in (10_000, 1 << 20):
        folder = generate_folder(spec, tmp_path / str(piece), piece_nodes=piece)
        assert_same(read_folder(folder), whole)
        assert verify_folder(folder) == len(list(folder.rglob("*.npy")))
        files.append({path.relative_to(folder): path.read_bytes() for path in folder.rglob("*.*")})
    assert files[0] == files[1] and read_folder(folder).source == whole.source
    with pytest.raises(DatasetError, match="exists already"):
        generate_folder(spec, folder)


def test_memory_is_bounded_by_the_piece_not_by_the_graph(tmp_path: Path) -> None:
    """Four times the graph must not take four times the memory."""
    peaks = []
    for blocks in (2, 8):
        spec = GeneratorSpec(nodes=blocks * BLOCK_NODES, degree=4.0, features=2)
        tracemalloc.start()
        generate_folder(spec, tmp_path / str(blocks), piece_nodes=BLOCK_NODES // 2)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.25 * peaks[0]


def test_progress_bar_goes_to_stderr(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    generate_folder(GeneratorSpec(nodes=1000), tmp_path / "hidden")
    assert capsys.readouterr() == ("", "")
    generate_folder(GeneratorSpec(nodes=1000), tmp_path / "shown", progress=ProgressBar.SHOW)
    out, err = capsys.readouterr()
    assert out == "" and "drawing features" in err


def test_permutation_and_communities_reach_the_largest_size() -> None:
    spec = GeneratorSpec(nodes=2**31)
    permutation = IdPermutation(spec)
    places = np.array([0, 1, 2**30, 2**31 - 1])
    ids = permutation.to_id(places)
    assert ids.min() >= 0 and ids.max() < 2**31
    assert np.array_equal(permutation.to_place(ids), places)


BAD: dict[type[Any], list[tuple[str, float]]] = {
    GeneratorSpec: [
        *(("nodes", 10), ("nodes", 2**31 + 1), ("nodes", 1e5), ("nodes", float("nan")), ("seed", -1)),
        *(("seed", True), ("degree", float("inf")), ("degree", -2.0), ("classes", 0), ("features", 0)),
        *(("exponent", 2.0), ("label_noise", 1.5), ("train", 0.7), ("half", 2)),
    ],
    TypedGeneratorSpec: [("papers", 0), ("degree", -1.0), ("classes", 1.5)],
    PapersSpec: [("nodes", 100), ("skew", 1.5), ("tail", 1)],
}


@pytest.mark.parametrize("spec", BAD)
def test_bad_parameters_are_named(spec: type[Any]) -> None:
    for field, value in BAD[spec]:
        with pytest.raises(DatasetError, match=f"{field}.*; give"):
            spec(**{field: value})


SPEC = TypedGeneratorSpec(papers=3000, seed=2, classes=5, features=12)
CITES, WRITES = ("paper", "cites", "paper"), ("author", "writes", "paper")


def test_types_attributes_and_relations() -> None:
    made = generate_typed(SPEC)
    assert {nodes.name: sorted(nodes.tables) for nodes in made.node_sets} == {
        **{"author": ["y"], "field": [], "institution": [], "paper": ["time", "x", "y"]}
    }
    papers, authors = made.nodes_of("paper"), made.nodes_of("author")
    assert papers.num_classes == 5 and authors.tables["y"].shape == (3000, 3) and authors.num_classes == 0
    for nodes in (papers, authors):
        ids = torch.cat(list(nodes.splits.values()))
        assert torch.equal(ids.sort().values, torch.arange(3000))
    cites = made.edges_of(CITES)
    assert torch.equal(cites.tables["time"], papers.tables["time"][cites.edge_index[0].long()])
    reverse = made.edges_of(("paper", "rev_writes", "author")).edge_index.flip(0)
    assert torch.equal(made.edges_of(WRITES).edge_index, reverse)


def test_degrees_follow_a_power_law_and_neighbours_have_the_class() -> None:
    made = generate_typed(SPEC)
    source, target = made.edges_of(CITES).edge_index.long()
    for ends in (source, target):
        degree = torch.bincount(ends, minlength=3000)
        assert 4 < float(degree.float().mean()) < 12 and int(degree.max()) > 15 * float(degree.float().mean())
    y = made.nodes_of("paper").tables["y"]
    assert float((y[source] == y[target]).float().mean()) > 0.5


PAPERS = PapersSpec(nodes=40_000, classes=8, features=8, seed=3)


@pytest.fixture(scope="module")
def drawn() -> Dataset:
    return generate_papers(PAPERS)


def test_in_degrees(drawn: Dataset) -> None:
    csc = drawn.edges.csc
    assert csc is not None
    degrees, scale = csc.degrees.double(), scale_of_degrees(PAPERS)
    assert scale == pytest.approx(7.6, abs=0.05)  # 7.55 of more nodes
    for least in (1, 4, 20, 200):
        chance = (1 + least / scale) ** -PAPERS.tail
        assert float((degrees >= least).double().mean()) == pytest.approx(
            chance, abs=5 * (chance / 40_000) ** 0.5
        )
    k = np.arange(1, PAPERS.most_in_edges + 1)
    assert float(((1 + k / scale) ** -PAPERS.tail).sum()) == pytest.approx(PAPERS.degree)


def test_sources(drawn: Dataset) -> None:
    """The first hundredth of the ranks is a tenth of all sources, and lies anywhere."""
    csc, y = drawn.edges.csc, drawn.nodes.tables["y"].long()
    assert csc is not None
    count = torch.bincount(csc.indices, minlength=PAPERS.nodes)
    share = count.sort(descending=True).values[:400].sum() / csc.num_edges
    assert float(share) == pytest.approx(0.1, abs=0.01)
    hubs = count.argsort(descending=True)[:400]
    assert float(hubs.double().mean()) == pytest.approx(PAPERS.nodes / 2, rel=0.1)
    alike = float((y[csc.indices.long()] == y[csc.targets()]).double().mean())
    assert alike == pytest.approx(PAPERS.homophily + (1 - PAPERS.homophily) / PAPERS.classes, abs=0.01)


def test_labels_features_and_splits(drawn: Dataset) -> None:
    y, x = drawn.nodes.tables["y"], drawn.nodes.tables["x"]
    assert (y.dtype, x.dtype) == (torch.uint8, torch.bfloat16)
    assert (
        generate_papers(PapersSpec(nodes=2000, classes=300, features=1)).nodes.tables["y"].dtype
        is torch.int16
    )
    assert torch.bincount(y.long()).tolist() == [5000] * 8
    means = torch.from_numpy(class_means(PAPERS))
    assert torch.allclose(means.norm(dim=1), torch.full((8,), PAPERS.signal))
    noise = x.float() - means[y.long()]
    assert torch.allclose(noise.mean(dim=0), torch.zeros(8), atol=0.03)
    assert torch.allclose(noise.var(dim=0), torch.ones(8), atol=0.03)
    sizes = {name: len(ids) for name, ids in drawn.splits.items()}
    assert sizes == PAPERS.splits == {"train": 435, "val": 45, "test": 77}
    assert PapersSpec().splits == {"train": 1_207_179, "val": 125_265, "test": 214_338}


def test_by_name_and_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in (SPEC.name, "papers-like:nodes=1000,classes=4,features=3"):
        made = load_dataset(name, tmp_path)
        for root in (tmp_path, None):  # it is found again, or made in memory
            assert_same(load_dataset(name, root), made)
    arguments = ["--papers-like", "--nodes", 1000, "--classes", 4, "--features", 3]
    assert batchgnn("generate", tmp_path / "papers", *arguments) == 0
    assert same(read_folder(tmp_path / "papers"), made)
    assert batchgnn("datasets", tmp_path / "papers") == 0
    assert batchgnn("generate", tmp_path / "half", "--papers-like", "--half") == 2
    assert "do not go with --papers-like" in capsys.readouterr().err
    with pytest.raises(DatasetError, match="too large to make in memory"):
        load_dataset("papers-like")


def test_a_disk_without_room_is_refused_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write.shutil, "disk_usage", lambda _: SimpleNamespace(free=5000))
    with pytest.raises(
        DatasetError, match=r"takes about [\d,]+ bytes, and the disk has 5,000 free; free some"
    ):
        generate_papers_folder(PAPERS, tmp_path / "papers")
    assert not list(tmp_path.iterdir())
