"""Stores over ranks hold what the whole graph holds."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from unittest import mock

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.comm import Communicator
from pyg_batchgnn.data import EDGES, NODES
from pyg_batchgnn.partition import Part, is_partition, load_partition, partition_parts, save_partition
from pyg_batchgnn.store import (
    CscGraph,
    DistFeatureStore,
    OwnRowFinder,
    own_sums,
    replicate_attribute,
    replicate_topology,
    sum_weights,
)
from tests.partition.job_partition import graph
from tests.support.leftovers import nothing_is_left
from tests.support.ranks import run_ranks
from tests.support.reference_partition import Tables, book_of, part_in_order, typed_part
from tests.support.thread_ranks import run_threads
from tests.support.tiers import each, in_all

# Dist #############################################################################################

JOBS = "tests.store.job_dist"


@pytest.mark.parametrize(
    ("ranks", "hosts"), [*in_all((1, [0])), (2, [0, 1]), (3, [0, 1, 1]), *in_all((4, [0, 1, 0, 2]))], ids=str
)
@pytest.mark.parametrize("job", ["writes"])
def test_what_ranks_hold_together_is_the_whole_graph(job: str, ranks: int, hosts: Sequence[int]) -> None:
    run_ranks(f"{JOBS}:{job}", ranks, hosts=hosts)


@pytest.mark.parametrize("job", ["dtypes", "refusals", "no_columns"])
def test_two_ranks(job: str) -> None:
    run_ranks(f"{JOBS}:{job}", 2)


# Hybrid ###########################################################################################


@pytest.mark.parametrize(
    ("hosts", "round_bytes"), [*in_all(([0], 1 << 24)), ([0, 0, 1], 3_000), *in_all(([0, 1, 0, 1], 1 << 24))]
)
def test_every_rank_reads_the_whole_topology(hosts: list[int], round_bytes: int) -> None:
    run_ranks("tests.store.job_hybrid:everywhere", len(hosts), {"round_bytes": round_bytes}, hosts=hosts)


# Typed ############################################################################################

TYPED_JOBS = "tests.store.job_typed"


@pytest.mark.parametrize("ranks", [*in_all(1), 3])
@pytest.mark.parametrize("job", ["reads_and_writes", "rows_of_all_groups", "lookups"])
def test_stores(job: str, ranks: int) -> None:
    run_ranks(f"{TYPED_JOBS}:{job}", ranks)


# Rank faults ######################################################################################

# A rank is killed or stopped while parts are written, read again or shared.
#
# The others end with an error that names it, and nothing is left behind.


TIMEOUT = 8.0  # for starting, too: a machine may stand still for seconds


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two parts, which three ranks cut anew."""
    folder = tmp_path_factory.mktemp("saved")
    with Communicator.create("alone") as comm:
        save_partition(partition_parts(graph(1, 300, 3000), "random", 2, comm=comm), folder / "parts", comm)
    return folder


@each
@pytest.mark.parametrize("stage", ["save", "load", "topology", "tables"])
@pytest.mark.parametrize(("how", "text"), [("kill", "no longer exists"), ("stop", "is stopped")])
def test_the_others_name_the_rank(saved: Path, how: str, text: str, stage: str) -> None:
    before = {path: path.stat().st_mtime_ns for path in saved.rglob("*")}
    arguments = {"how": how, "stage": stage, "victim": 1, "timeout": TIMEOUT}
    arguments["folder"] = str(saved / "parts" if stage == "load" else saved)
    never = [1] if how == "stop" else []
    with nothing_is_left():
        results = run_ranks("tests.store.job_rank_faults:fault", 3, arguments, never_end=never, check=False)
    for result in (results[0], results[2]):
        assert result.code == 0, result.stderr
        assert result.value["error"] == "PeerError", result.value
        assert re.search(rf"rank 1 .*{text}", result.value["text"]), result.value["text"]
        # One wait, not two; and the ranks of a host wait 5 s for a line to one of them.
        assert result.value["seconds"] < 2 * TIMEOUT + 5
    assert {path: path.stat().st_mtime_ns for path in saved.rglob("*")} == before


def test_what_a_save_left_whose_ranks_all_died_is_no_partition(tmp_path: Path) -> None:
    """It is hidden and has no META.json; the next save removes it."""
    half = tmp_path / ".parts.partial"
    (half / "part-00000").mkdir(parents=True)
    (half / "part-00007").mkdir()
    assert not is_partition(half)
    with Communicator.create("alone") as comm:
        found = partition_parts(graph(1, 300, 3000), "random", 2, comm=comm)
        save_partition(found, tmp_path / "parts", comm)
        assert [path.name for path in tmp_path.iterdir()] == ["parts"]
        assert load_partition(tmp_path / "parts", comm).num_nodes == 300


# Rank weights #####################################################################################

#: A graph of as many edges as nodes.
GRAPH = CscGraph.from_edge_index(torch.tensor([[0, 1, 2, 3], [1, 1, 3, 3]]), 4).typed
RANKS = 2


def sums_of_rank(comm: Communicator, tables: Tables, hybrid: bool) -> Tensor:
    """Returns the sums of weights of the in-edges that a rank has, which are all if hybrid."""
    part = typed_part(GRAPH, [torch.tensor([0, 0, 1, 1])], RANKS, comm.rank, tables)
    store = DistFeatureStore(part, comm)
    if hybrid:
        graph = replicate_topology(part, comm).graph
        (sums,) = sum_weights("w", replicate_attribute(store, "w"), graph, [None])
    else:
        (sums,) = own_sums(store, "w", [None])
    assert sums is not None
    return sums.sums


@pytest.mark.parametrize("hybrid", [False, True])
def test_weights_of_nodes_are_none_of_edges_where_there_are_as_many(hybrid: bool) -> None:
    weight = torch.tensor([0.5, 0.25, 1.0, 2.0])
    with pytest.raises(ValueError, match=r"'w' is no attribute of edges; nodes have it \(node\)"):
        run_threads(lambda comm: sums_of_rank(comm, {NODES: {"w": weight}}, hybrid), RANKS)


@pytest.mark.parametrize("hybrid", [False, True])
def test_weights_are_those_of_edges_where_nodes_have_the_attribute_too(hybrid: bool) -> None:
    tables = {NODES: {"w": torch.zeros(4)}, EDGES: {"w": torch.tensor([0.5, 0.25, 1.0, 2.0])}}
    found = run_threads(lambda comm: sums_of_rank(comm, tables, hybrid), RANKS)
    wanted = [0.5, 0.75, 1.0, 3.0]
    assert [own.tolist() for own in found] == ([wanted] * 2 if hybrid else [wanted[:2], wanted[2:]])


# Own rows #########################################################################################

LOOKED_UP, OWNERS = 9, 3


def part_of(owner: Tensor, order: Tensor, rank: int) -> Part:
    """Returns a rank's part of a graph without edges, whose nodes are in any order."""
    graph = CscGraph.from_edge_index(torch.empty(2, 0, dtype=torch.int64), LOOKED_UP).typed
    return part_in_order(graph, [order], book_of([owner], OWNERS), rank)


@given(
    owner=st.lists(st.integers(0, OWNERS - 1), min_size=LOOKED_UP, max_size=LOOKED_UP).map(torch.tensor),
    shuffled=st.permutations(range(LOOKED_UP)).map(torch.tensor),
    ascends=st.booleans(),
    asked=st.lists(st.integers(0, LOOKED_UP - 1), max_size=12),
)
def test_nodes_are_found_in_any_order(
    owner: Tensor, shuffled: Tensor, ascends: bool, asked: list[int]
) -> None:
    before = torch.arange(LOOKED_UP) if ascends else shuffled
    order = before[torch.argsort(owner[before], stable=True)]
    for rank in range(OWNERS):
        part = part_of(owner, order, rank)
        own = part.node.tolist()
        found = OwnRowFinder(part).find(0, torch.tensor(asked, dtype=torch.int64))
        places = [at for at, node in enumerate(asked) if node in own]
        assert found.position.tolist() == places
        assert found.row.tolist() == [own.index(asked[at]) for at in places]
        assert found.missing.tolist() == [at for at, node in enumerate(asked) if node not in own]


def test_a_part_is_looked_through_once() -> None:
    part = part_of(torch.zeros(LOOKED_UP, dtype=torch.int64), torch.arange(LOOKED_UP).flip(0), 0)
    nodes = OwnRowFinder(part)
    with mock.patch("pyg_batchgnn.ops.is_ascending", wraps=ops.is_ascending) as look:
        for node in range(LOOKED_UP):
            assert nodes.find(0, torch.tensor([node])).row.tolist() == [LOOKED_UP - 1 - node]
    assert look.call_count == 1
