"""Edges held out as links."""

from __future__ import annotations

import builtins
import io
import os
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of_numpy

from pyg_batchgnn.data import (
    Dataset,
    DatasetError,
    DatasetNotFoundError,
    EdgeSet,
    LinkSplit,
    NodeSet,
    check_dataset,
    hold_out_links,
    load_dataset,
    read_folder,
    verify_folder,
    write_folder,
)
from pyg_batchgnn.data.files.npy import read_split_file
from tests.support.tiers import examples
from tests.support.tiny_datasets import (
    EDGES,
    NODES,
    edges,
    equal,
    link_splits,
    pairs,
    tiny_dataset,
    typed_links,
    write_ogb_links,
)

BUYS, BACK = ("user", "buys", "item"), ("item", "rev_buys", "user")


def as_pairs(index: torch.Tensor) -> list[tuple[int, ...]]:
    return [tuple(pair) for pair in index.T.tolist()]


@examples(60)
@given(edges(9), st.floats(0.05, 0.49))
def test_no_pair_is_in_two_places(index: torch.Tensor, share: float) -> None:
    whole = Dataset.homogeneous("h", 9, index, edges={"at": torch.arange(index.size(1))})
    held = hold_out_links(whole, share)
    links = held.edges.links
    undirected = {tuple(sorted(pair)) for pair in as_pairs(index) if pair[0] != pair[1]}
    count = round(share * len(undirected))
    out = [[tuple(sorted(pair)) for pair in as_pairs(links[split].index)] for split in ("val", "test")]
    assert [len(found) for found in out] == [count, count]
    assert len({*out[0], *out[1]}) == 2 * count and undirected.issuperset({*out[0], *out[1]})
    wanted = [tuple(sorted(pair)) not in {*out[0], *out[1]} for pair in as_pairs(index)]
    assert held.edges.tables["at"].tolist() == [at for at, kept in enumerate(wanted) if kept]
    assert torch.equal(held.edge_index, index[:, held.edges.tables["at"]])
    assert torch.equal(links["train"].index, held.edge_index)
    again = hold_out_links(whole, share).edges.links
    assert all(torch.equal(links[split].index, again[split].index) for split in links)


def test_the_reverse_relation_loses_the_same_pairs() -> None:
    buys = EdgeSet(BUYS, torch.cat([pairs(30, 8, 5, 1), torch.tensor([[0], [0]])], dim=1))
    back = EdgeSet(BACK, buys.edge_index.flip(0).clone())
    other = EdgeSet(("user", "knows", "user"), pairs(4, 8, 8, 2))
    whole = Dataset("shop", (NodeSet("user", 8), NodeSet("item", 5)), (buys, back, other))
    held = hold_out_links(whole, 0.2, BUYS, BACK)
    left, links = held.edges_of(BUYS), held.edges_of(BUYS).links
    out = {*as_pairs(links["val"].index), *as_pairs(links["test"].index)}
    assert out and out.isdisjoint(as_pairs(left.edge_index))
    assert torch.equal(held.edges_of(BACK).edge_index, left.edge_index.flip(0))
    assert held.edges_of(other.relation) is other
    for relation, reverse in ((BUYS, BACK), (BACK, BUYS)):  # by their names
        found = hold_out_links(whole, 0.2, relation)
        there, back = (found.edges_of(one).edge_index for one in (relation, reverse))
        assert there.size(1) < buys.edge_index.size(1) and torch.equal(back, there.flip(0))
    assert hold_out_links(whole, 0.2, BUYS, BUYS).edges_of(BACK) is whole.edge_sets[1]
    with pytest.raises(DatasetError, match=r"relation: is not given; name one of user__buys__item"):
        hold_out_links(whole, 0.2)
    with pytest.raises(DatasetError, match="does not lead from item to user"):
        hold_out_links(whole, 0.2, BUYS, other.relation)
    with pytest.raises(DatasetError, match="has links already"):
        hold_out_links(held, 0.2, BUYS)


def test_options_of_load_dataset(tmp_path: Path) -> None:
    write_folder(tiny_dataset(), tmp_path / "tiny")
    wanted = hold_out_links(tiny_dataset(), 0.1)
    for found in (
        load_dataset(f"{tmp_path / 'tiny'}", hold_out=0.1),
        load_dataset("tiny/.:hold_out=0.1,links=node__to__node", tmp_path),
    ):
        assert torch.equal(found.edge_index, wanted.edge_index)
        assert torch.equal(found.edges.links["test"].index, wanted.edges.links["test"].index)
    both = load_dataset(tmp_path / "tiny", undirected="keep", hold_out="0.1")
    assert len(both.edges.links["val"]) == len(wanted.edges.links["val"]) and both.num_nodes == NODES
    for options, fact in (
        ({"hold_out": 0.5}, r"hold_out: is 0\.5"),
        ({"hold_out": "x"}, "give a number"),
        ({"links": "a__b__c"}, "go with hold_out"),
        ({"hold_out": 0.1, "links": "to"}, "give SOURCE__RELATION__TARGET"),
    ):
        with pytest.raises(DatasetError, match=fact):
            load_dataset(tmp_path / "tiny", **options)


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


FLAWS: list[tuple[dict[str, object], str]] = [
    ({"index": torch.zeros(3, 2, dtype=torch.int64)}, "shape is [3, 2], expected [2, any]"),
    ({"index": torch.full((2, 4), NODES)}, f"node id {NODES}"),
    ({"negatives": torch.full((2, 1), -1)}, "node id -1"),
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


@pytest.mark.parametrize(
    ("name", "is_zip", "attribute"),
    [
        ("ogbl-collab", True, torch.arange(EDGES).repeat(2)),
        ("ogbl-collab", False, torch.arange(EDGES).repeat(2)),
        ("ogbl-citation2", True, 1990 + torch.arange(NODES)),
    ],
)
def test_ogbs_links(tmp_path: Path, name: str, is_zip: bool, attribute: torch.Tensor) -> None:
    _, splits = write_ogb_links(tmp_path, name, is_zip=is_zip)
    read, index = load_dataset(name, tmp_path), tiny_dataset().edge_index
    assert same_links(read.edges.links, splits)
    both = torch.cat([index, index.flip(0)], dim=1) if name == "ogbl-collab" else index
    assert torch.equal(read.edge_index, both)
    found = read.edges.tables if name == "ogbl-collab" else read.nodes.tables
    assert torch.equal(found["edge_weight" if name == "ogbl-collab" else "node_year"], attribute)
    assert read.num_classes == 0 and "y" not in read.nodes.tables
    assert same_links(load_dataset(name, tmp_path).edges.links, splits)  # not converted again


WRONG: list[tuple[str, dict[str, np.ndarray], str]] = [
    ("ogbl-collab", {"edge": np.zeros((3, 3), int)}, "edge: is int64 [3, 3], expected integers [n, 2]"),
    ("ogbl-collab", {"source_node": np.zeros(3, int)}, "edge: is not among ['source_node']"),
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


KINDS = st.one_of(
    arrays_of_numpy.integer_dtypes(), arrays_of_numpy.unsigned_integer_dtypes(),
    arrays_of_numpy.floating_dtypes(sizes=(16, 32, 64)), arrays_of_numpy.boolean_dtypes(),
)  # fmt: skip
SHAPES = arrays_of_numpy.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=3)
ARRAYS = KINDS.flatmap(lambda kind: arrays_of_numpy.arrays(kind, SHAPES))
GOOD = {"edge": np.arange(6).reshape(3, 2), "year": np.array([2001, 2002, 2003], np.int32)}


def same(left: dict[str, np.ndarray], right: dict[str, np.ndarray]) -> bool:
    """Returns whether arrays are equal bit for bit, in this machine's order of bytes."""
    native = {name: values.astype(values.dtype.newbyteorder("=")) for name, values in right.items()}
    return left.keys() == native.keys() and all(
        left[name].dtype == native[name].dtype
        and left[name].shape == native[name].shape
        and left[name].tobytes() == native[name].tobytes()
        for name in left
    )


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("splits") / "train.pt"


@examples(25)
@given(found=st.dictionaries(st.text(max_size=5), ARRAYS, max_size=3), transposed=st.booleans())
@pytest.mark.parametrize("is_zip", [True, False])
def test_arrays_come_back(path: Path, is_zip: bool, found: dict[str, np.ndarray], transposed: bool) -> None:
    if transposed:
        found = {name: values.T for name, values in found.items()}
    torch.save(found, path, _use_new_zipfile_serialization=is_zip)
    assert same(read_split_file(path), found)


@pytest.mark.parametrize("name", ["numpy.core.multiarray", "numpy._core.multiarray"])
def test_files_of_old_and_new_numpy(path: Path, name: str) -> None:
    stream = io.BytesIO()
    torch.save(GOOD, stream, _use_new_zipfile_serialization=False)
    here = np.array([0]).__reduce__()[0].__module__.encode()
    path.write_bytes(stream.getvalue().replace(here, name.encode()))
    assert same(read_split_file(path), GOOD)


class Calls:
    """An object whose pickle calls something."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self.call = function, arguments

    def __reduce__(self) -> Any:
        return self.call


REFUSED: dict[str, Any] = {
    "os.system": Calls(os.system, "touch pwned"),
    "eval": Calls(eval, "open('pwned', 'w')"),
    "getattr of an array's module": Calls(getattr, np.ndarray, "tofile"),
    "open": Calls(builtins.open, "pwned", "w"),
    "import": Calls(__import__, "antigravity"),
    "numpy.load": Calls(np.load, "pwned", None, True),
    "objects": np.array([Calls(os.system, "touch pwned"), None], dtype=object),
    "structure": np.zeros(2, [("a", "i4"), ("b", "O")]),
    "times": np.zeros(2, "datetime64[s]"),
    "texts": np.array(["a", "b"]),
    "complex": np.zeros(2, np.complex128),
    "a scalar": np.float64(1.0),
    "a tensor": torch.ones(2),
    "a class": Path,
    "numbers": [1, 2],
    "a dict": {"a": GOOD["edge"]},
}


@pytest.mark.parametrize("is_zip", [True, False])
@pytest.mark.parametrize("name", REFUSED)
def test_whatever_else_is_in_a_file_is_refused_and_nothing_runs(
    name: str, is_zip: bool, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for content in (REFUSED[name], {"edge": REFUSED[name]}, {"a": [{"b": (REFUSED[name],)}]}):
        if content is REFUSED["a dict"]:
            continue
        torch.save(content, path, _use_new_zipfile_serialization=is_zip)
        with pytest.raises(DatasetError, match=r"train.pt: train: not a dict of NumPy arrays"):
            read_split_file(path)
    assert not list(tmp_path.iterdir())


@examples(100)
@given(data=st.data())
@pytest.mark.parametrize("is_zip", [True, False])
def test_damaged_files_give_arrays_or_an_error(path: Path, is_zip: bool, data: st.DataObject) -> None:
    stream = io.BytesIO()
    torch.save(GOOD, stream, _use_new_zipfile_serialization=is_zip)
    content = bytearray(stream.getvalue())
    for _ in range(data.draw(st.integers(0, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content[: data.draw(st.integers(0, len(content)))])
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = read_split_file(path)
        assert all(isinstance(values, np.ndarray) for values in found.values())
    except DatasetError as error:
        assert str(path) in str(error)
