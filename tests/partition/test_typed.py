"""Graphs with and without types are partitioned as the obvious partitioner does it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pyg_batchgnn.comm import Communicator
from pyg_batchgnn.data import Dataset, DatasetError
from pyg_batchgnn.partition import partition_parts, read_partition_meta, save_partition, verify_partition
from pyg_batchgnn.partition.load import _Folder
from tests.partition.job_partition import assert_same
from tests.partition.job_typed import owners_everywhere, owners_of
from tests.support.ranks import run_ranks
from tests.support.reference_partition import split_dataset
from tests.support.tiers import fixed, in_all
from tests.support.typed_datasets import CASES, typed_dataset, typed_datasets

JOBS = "tests.partition.job_typed"


@pytest.mark.parametrize("ranks", [*in_all(1), 2, *in_all(4)])
def test_parts_equal_those_of_the_obvious_partitioner(ranks: int) -> None:
    run_ranks(f"{JOBS}:equals_the_obvious", ranks, {"rounds": [1 << 24, 3_000]})


@pytest.mark.parametrize("ranks", [*in_all(1), 3])
def test_streamed_parts_equal_those_of_the_obvious_partitioner(ranks: int) -> None:
    run_ranks(f"{JOBS}:streams", ranks)


def test_the_parts_do_not_depend_on_how_many_ranks_read() -> None:
    run_ranks(f"{JOBS}:any_number_of_parts", 3)


def test_many_relations_take_as_many_rounds_as_few() -> None:
    run_ranks(f"{JOBS}:many_relations", 2)


def test_saved_parts_are_loaded_by_any_number_of_ranks(tmp_path: Path) -> None:
    run_ranks(f"{JOBS}:save", 2, {"folder": str(tmp_path)})
    for ranks in (1, 2, 3):
        run_ranks(f"{JOBS}:load", ranks, {"folder": str(tmp_path)})


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
    values = np.load(alter)
    values[0] ^= 1
    np.save(alter, values)
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
    content = json.loads((saved / "META.json").read_text())
    (tmp_path / "META.json").write_text(json.dumps({**content, key: value}))
    with pytest.raises(DatasetError, match=says):
        read_partition_meta(tmp_path)


def test_memory_is_bounded_by_the_share(tmp_path: Path) -> None:
    """At most twice the share and some rounds of 1 MiB: less than the graph and the share."""
    draw, edges = np.random.default_rng(1), 3_000_000
    counts = {"author": 50_000, "paper": 150_000}
    for folder in ("edge_index", "nodes/paper", "splits/paper"):
        (tmp_path / folder).mkdir(parents=True)
    for source, name in (("author", "writes"), ("paper", "cites")):
        ends = [draw.integers(0, counts[end], edges, dtype=np.int32) for end in (source, "paper")]
        np.save(tmp_path / "edge_index" / f"{source}__{name}__paper.npy", np.stack(ends))
    np.save(tmp_path / "nodes" / "paper" / "x.npy", draw.standard_normal((150_000, 32), dtype=np.float32))
    np.save(tmp_path / "splits" / "paper" / "train.npy", np.arange(0, 150_000, 3))
    job = "tests.partition.job_partition:memory"
    for result in run_ranks(job, 2, {"folder": str(tmp_path), "round_bytes": 1 << 20}):
        share, most = result.value
        whole = 2 * 8 * edges + 4 * 32 * 150_000
        assert most < 2 * share + (16 << 20) < share + whole, (share, most)


def test_streaming_cuts_fewer_edges_and_balances_every_type() -> None:
    found = run_ranks(f"{JOBS}:compare_policies", 2)[0].value
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
