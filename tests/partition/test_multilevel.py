"""The multilevel policy: valid, deterministic, balanced, and better than streaming."""

from __future__ import annotations

import warnings
from ctypes.util import find_library
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from pyg_batchgnn.comm import Communicator
from pyg_batchgnn.data import Dataset, GeneratorSpec, generate, open_folder
from pyg_batchgnn.ops import InEdges, MergedLists, WeightedGraph
from pyg_batchgnn.partition import (
    Multilevel,
    move,
    partition,
    partition_parts,
    plot_partition,
    release,
    report_partition,
)
from pyg_batchgnn.partition.multilevel import contract as coarse
from pyg_batchgnn.partition.multilevel import owners as library
from pyg_batchgnn.partition.multilevel import scheme
from pyg_batchgnn.partition.multilevel.contract import HeaviestEdges, contract, find_clusters
from pyg_batchgnn.partition.multilevel.rank_graph import RankGraph, gather_graph, symmetric_graph
from pyg_batchgnn.partition.reading import read_slice
from pyg_batchgnn.partition.release import release_memory
from tests.partition.job_partition import (
    CASES,
    Peak,
    arrays_of,
    communities,
    graph,
    owners_everywhere,
    typed_communities,
)
from tests.support.ranks import run_ranks
from tests.support.tiers import ALL, all_only, in_all

LOADS = ("nodes", "edges", "train")


def quality(comm: Communicator, parts: int, policy: str = "multilevel") -> dict[str, float]:
    given = Multilevel(dict.fromkeys(LOADS, 1.05)) if policy == "multilevel" else policy
    report = report_partition(partition_parts(communities(), given, parts, comm=comm), comm)
    return {"cut": report.edge_cut} | {of: report.balance(of) for of in LOADS}


def owners(comm: Communicator, threads: int) -> list[int]:
    torch.set_num_threads(threads)
    dataset = generate(GeneratorSpec(nodes=3000 if ALL else 1000, features=4))
    part = partition(dataset, "multilevel", comm=comm, seed=3)
    return owners_everywhere([part], comm)[0].tolist()


def matrix_of(graph: RankGraph) -> Tensor:
    whole = gather_graph(graph, range(graph.comm.size))
    weight = torch.ones(whole.num_edges) if whole.edge_weight is None else whole.edge_weight
    table = torch.zeros(graph.total, graph.total, dtype=torch.int64)
    table[InEdges(whole.indptr, whole.indices).targets(), whole.indices.long()] = weight.long()
    return table


def symmetric_matrix(dataset: Dataset) -> Tensor:
    table = torch.zeros(dataset.num_nodes, dataset.num_nodes, dtype=torch.int64)
    for ends in (dataset.edge_index.long(), dataset.edge_index.long().flip(0)):
        table.index_put_((ends[0], ends[1]), torch.ones(ends.size(1), dtype=torch.int64), accumulate=True)
    return table.fill_diagonal_(0)


def levels(comm: Communicator) -> None:
    for round_bytes in (1 << 24, 3000):
        move.ROUND_BYTES = round_bytes
        for seed, nodes, edges, skew in CASES:
            _check_levels(comm, graph(seed, nodes, edges, skew=skew), seed)


def _check_levels(comm: Communicator, dataset: Dataset, seed: int) -> None:
    part = read_slice(dataset, comm)
    weight = torch.randint(0, 3, (part.num_nodes, 2), dtype=torch.int32)
    own = symmetric_graph(comm, part, weight)
    whole, scale = matrix_of(own), symmetric_matrix(dataset)
    uniform = own.lists.edge_weight is None
    assert torch.equal(whole, (scale > 0).long() if uniform else scale)
    assert not uniform or scale[scale > 0].unique().numel() <= 1
    clusters = find_clusters(own, torch.tensor([6, 6]), seed)
    level = contract(own, clusters)
    coarse = level.project(level.graph.own_ids())
    label = comm.all_gather(coarse).rows.long()
    member = torch.nn.functional.one_hot(label, max(level.graph.total, 1))[:, : level.graph.total]
    wanted = (member.t() @ whole @ member).fill_diagonal_(0)
    found = matrix_of(level.graph)
    if level.graph.lists.edge_weight is None:
        wanted = (wanted > 0).long()
    assert torch.equal(found, wanted)
    weights = comm.all_gather(weight).rows.long()
    assert torch.equal(comm.all_gather(level.graph.lists.node_weight).rows.long(), member.t() @ weights)
    several = member.sum(0) > 1
    assert bool(((member.t() @ weights)[several] <= 6).all())


def memory(comm: Communicator, folder: str) -> list[int]:
    """The share in bytes, the symmetric graph included, and the most that a rank took beside what
    there was. Rounds and the least sizes of graphs are small, so that the share tells."""
    move.ROUND_BYTES = 1 << 20
    coarse.EDGES = coarse.FEWEST = scheme.FEW = release.MUCH = 1 << 16
    dataset = open_folder(folder)
    release_memory()
    peak = Peak()
    peak.start()
    part = partition(dataset, "multilevel", comm=comm)
    most = peak.bytes - peak.first
    share = sum(array.numel() * array.element_size() for array in arrays_of(part).values())
    return [share + (8 * dataset.num_edges + 8 * dataset.num_nodes) // comm.size, most]


def heaviest(comm: Communicator) -> None:
    torch.set_num_threads(1)  # pieces are small, and threads of two ranks would wait for each other
    draw, nodes = torch.Generator().manual_seed(2), 300
    table = torch.randint(0, 40, (nodes, nodes), generator=draw).clamp(min=30).sub(30).int()
    table = (table + table.t()).fill_diagonal_(0)
    lighter_end = table.clone()
    for few in (range(140, 150), range(290, 300)):
        lighter_end[few] = lighter_end[few].clamp(max=1)
        lighter_end[:, few] = lighter_end[:, few].clamp(max=1)
    for rows in (7, 75, 150):  # the last piece and the only one drop edges, too
        _check_heaviest(comm, table, 4000, rows)
    _check_heaviest(comm, lighter_end, 4000, 35)  # the last piece has what others lost


def _check_heaviest(comm: Communicator, table: Tensor, limit: int, rows: int) -> None:
    nodes = len(table)
    own = range(comm.rank * nodes // comm.size, (comm.rank + 1) * nodes // comm.size)
    kept = HeaviestEdges(own.start, limit)
    for begin in range(own.start, own.stop, rows):
        piece = table[begin : min(begin + rows, own.stop)]
        at = piece.nonzero()
        indptr = torch.cat([torch.zeros(1, dtype=torch.int64), (piece > 0).sum(1).cumsum(0)])
        ids, weight = at[:, 1].contiguous(), piece[piece > 0]
        kept.add(MergedLists(indptr, ids, weight, 0))
    lists = kept.finish(comm)
    assert 0.9 * limit < comm.max(lists.ids.numel()) <= limit
    left = torch.zeros(len(own), nodes, dtype=torch.int32)
    left[InEdges(lists.indptr, lists.ids).targets(), lists.ids] = lists.weight
    whole = comm.all_gather(left).rows
    assert torch.equal(whole, whole.t())
    assert bool(((whole == table) | (whole == 0)).all())
    assert int(table[(whole == 0) & (table > 0)].max()) <= int(whole[whole > 0].min())


def two_levels(comm: Communicator, hosts: int | None) -> dict[str, float]:
    draw, nodes, edges = torch.Generator().manual_seed(5), 2400, 24_000
    here, kind = torch.randint(0, nodes, (2, edges), generator=draw)
    half = torch.randint(0, nodes // 2, (edges,), generator=draw) * 2 + here % 2
    same = torch.randint(0, nodes // 8, (edges,), generator=draw) * 8 + here % 8
    anywhere = torch.randint(0, nodes, (edges,), generator=draw)
    there = torch.where(kind % 20 == 0, anywhere, torch.where(kind % 20 < 5, half, same))
    dataset = Dataset.homogeneous("halves", nodes, torch.stack([here, there]))
    part = partition_parts(dataset, Multilevel(hosts=hosts), 4, comm=comm)
    report = report_partition(part, comm, hosts)
    assert report.cut_pairs[1][1] == 0 and sum(report.cut_pairs[1]) == report.parts[1].cut
    loads = {of: report.balance(of) for of in ("nodes", "edges")}
    return {"cut": report.edge_cut, "between": report.host_cut, **loads}


def given_owners(comm: Communicator, file: str) -> None:
    dataset: Any = communities()
    part = partition(dataset, file, comm=comm)
    owner = owners_everywhere([part], comm)[0]
    assert torch.equal(owner, torch.arange(dataset.num_nodes) * 7 % comm.size)


def unmet(comm: Communicator) -> list[list[str]]:
    hub = Dataset.homogeneous("hub", 30, torch.stack([torch.arange(30), torch.zeros(30, dtype=torch.int64)]))
    said = []
    for dataset, parts in ((hub, 3), (communities(), 2)):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            partition_parts(dataset, "multilevel", parts, comm=comm)
        said.append([str(one.message) for one in caught if "times the mean" in str(one.message)])
    return said


def typed(comm: Communicator, file: str) -> dict[str, float]:
    dataset = typed_communities()
    part = partition(dataset, "multilevel", comm=comm)
    report = report_partition(part, comm)
    for number, halo in enumerate(report.halo_pairs):
        assert halo[number] == 0 and sum(halo) == report.parts[number].halo
    if comm.rank == 0:
        plot_partition(report, Path(file))
    worst = {f"{of} {name}": report.balance(of, name) for name in report.types for of in ("nodes", "edges")}
    return {"cut": report.edge_cut, **worst}


@pytest.mark.parametrize("ranks", [*in_all(1, 3), 2])
def test_graphs_of_all_levels_are_the_obvious_ones(ranks: int) -> None:
    run_ranks(levels, ranks)


@all_only
def test_memory_is_bounded_by_the_share(tmp_path: Path) -> None:
    """At most twice the share and some small rounds, where clusters join hardly any edges."""
    nodes, edges = 100_000, 4_000_000
    draw = np.random.default_rng(1)
    np.save(tmp_path / "edge_index.npy", draw.integers(0, nodes, (2, edges), dtype=np.int32))
    for result in run_ranks(memory, 2, {"folder": str(tmp_path)}):
        share, most = result.value
        assert most < 2 * share + (32 << 20), (share, most)


def test_the_heaviest_edges_are_left_at_both_ends() -> None:
    run_ranks(heaviest, 2)


@pytest.mark.parametrize(("ranks", "parts", "cut"), [*in_all((1, 4, 0.11), (3, 8, 0.22)), (2, 2, 0.11)])
def test_communities_stay_whole_and_all_loads_are_balanced(ranks: int, parts: int, cut: float) -> None:
    """One edge of ten leaves its community."""
    found = run_ranks(quality, ranks, {"parts": parts})[0].value
    assert found.pop("cut") < cut, found
    assert max(found.values()) <= 1.05, found


@pytest.mark.parametrize(("ranks", "hosts"), [*in_all((1, 2)), (4, None)])
def test_few_edges_join_hosts(ranks: int, hosts: int | None) -> None:
    """One edge of twenty leads anywhere, so one of forty to the other half."""
    of_ranks = [0, 0, 1, 1] if hosts is None else None
    found = run_ranks(two_levels, ranks, {"hosts": hosts}, hosts=of_ranks)[0].value
    assert found["between"] < 0.035, found
    assert found["cut"] < 0.2, found
    assert max(found["nodes"], found["edges"]) <= 1.05, found


def test_threads_do_not_matter() -> None:
    found = [run_ranks(owners, 2, {"threads": threads})[0].value for threads in (1, 2)]
    assert found[0] == found[1]


def test_owners_come_from_a_file(tmp_path: Path) -> None:
    np.save(tmp_path / "owners.npy", np.arange(4800, dtype=np.int16) * 7 % 2)
    run_ranks(given_owners, 2, {"file": str(tmp_path / "owners.npy")})


def test_what_cannot_be_balanced_is_told_with_the_reason() -> None:
    results = run_ranks(unmet, 2)
    (hub,), fine = results[0].value
    assert "of in-edges, more than 1.05: one node alone has 3.00 times the mean" in hub
    assert fine == [] and results[1].value == [[], []]


def test_every_node_type_is_balanced_apart(tmp_path: Path) -> None:
    found = run_ranks(typed, 2, {"file": str(tmp_path / "report.png")})[0].value
    cut = found.pop("cut")
    assert cut < 0.12, cut
    assert max(found.values()) <= 1.05, found
    assert (tmp_path / "report.png").stat().st_size > 10_000


#: A path of three nodes.
PATH = WeightedGraph(
    torch.tensor([0, 1, 3, 4]), torch.tensor([1, 0, 2, 1]).int(), torch.ones(3, 1).int(), None, 0
)


def test_metis_cuts_within_the_limits() -> None:
    try:
        library._Library.load()
    except ImportError as error:
        pytest.skip(str(error))
    found = run_ranks(quality, 2, {"parts": 2, "policy": "metis"})[0].value
    assert found.pop("cut") < 0.11, found
    assert max(found.values()) <= 1.06, found


@pytest.mark.parametrize("system", [None, "c"], ids=["absent", "without METIS's functions"])
def test_the_package_is_named_where_there_is_no_library(
    system: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The package's files are damaged. The system has no library of the name, or another one."""
    folder = tmp_path / "cmeel.prefix" / "lib"
    folder.mkdir(parents=True)
    for name in ("libGKlib.so", "libmetis.so"):
        (folder / name).write_text("no library")
    monkeypatch.setattr(library.sysconfig, "get_paths", lambda: {"purelib": str(tmp_path)})
    monkeypatch.setattr(library, "find_library", lambda _name: system and find_library(system))
    with pytest.raises(ImportError, match='pip install cmeel-metis, or choose the policy "multilevel"'):
        library._Library.load()
    assert not library.has_metis()


@pytest.mark.parametrize("integer", [np.int32, np.int64])
def test_a_code_of_the_library_is_told(integer: type) -> None:
    made = object.__new__(library._Library)
    made.integer = np.dtype(integer)
    made._library = SimpleNamespace(METIS_PartGraphKway=lambda *_: -4)
    slack = torch.tensor([1.05], dtype=torch.float64)
    with pytest.raises(RuntimeError, match="failed with code -4 on 3 nodes"):
        made.part(PATH, slack, 2)
    assert made.part(PATH, slack, 1).tolist() == [0, 0, 0]
