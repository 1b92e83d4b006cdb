"""Graphs with and without types are partitioned as the obvious partitioner does it."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from pyg_batchgnn.comm import Communicator
from pyg_batchgnn.data import Dataset, DatasetError, EdgeSet
from pyg_batchgnn.partition import (
    Neighbours,
    PartCounts,
    PartitionBook,
    Score,
    Streaming,
    StreamState,
    load_partition,
    move,
    partition,
    partition_parts,
    read_partition_meta,
    report_partition,
    save_partition,
    stream,
    verify_partition,
)
from pyg_batchgnn.partition.load import _Folder
from pyg_batchgnn.partition.stream import random_owner
from tests.partition import job_partition
from tests.partition.job_partition import CASES as PLAIN
from tests.partition.job_partition import (
    assert_same,
    contiguous_owner,
    graph,
    owners_everywhere,
    typed_communities,
)
from tests.support.damaged_folders import said
from tests.support.ranks import run_ranks
from tests.support.reference_partition import graph_of, orders_of, part_in_order, split_dataset
from tests.support.tiers import ALL, fixed, in_all
from tests.support.tiny_datasets import flip_byte
from tests.support.typed_datasets import CASES, typed_dataset, typed_datasets


def data_sets() -> list[Dataset]:
    typed = [typed_dataset(*case) for case in (CASES if ALL else CASES[:2])]
    return typed + [
        graph(seed, nodes, edges, skew=skew, attributes=seed % 4 != 0) for seed, nodes, edges, skew in PLAIN
    ]


#: Numbers of parts, besides that of the ranks.
PARTS = (1, 3, 6) if ALL else (1, 3)


def owners_of(dataset: Dataset, policy: str, parts: int, seed: int) -> list[Tensor]:
    found = []
    for number, nodes in enumerate(dataset.node_sets):
        if policy == "random":
            name = None if dataset.schema.num_types == 1 else nodes.name
            found.append(random_owner(torch.arange(nodes.num_nodes), parts, seed, name).long())
        else:
            into = [dataset.edge_sets[one].edge_index[1] for one in dataset.schema.relations_into[number]]
            targets = torch.cat([torch.empty(0, dtype=torch.int64), *into])
            found.append(contiguous_owner(targets, nodes.num_nodes, parts))
    return found


def by_remainder(node: Tensor, found: Neighbours, state: StreamState) -> Tensor:
    assert found.indptr.numel() == node.numel() + 1
    known = found.owner >= 0
    wanted = (found.node + found.node_type) % state.parts
    assert torch.equal(found.owner[known].long(), wanted[known].long())
    number = state.schema.type_number(state.node_type)
    sources = {state.schema.source_types[one] for one in state.schema.relations_into[number]}
    assert set(found.node_type.tolist()) <= sources
    assert state.load.sum(1).le(state.total).all() and len(state.train) == len(node)
    return (node + number) % state.parts


def equals_the_obvious(comm: Communicator, rounds: list[int]) -> None:
    for round_bytes in rounds:
        move.ROUND_BYTES = round_bytes
        numbers = {comm.size, *PARTS} if round_bytes == max(rounds) else {comm.size}
        for dataset in data_sets():
            if dataset.num_edges > 1000 and round_bytes < 10_000:
                continue
            for policy, parts in itertools.product(("random", "contiguous"), sorted(numbers)):
                found = partition_parts(dataset, policy, parts, comm=comm, seed=7)
                run = range(comm.rank * parts // comm.size, (comm.rank + 1) * parts // comm.size)
                assert [part.number for part in found] == list(run)
                owners = owners_of(dataset, policy, parts, 7)
                for part in found:
                    assert_same(part, split_dataset(dataset, owners, parts, part.number))


def other_owners(comm: Communicator) -> None:
    stream._EDGES = 64  # several pieces even here
    for number, dataset in enumerate(data_sets()):
        for policy in ("ldg", Streaming(score=Score.FENNEL, passes=1), by_remainder, "multilevel"):
            part = partition(dataset, policy, comm=comm, seed=7)
            if number == 0:
                assert torch.equal(partition(dataset, policy, comm=comm, seed=7).node, part.node)
            owners = owners_everywhere([part], comm)
            assert_same(part, split_dataset(dataset, owners, comm.size, comm.rank))
            if policy is by_remainder:
                for at, owner in enumerate(owners):
                    assert torch.equal(owner, (torch.arange(owner.numel()) + at) % comm.size)


def many_relations(comm: Communicator) -> None:
    whole = typed_communities()
    owners, rounds = list[list[Tensor]](), list[int]()
    for dataset in (whole, in_relations(whole, 24)):
        comm.counters.reset()
        part = partition(dataset, "multilevel", comm=comm)
        rounds.append(comm.counters.snapshot().total.count_rounds)
        owners.append(owners_everywhere([part], comm))
        assert_same(part, split_dataset(dataset, owners[-1], comm.size, comm.rank))
    assert all(map(torch.equal, *owners))
    assert rounds[0] == rounds[1]


def in_relations(dataset: Dataset, count: int) -> Dataset:
    spread = [
        EdgeSet((one.relation[0], f"{one.relation[1]}_{at}", one.relation[2]), one.edge_index[:, at::count])
        for one in dataset.edge_sets
        for at in range(count)
    ]
    return Dataset("in relations", dataset.node_sets, tuple(spread))


def save(comm: Communicator, folder: str) -> None:
    for parts in PARTS:
        for dataset in data_sets()[::2]:
            found = partition_parts(dataset, "random", parts, comm=comm, seed=7)
            path = Path(folder, f"{parts} {dataset.name}")
            assert save_partition(found, path, comm, {"policy": "random"}) == path
    assert not [path for path in Path(folder).iterdir() if path.name.startswith(".")]
    with pytest.raises(DatasetError, match="exists already"):
        save_partition([], path, comm)


def load(comm: Communicator, folder: str) -> None:
    for parts in PARTS:
        for dataset in data_sets()[::2]:
            path = Path(folder, f"{parts} {dataset.name}")
            found = load_partition(path, comm)
            found.check()
            orders = orders_of(owners_of(dataset, "random", parts, 7))
            tables = {one.group: one.tables for one in dataset.sets}
            splits = {nodes.group: nodes.splits for nodes in dataset.node_sets}
            graph = graph_of(dataset)
            assert_same(found, part_in_order(graph, orders, found.book, comm.rank, tables, splits))
            if parts == comm.size:
                saved = PartitionBook(read_partition_meta(path).book.offsets, dataset.schema.num_types)
                assert found.book == saved


def compare_policies(comm: Communicator) -> dict[str, dict[str, float]]:
    dataset, found = typed_communities(), {}
    for policy in ("random", "contiguous", "ldg", "fennel"):
        part = partition(dataset, policy, comm=comm)
        report = report_partition(part, comm)
        owners = owners_everywhere([part], comm)
        for name in dataset.schema.node_types:
            counts = report.types[name][comm.rank]
            assert counts == counted(dataset, owners, name, comm.rank), (policy, name, counts)
        of = ("nodes", "edges", "train")
        found[policy] = {
            name: max(report.balance(one, name) for one in of) for name in dataset.schema.node_types
        }
        found[policy]["cut"] = report.edge_cut
    return found


def counted(dataset: Dataset, owners: Sequence[Tensor], name: str, rank: int) -> PartCounts:
    schema = dataset.schema
    own, edges, cut, halo = owners[schema.type_number(name)] == rank, 0, 0, []
    for source, target, one in zip(schema.source_types, schema.target_types, dataset.edge_sets, strict=True):
        here = owners[target][one.edge_index[1].long()] == rank
        away = here & (owners[source][one.edge_index[0].long()] != rank)
        if schema.node_types[target] == name:
            edges, cut = edges + int(here.sum()), cut + int(away.sum())
        if schema.node_types[source] == name:
            halo.append(one.edge_index[0][away])
    train = int(own[dataset.split("train", name)].sum())
    return PartCounts(int(own.sum()), edges, train, cut, torch.cat(halo).unique().numel())


@pytest.mark.parametrize("ranks", [*in_all(1), 2, *in_all(4)])
def test_parts_equal_those_of_the_obvious_partitioner(ranks: int) -> None:
    run_ranks(equals_the_obvious, ranks, {"rounds": [1 << 24, 3_000]})


@pytest.mark.parametrize("ranks", [*in_all(1, 3), 2])
def test_parts_of_other_owners_equal_those_of_the_obvious_partitioner(ranks: int) -> None:
    run_ranks(other_owners, ranks)


def test_many_relations_take_as_many_rounds_as_few() -> None:
    run_ranks(many_relations, 2)


def test_saved_parts_are_loaded_by_any_number_of_ranks(tmp_path: Path) -> None:
    run_ranks(save, 2, {"folder": str(tmp_path)})
    for ranks in (1, 2, 3):
        run_ranks(load, ranks, {"folder": str(tmp_path)})


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with Communicator.create("alone") as comm:
        parts = partition_parts(typed_dataset(*CASES[0]), "random", 2, comm=comm)
        return save_partition(parts, tmp_path_factory.mktemp("saved") / "parts", comm)


def test_parts_are_mapped_and_verified(saved: Path) -> None:
    meta = read_partition_meta(saved)
    assert meta.schema == CASES[0][1]
    assert verify_partition(saved) == len(list(saved.rglob("*.npy")))
    found = _Folder(saved, meta).part(1, 2)
    before = found.relations[0].indices.clone()
    file = saved / "part-00001" / "indices" / "author__writes__paper.npy"
    assert torch.equal(torch.from_numpy(np.load(file)), before)
    alter = shutil.copytree(saved, saved.parent / "altered") / file.relative_to(saved)
    flip_byte(alter)
    with pytest.raises(DatasetError, match=r"author__writes__paper\.npy: .*sha256"):
        verify_partition(saved.parent / "altered")


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("num_edges", [1], "has 1 numbers for 5 relations"),
        ("num_edges", [200, 200, 300, 50, 7], "of field__rev_has_topic"),
        ("node_types", ["author"], "damaged"),
        ("relations", [["author", "paper"]], "damaged"),
        ("offsets", [0, 54, 108], "damaged"),
    ],
)
def test_a_damaged_meta_is_named(saved: Path, tmp_path: Path, key: str, value: object, says: str) -> None:
    shutil.copy(saved / "META.json", tmp_path)
    said(key, value=value)(tmp_path)
    with pytest.raises(DatasetError, match=says):
        read_partition_meta(tmp_path)


def test_memory_is_bounded_by_the_share(tmp_path: Path) -> None:
    draw, edges = np.random.default_rng(1), 1_000_000
    counts = {"author": 50_000, "paper": 150_000}
    for folder in ("edge_index", "nodes/paper", "splits/paper"):
        (tmp_path / folder).mkdir(parents=True)
    for source, name in (("author", "writes"), ("paper", "cites")):
        ends = [draw.integers(0, counts[end], edges, dtype=np.int32) for end in (source, "paper")]
        np.save(tmp_path / "edge_index" / f"{source}__{name}__paper.npy", np.stack(ends))
    np.save(tmp_path / "nodes" / "paper" / "x.npy", draw.standard_normal((150_000, 32), dtype=np.float32))
    np.save(tmp_path / "splits" / "paper" / "train.npy", np.arange(0, 150_000, 3))
    for result in run_ranks(job_partition.memory, 2, {"folder": str(tmp_path), "round_bytes": 1 << 19}):
        share, most = result.value
        whole = 2 * 8 * edges + 4 * 32 * 150_000
        assert most < 2 * share + (8 << 20) < share + whole, (share, most)


def test_streaming_cuts_fewer_edges_and_balances_every_type() -> None:
    found = run_ranks(compare_policies, 2)[0].value
    for policy in ("ldg", "fennel"):
        assert found[policy]["cut"] < 0.6 * found["random"]["cut"], found
        assert max(found[policy]["user"], found[policy]["item"]) < 1.1, found
    assert found["contiguous"]["user"] < 1.1, found


@fixed(40)
@given(typed_datasets(), st.integers(1, 4), st.sampled_from(["random", "contiguous", "ldg", "fennel"]))
def test_random_graphs(dataset: Dataset, parts: int, policy: str) -> None:
    with Communicator.create("alone") as comm:
        found = partition_parts(dataset, policy, parts, comm=comm, seed=3)
        owners = owners_everywhere(found, comm)
    if policy in ("random", "contiguous"):
        for owner, wanted in zip(owners, owners_of(dataset, policy, parts, 3), strict=True):
            assert owner.tolist() == wanted.tolist()
    for part in found:
        part.check()
        assert_same(part, split_dataset(dataset, owners, parts, part.number))
