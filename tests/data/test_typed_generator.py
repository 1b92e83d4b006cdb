"""Generated graphs of several types."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from pyg_batchgnn.data import (
    DatasetError,
    TypedGeneratorSpec,
    generate_typed,
    generate_typed_folder,
    load_dataset,
    read_folder,
)
from pyg_batchgnn.data.generator import typed
from tests.data.test_typed_folder import assert_same

SPEC = TypedGeneratorSpec(papers=3000, seed=2, classes=5, features=12)
CITES, WRITES = ("paper", "cites", "paper"), ("author", "writes", "paper")


def test_a_folder_has_what_memory_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(typed, "_BLOCK", 700)
    made = generate_typed(SPEC)
    assert_same(read_folder(generate_typed_folder(SPEC, tmp_path / "graph")), made)
    name = SPEC.name
    assert_same(load_dataset(name, tmp_path / "root"), made)
    assert_same(load_dataset(name, tmp_path / "root"), made)  # found again
    assert_same(load_dataset(name), made)
    with pytest.raises(DatasetError, match="exists already"):
        generate_typed_folder(SPEC, tmp_path / "graph")


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


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"papers": 0}, "papers is 0"),
        ({"degree": -1.0}, "degree is -1.0"),
        ({"classes": 1.5}, "whole number"),
    ],
)
def test_parameters_that_cannot_be(options: dict[str, float], says: str) -> None:
    with pytest.raises(DatasetError, match=says):
        TypedGeneratorSpec(**options)  # type: ignore[arg-type]


def test_the_smallest_graph() -> None:
    made = generate_typed(TypedGeneratorSpec(papers=1, classes=1, features=1))
    assert [nodes.num_nodes for nodes in made.node_sets] == [1, 1, 1, 1]
