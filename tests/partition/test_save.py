"""Parts, and saved ones: loaded by any number of ranks, and refused where damaged."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from pyg_batchgnn.comm import Communicator
from pyg_batchgnn.data import EDGES, NODES, DatasetError, Group, RowKind
from pyg_batchgnn.data.files import file_sha256
from pyg_batchgnn.partition import (
    Part,
    PartitionBook,
    is_partition,
    load_partition,
    partition_parts,
    save_partition,
    verify_partition,
)
from pyg_batchgnn.partition.folder_meta import read_partition_meta
from pyg_batchgnn.partition.load import _Folder, balanced_offsets
from tests.partition import job_partition
from tests.partition.job_partition import graph, with_splits
from tests.support.damaged_folders import Attack, holds, said
from tests.support.ranks import run_ranks
from tests.support.reference_partition import book_of, internal_ids_by_type, typed_parts
from tests.support.tiers import fixed
from tests.support.tiny_datasets import equal, flip_byte
from tests.support.typed_graphs import SCHEMAS, TypedCase, typed_cases


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with Communicator.create("alone") as comm:
        parts = partition_parts(graph(1, 30, 100), "random", 2, comm=comm)
        return save_partition(parts, tmp_path_factory.mktemp("saved") / "parts", comm)


def test_parts_that_are_cut_anew_share_the_training_nodes(tmp_path: Path) -> None:
    """They are the first quarter of ids: by nodes and edges, two of six ranks would have them."""
    whole = graph(1, 600, 6000)
    dataset = with_splits(whole, {"train": torch.arange(150)})
    with Communicator.create("alone") as comm:
        parts = partition_parts(dataset, "contiguous", 2, comm=comm)
        folder = save_partition(parts, tmp_path / "parts", comm)
    meta = read_partition_meta(folder)
    found = [_Folder(folder, meta).part(rank, 6) for rank in range(6)]
    train = [len(part.split("train")) for part in found]
    assert sum(train) == 150 and max(train) <= 3 * 150 / 6 and min(train[:2]) > 0
    assert max(part.num_nodes for part in found) <= 3 * 600 / 6
    originals = torch.cat([part.node[part.split("train")] for part in found])
    assert torch.equal(originals.sort().values, torch.arange(150))
    assert balanced_offsets(7, [lambda end: 0 * end], 2) == [0, 3, 7]  # where nothing weighs anything


def test_a_part_is_mapped_not_read(saved: Path) -> None:
    with Communicator.create("alone") as comm:
        part = load_partition(saved, comm)
        before = file_sha256(saved / "part-00000" / "nodes" / "x.npy")
        part.attributes[NODES]["x"].zero_()  # a copy of two parts' tables, for one rank
        assert file_sha256(saved / "part-00000" / "nodes" / "x.npy") == before
        assert verify_partition(saved) == 2 * 17 and is_partition(saved)
        assert part.num_nodes == 30 and part.in_edges.indices.numel() == 100


@pytest.mark.parametrize("how", ["saved", "cut anew"])
def test_every_attribute_is_saved_with_its_type(how: str, tmp_path: Path) -> None:
    """bfloat16, 64-bit times, booleans, rows of several dimensions, of nodes and of edges."""
    dataset = graph(1, 30, 100)
    with Communicator.create("alone") as comm:
        parts = partition_parts(dataset, "random", 1 if how == "saved" else 3, comm=comm)
        part = load_partition(save_partition(parts, tmp_path / "parts", comm), comm)
    order = {NODES: part.node, EDGES: part.in_edges.explicit_edge_ids()}
    for found in dataset.sets:
        assert part.attributes[found.group].keys() == found.tables.keys()
        for name, table in found.tables.items():
            assert equal(part.attributes[found.group][name], table[order[found.group].long()])


def test_all_is_on_disk_before_a_partition_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced, fsync = set(), os.fsync

    def note(handle: int) -> None:
        if not (tmp_path / "parts").exists():
            synced.add(Path(f"/proc/self/fd/{handle}").resolve())
        fsync(handle)

    monkeypatch.setattr(os, "fsync", note)
    with Communicator.create("alone") as comm:
        save_partition(partition_parts(graph(1, 30, 100), "random", 2, comm=comm), tmp_path / "parts", comm)
    files = {path.relative_to(tmp_path / "parts") for path in (tmp_path / "parts").rglob("*")}
    assert files | {Path()} == {path.relative_to(tmp_path / ".parts.partial") for path in synced}


def entry(array: str, value: int) -> Attack:
    """An entry has another value, and its array has a checksum of that."""
    return holds(array, lambda old: np.where(np.arange(len(old)) == 1, value, old))


@pytest.mark.parametrize(
    ("attack", "says"),
    [
        *(
            (
                lambda folder, file=f"part-00001/{array}.npy", harm=harm: harm(folder / file),
                f"{array}.npy: .*{says}",
            )
            for array in ("node", "indptr", "nodes/x", "splits/train")
            for harm, says in ((flip_byte, "sha256"), (Path.unlink, "does not exist"))
        ),
        *((entry("part-00001/indices", value), f"indices.* {value}") for value in (30, -1)),
        *(
            (entry(f"part-00001/{array}", 7_000), array)
            for array in ("edge_ids", "node", "directory", "indptr")
        ),
        (said("format", value="pyg_batchgnn.dataset"), "META.json.*holds something else"),
        (said("version", value=99), "META.json.*this release reads"),
        (said("offsets", value=[0, 40, 30]), "META.json.*damaged"),
        (said("offsets", value=[0, 10, 30]), "META.json.*expected"),
        (said("num_edges", value=99), "META.json.*the parts have 100 edges"),
        (said("arrays", value={}), "META.json.*expected"),
        (said("arrays", value=3), "META.json: arrays: missing or not an object"),
    ],
)
def test_damage_is_named(attack: Attack, says: str, saved: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(saved, tmp_path / "parts"))
    attack(folder)
    with Communicator.create("alone") as comm, pytest.raises(DatasetError, match=says):
        load_partition(folder, comm)


def test_damage_that_one_rank_sees_is_told_to_all(saved: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(saved, tmp_path / "parts"))
    flip_byte(folder / "part-00001" / "nodes" / "x.npy")
    for result in run_ranks(job_partition.load_damaged, 2, {"folder": str(folder)}):
        assert "nodes/x" in result.value[0] and "(rank 1)" in result.value[0]


def test_what_could_not_be_written_is_taken_away(saved: Path, tmp_path: Path) -> None:
    with Communicator.create("alone") as comm:
        parts = partition_parts(graph(1, 30, 100), "random", 2, comm=comm)
        parts[1].attributes[NODES]["long" * 100] = torch.zeros(parts[1].num_nodes)
        with pytest.raises(DatasetError, match="longlong"):
            save_partition(parts, tmp_path / "parts", comm)
    assert not list(tmp_path.iterdir())
    with Communicator.create("alone") as comm, pytest.raises(DatasetError, match="does not exist"):
        load_partition(tmp_path, comm)


SIZES = st.lists(st.lists(st.integers(0, 4), min_size=3, max_size=3), min_size=1, max_size=5)


@given(SIZES)
def test_owners_and_types_are_those_of_the_ranges(sizes: list[list[int]]) -> None:
    flat = [size for part in sizes for size in part]
    book = PartitionBook([0, *torch.tensor(flat).cumsum(0).tolist()], 3)
    wanted = [
        (part, of) for part, row in enumerate(sizes) for of, size in enumerate(row) for _ in range(size)
    ]
    nodes = torch.arange(sum(flat), dtype=torch.int32)
    assert list(zip(book.owner(nodes).tolist(), book.type_of(nodes).tolist(), strict=True)) == wanted
    assert (book.parts, book.num_nodes, book.sizes.tolist()) == (len(sizes), sum(flat), sizes)
    ranges = [book.nodes_of(part, of) for part in range(book.parts) for of in range(3)]
    assert [node for one in ranges for node in one] == list(range(sum(flat)))
    assert [node for part in range(book.parts) for node in book.nodes_of(part)] == list(range(sum(flat)))
    assert [book.num_nodes_of(of) for of in range(3)] == torch.tensor(sizes).sum(0).tolist()


def test_books_of_other_types_differ() -> None:
    one, two = PartitionBook([0, 2, 4]), PartitionBook([0, 2, 4], 2)
    assert one != two and one.digest != two.digest and two == PartitionBook([0, 2, 4], 2)
    with pytest.raises(ValueError, match="3 offsets do not fit 3 node types"):
        PartitionBook([0, 2, 4], 3)


def owners_of(case: TypedCase, parts: int, seed: int) -> list[Tensor]:
    draw = torch.Generator().manual_seed(seed)
    low = seed % parts  # the parts below own nothing
    return [torch.randint(low, parts, (count,), generator=draw) for count in case.num_nodes.values()]


@fixed(25)
@given(st.data(), st.integers(1, 4), st.integers(0, 99))
def test_parts_hold_every_node_and_edge_once_and_in_order(data: st.DataObject, parts: int, seed: int) -> None:
    case = data.draw(typed_cases())
    owners, schema = owners_of(case, parts, seed), case.schema
    found = typed_parts(case.graph(), owners, parts, {schema.node_groups[0]: {"own": torch.arange(100)}})
    book = book_of(owners, parts)
    internal = internal_ids_by_type(owners, book)
    for number, owner in enumerate(owners):
        assert torch.equal(book.owner(internal[number]), owner)
        assert bool((book.type_of(internal[number]) == number).all())
    original = torch.cat([part.node for part in found])
    for number, relation in enumerate(schema.relations):
        edges = torch.full_like(case.edge_index[relation].long(), -1)
        for part in found:
            one = part.owned_edges_of(number)
            ids = one.in_edges.explicit_edge_ids()
            assert bool((book.type_of(one.in_edges.indices) == schema.source_types[number]).all())
            edges[0, ids] = original[one.in_edges.indices.long()]
            edges[1, ids] = one.node.repeat_interleave(one.in_edges.degrees)
            assert one.num_edges == edges.shape[1] and part.in_edges_of(relation) is one.in_edges
        assert torch.equal(edges, case.edge_index[relation].long())
    for part in found:
        part.check()
        for number in range(schema.num_types):
            own, ids = part.directory_of(number)
            assert torch.equal(ids.long(), internal[number][own.start : own.stop])
            assert torch.equal(original[part.nodes_of(number)], part.original_ids(number))


@pytest.fixture
def typed() -> Part:
    schema = SCHEMAS[3]
    counts = dict(zip(schema.node_types, (5, 7, 3, 0), strict=True))
    edges = {relation: torch.tensor([[0, 1, 2], [2, 0, 2]]) for relation in schema.relations}
    case = TypedCase(schema, counts, edges, {}, {})
    return typed_parts(case.graph(), owners_of(case, 1, 0), 1)[0]


def test_accessors_of_homogeneous_graphs_say_what_to_read(typed: Part) -> None:
    for name, instead in (("in_edges", "in_edges_of"), ("owned_edges", "owned_edges_of")):
        with pytest.raises(AttributeError, match=rf"'{name}' can be read .* read part\.{instead}\("):
            getattr(typed, name)
    with pytest.raises(AttributeError, match="'split' can be read"):
        typed.split("train")
    assert typed.split("train", "paper").numel() == 0
    assert typed.num_edges == sum(edges.num_edges for edges in typed.relations)


def test_a_part_that_does_not_fit_its_schema(typed: Part) -> None:
    with pytest.raises(ValueError, match="came with a book of 1 types"):
        replace(typed, book=PartitionBook(typed.book.part_offsets)).check()
    with pytest.raises(ValueError, match="5 lists of in-edges and 1 numbers"):
        replace(typed, edge_counts=(3,)).check()
    with pytest.raises(ValueError, match="attributes of venue came, which is not in the schema"):
        replace(typed, attributes={Group(RowKind.NODE, "venue"): {}}).check()


@pytest.mark.parametrize("offsets", [[], [0], [1, 2], [0, 3, 2], [-1, 4]])
def test_a_book_that_cannot_be(offsets: list[int]) -> None:
    with pytest.raises(ValueError, match="must ascend from 0"):
        PartitionBook(offsets)
