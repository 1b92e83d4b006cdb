"""Links of splits: written, read again, and checked; OGB's files of links."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from pyg_batchgnn.data import (
    Dataset,
    DatasetError,
    DatasetNotFoundError,
    LinkSplit,
    ParallelEdges,
    check_dataset,
    load_dataset,
    read_folder,
    verify_folder,
    write_folder,
)
from pyg_batchgnn.data.undirected import undirected_dataset
from tests.support.tiny_datasets import EDGES, NODES, equal, tiny_dataset
from tests.support.tiny_links import link_splits, typed_links, write_ogb_links


def plain_links() -> Dataset:
    tiny = tiny_dataset()
    return replace(tiny, edge_sets=(replace(tiny.edges, links=link_splits(NODES, NODES)),))


def same_links(left: dict[str, LinkSplit], right: dict[str, LinkSplit]) -> bool:
    if left.keys() != right.keys():
        return False
    arrays = [(left[split].arrays(), right[split].arrays()) for split in left]
    return all(a.keys() == b.keys() and all(equal(a[name], b[name]) for name in a) for a, b in arrays)


@pytest.mark.parametrize("make", [plain_links, typed_links])
def test_links_come_back_from_a_folder(tmp_path: Path, make: Callable[[], Dataset]) -> None:
    written = make()
    write_folder(written, tmp_path / "g")
    read = read_folder(tmp_path / "g")
    for before, after in zip(written.edge_sets, read.edge_sets, strict=True):
        assert same_links(before.links, after.links)
    verify_folder(tmp_path / "g")


def test_a_folder_made_by_hand_has_links_where_the_formats_say(tmp_path: Path) -> None:
    (tmp_path / "links" / "val").mkdir(parents=True)
    np.save(tmp_path / "edge_index.npy", np.array([[0, 1], [1, 2]]))
    np.save(tmp_path / "links" / "val" / "index.npy", np.array([[0], [2]], np.uint16))
    np.save(tmp_path / "links" / "val" / "negative_targets.npy", np.array([[1, 2]]))
    (links,) = read_folder(tmp_path).edges.links.values()
    assert links.index.tolist() == [[0], [2]] and links.index.dtype == torch.int64
    assert links.negative_targets is not None and links.negative_targets.tolist() == [[1, 2]]
    assert len(links) == 1 and links.negatives is None


def test_links_stay_when_edges_are_made_undirected() -> None:
    both = undirected_dataset(plain_links(), ParallelEdges.KEEP)
    assert same_links(both.edges.links, link_splits(NODES, NODES))


FLAWS: list[tuple[dict[str, object], str]] = [
    ({"index": torch.zeros(3, 2, dtype=torch.int64)}, "shape is [3, 2], expected [2, any]"),
    ({"index": torch.zeros(2, 3)}, "dtype is float32, expected int32 or int64"),
    ({"index": torch.full((2, 4), NODES)}, f"node id {NODES}"),
    ({"negatives": torch.full((2, 1), -1)}, "node id -1"),
    ({"negatives": torch.zeros(2, dtype=torch.int64)}, "shape is [2]"),
    ({"negatives": None, "negative_targets": torch.zeros(3, 2, dtype=torch.int64)}, "expected [4, any]"),
    ({"negatives": None, "negative_targets": torch.full((4, 2), NODES)}, f"node id {NODES}"),
    ({"negative_targets": torch.zeros(4, 2, dtype=torch.int64)}, "there are negatives too"),
    ({"tables": {"year": torch.zeros(3)}}, "expected 4 rows"),
]


@pytest.mark.parametrize(("changes", "fact"), FLAWS)
def test_flaws_of_links_are_named(changes: dict[str, object], fact: str) -> None:
    tiny = plain_links()
    wrong = replace(tiny.edges.links["val"], **changes)  # type: ignore[arg-type]
    with pytest.raises(DatasetError) as error:
        check_dataset(replace(tiny, edge_sets=(replace(tiny.edges, links={"val": wrong}),)))
    assert fact in str(error.value)


def test_flaws_of_folders_are_named(tmp_path: Path) -> None:
    write_folder(typed_links(), tmp_path / "g")
    folder = tmp_path / "g" / "links" / "user__buys%5F__item"
    (folder / "val" / "index.npy").rename(tmp_path / "index.npy")
    with pytest.raises(DatasetNotFoundError, match=r"val/index\.npy"):
        read_folder(tmp_path / "g")
    (tmp_path / "g" / "META.json").unlink()
    with pytest.raises(DatasetNotFoundError, match=r"val/index.npy: index: .* put the links"):
        read_folder(tmp_path / "g")
    (tmp_path / "index.npy").rename(folder / "val" / "index.npy")
    folder.rename(folder.with_name("user__sells__item"))
    with pytest.raises(DatasetError, match="belongs to no node type or relation"):
        read_folder(tmp_path / "g")


@pytest.mark.parametrize("is_zip", [True, False])
def test_collab(tmp_path: Path, is_zip: bool) -> None:
    _, splits = write_ogb_links(tmp_path, "ogbl-collab", is_zip=is_zip)
    read = load_dataset("ogbl-collab", tmp_path)
    assert same_links(read.edges.links, splits)
    assert torch.equal(read.edge_index[:, :EDGES], tiny_dataset().edge_index)
    assert torch.equal(read.edge_index[:, EDGES:], tiny_dataset().edge_index.flip(0))
    assert torch.equal(read.edges.tables["edge_weight"], torch.arange(EDGES).repeat(2))
    assert read.num_classes == 0 and "y" not in read.nodes.tables
    assert same_links(load_dataset("ogbl-collab", tmp_path).edges.links, splits)  # not converted again


def test_citation2(tmp_path: Path) -> None:
    _, splits = write_ogb_links(tmp_path, "ogbl-citation2")
    read = load_dataset("ogbl-citation2", tmp_path)
    assert same_links(read.edges.links, splits)
    assert torch.equal(read.edge_index, tiny_dataset().edge_index)
    assert torch.equal(read.nodes.tables["node_year"], 1990 + torch.arange(NODES))


WRONG: list[tuple[str, dict[str, np.ndarray], str]] = [
    ("ogbl-collab", {"edge": np.zeros((3, 3), int)}, "edge: is int64 [3, 3], expected integers [n, 2]"),
    ("ogbl-collab", {"source_node": np.zeros(3, int)}, "edge: is not among ['source_node']"),
    ("ogbl-collab", {"edge": np.zeros((3, 2))}, "edge: is float64 [3, 2]"),
    ("ogbl-collab", {"edge": np.zeros((3, 2), int), "year": np.zeros(2)}, "year: is float64 [2]"),
    ("ogbl-collab", {"edge": np.full((3, 2), NODES)}, f"node id {NODES}"),
    ("ogbl-citation2", {"source_node": np.zeros(3, int), "target_node": np.zeros(2, int)}, "target_node: is"),
    (
        "ogbl-citation2",
        {
            "source_node": np.zeros(3, int),
            "target_node": np.zeros(3, int),
            "target_node_neg": np.zeros((2, 5), int),
        },
        "target_node_neg: is int64 [2, 5], expected integers [3, n]",
    ),
]


@pytest.mark.parametrize(("name", "content", "fact"), WRONG)
def test_flaws_of_ogb_files_are_named(
    tmp_path: Path, name: str, content: dict[str, np.ndarray], fact: str
) -> None:
    folder, _ = write_ogb_links(tmp_path, name)
    torch.save(content, folder / "split" / "time" / "valid.pt")
    with pytest.raises(DatasetError) as error:
        load_dataset(name, tmp_path)
    assert fact in str(error.value)
    assert not list(folder.glob(".*"))  # nothing half made is left


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    folder, _ = write_ogb_links(tmp_path, "ogbl-citation2")
    (folder / "split" / "time" / "test.pt").unlink()
    with pytest.raises(DatasetNotFoundError, match=r"test.pt"):
        load_dataset("ogbl-citation2", tmp_path)
