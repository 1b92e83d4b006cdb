"""Stores over ranks hold what the whole graph holds, in memory and in files."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch_geometric.data import TensorAttr

from pyg_batchgnn import MacrobatchNeighborLoader
from pyg_batchgnn.comm import AgreementError, CommError, Communicator, Counts, host_memory
from pyg_batchgnn.data import EDGES, NODES, Group, RowKind
from pyg_batchgnn.nn import SAGE
from pyg_batchgnn.partition import (
    Part,
    is_partition,
    load,
    load_partition,
    move,
    partition,
    partition_parts,
    save,
    save_partition,
    share_attributes,
)
from pyg_batchgnn.store import (
    EDGE_TYPE,
    Columns,
    CscGraph,
    DistFeatureStore,
    DistGraphStore,
    HybridTopology,
    OwnRowFinder,
    TypedGraph,
    hybrid,
    own_sums,
    replicate_attribute,
    replicate_topology,
    sum_weights,
)
from tests.partition.job_partition import graph
from tests.store import job_typed
from tests.store.job_typed import data_sets, owners
from tests.support.faults import AwakeClock, stop_for_good
from tests.support.leftovers import nothing_is_left
from tests.support.partitioned_graphs import CASES, Case, part_of, whole
from tests.support.rank_epochs import BATCH, RankEpoch, assert_same
from tests.support.ranks import run_ranks
from tests.support.reference_partition import (
    Tables,
    book_of,
    graph_of,
    internal_ids_by_type,
    part_in_order,
    split_dataset,
    typed_part,
)
from tests.support.thread_ranks import run_threads
from tests.support.tiers import ALL, each, in_all
from tests.support.tiny_datasets import equal


def some_ids(size: int, rank: int, how: str) -> torch.Tensor:
    draw = torch.Generator().manual_seed(rank + 10 * len(how))
    if how == "none here" and rank == 0:
        return torch.empty(0, dtype=torch.int64)
    return torch.randint(size, (7 * rank + 3,), generator=draw)


def dtypes(comm: Communicator) -> None:
    draw = torch.Generator().manual_seed(5)
    wholes = {
        str(dtype): torch.randint(0, 2, (CASES[0].nodes, *shape), generator=draw).to(dtype)
        for dtype, shape in (
            *((torch.bool, (10,)), (torch.bfloat16, (3,)), (torch.float64, (2, 3)), (torch.int8, ())),
            *((torch.complex64, ()), (torch.float16, (1, 1, 2)), (torch.uint8, (5,)), (torch.int32, (0,))),
        )
    }
    for share in (True, False):
        part = part_of(CASES[0], comm.size, comm.rank)
        tables = {name: table[part.node] for name, table in wholes.items()}
        part.attributes[NODES].update(tables)
        store = DistFeatureStore(part, comm, share=share)
        index = some_ids(CASES[0].nodes, comm.rank, "some")
        for name, table in wholes.items():
            for one in (index, index[:1, None], 7):
                assert torch.equal(store.get_tensor(None, name, index=one), table[one])
            store.put_tensor(table[index], None, name, index=index)
            found = store.get_tensor(None, name, index=slice(None))
            assert torch.equal(found, table) and found.dtype == table.dtype


def writes(comm: Communicator) -> None:
    for case in CASES:
        data = whole(case)
        store = DistFeatureStore(part_of(case, comm.size, comm.rank), comm)
        for rank in range(comm.size):  # in one process, in the order of ranks
            index = some_ids(case.nodes, rank, "write")
            for at, node in enumerate(index.tolist()):
                data.x[node] = 1000 * rank + at
            index = some_ids(case.edges, rank, "write") if case.edges else index[:0]
            for at, edge in enumerate(index.tolist()):
                data.edge_kind[edge] = 100 * rank + at
        index = some_ids(case.nodes, comm.rank, "write")
        rows = 1000.0 * comm.rank + torch.arange(len(index)).view(-1, 1).expand(-1, 5)
        assert store.put_tensor(rows, None, "x", index=index)
        if case.edges:
            index = some_ids(case.edges, comm.rank, "write")
            rows = 100 * comm.rank + torch.arange(len(index), dtype=torch.int16)
            store.put_tensor(rows, EDGE_TYPE, "edge_kind", index=index)
            found = store.get_tensor(EDGE_TYPE, "edge_kind", index=slice(None))
            assert torch.equal(found, data.edge_kind)
        assert torch.equal(store.get_tensor(float("nan"), "x", index=slice(None)), data.x)


def refusals(comm: Communicator) -> None:
    part = part_of(CASES[0], comm.size, comm.rank)
    features, graph = DistFeatureStore(part, comm), DistGraphStore(part, comm)
    refused: list[tuple[type[Exception], str, Any]] = [
        (ValueError, "no rank holds all of 'x'", lambda: features.get_tensor(None, "x", index=None)),
        (KeyError, "no node attribute 'z'", lambda: features.get_tensor(None, "z", index=[1])),
        (KeyError, "no edge attribute 'x'", lambda: features.get_tensor(EDGE_TYPE, "x", index=[1])),
        (IndexError, "holds 120", lambda: features.get_tensor(None, "x", index=[120])),
        (TypeError, "integer ids", lambda: features.get_tensor(None, "x", index=torch.ones(2))),
        (
            ValueError,
            "index is torch.sparse_coo",
            lambda: features.get_tensor(None, "x", index=torch.eye(2).to_sparse()),
        ),
        (TypeError, "integer ids", lambda: features.get_tensor(None, "x", index="1")),
        (TypeError, "share must be a bool", lambda: DistFeatureStore(part, comm, share=torch.ones(1))),
        (IndexError, r"mask \[\], .* 120 rows", lambda: features.get_tensor(None, "x", index=False)),
        (NotImplementedError, "leave it out", lambda: features.remove_tensor(None, "x", index=None)),
        (ValueError, r"shape \[2, 5\]", lambda: features.put_tensor(torch.ones(2), None, "x", [1, 2])),
        (TypeError, "convert", lambda: features.put_tensor(torch.ones(1), None, "y", [1])),
        (ValueError, "'coo'", lambda: graph.get_edge_index(EDGE_TYPE, "csc")),
        (NotImplementedError, "cannot be changed", lambda: graph.put_edge_index((1, 2), EDGE_TYPE, "coo")),
        (ValueError, "cannot be on rank", lambda: DistGraphStore(part_of(CASES[0], comm.size + 1, 0), comm)),
        (TypeError, "floating-point type", lambda: DistFeatureStore(part, comm, floats=torch.ones(1))),
        (ValueError, "topology has 3 nodes", lambda: DistGraphStore(part, comm, _small())),
    ]
    for error, text, call in refused:
        with pytest.raises(error, match=text):
            call()
    with pytest.raises(ValueError, match="node attribute 'x' already"):
        features.with_attribute(NODES, "x", {})
    with pytest.raises(KeyError, match="no node type 'other'"):
        features.reader({NODES: Columns(), Group(RowKind.NODE, "other"): Columns()})
    with pytest.raises(AgreementError, match="edge attributes"):
        DistFeatureStore(part_of(CASES[0], comm.size, comm.rank, edge_attributes=comm.rank == 0), comm)


def _small() -> HybridTopology:
    graph = CscGraph.from_edge_index(torch.zeros(2, 0, dtype=torch.int64), 3)
    return HybridTopology(graph.typed, (torch.arange(3),))


def everywhere(comm: Communicator, round_bytes: int) -> None:
    move.ROUND_BYTES = round_bytes
    for dataset in data_sets():
        owner = owners(dataset, comm.size)
        part = split_dataset(dataset, owner, comm.size, comm.rank)
        found = replicate_topology(part, comm)
        _check(found, graph_of(dataset), owner, part)
        own, hybrid = DistGraphStore(part, comm), DistGraphStore(part, comm, found)
        assert "partitioned" in repr(own) and "hybrid" in repr(hybrid)
        for number, ids in enumerate(internal_ids_by_type(owner, part.book)):
            for store in (own, hybrid):
                assert torch.equal(store.internal_ids(torch.arange(len(ids)), number), ids)
        shared = share_attributes(part, comm)
        assert sorted(shared) == comm.ranks_of_host
        for rank, found_tables in shared.items():
            theirs = split_dataset(dataset, owner, comm.size, rank).attributes
            assert found_tables.keys() == theirs.keys()
            for group, tables in theirs.items():
                assert found_tables[group].keys() == tables.keys()
                assert all(equal(found_tables[group][name], table) for name, table in tables.items())


def _check(found: HybridTopology, want: TypedGraph, owner: list[Tensor], part: Part) -> None:
    assert found.graph.schema == want.schema and found.graph.num_nodes == want.num_nodes
    for got, edges in zip(found.graph.relations, want.relations, strict=True):
        assert torch.equal(got.indptr, edges.indptr)
        assert torch.equal(got.indices.long(), edges.indices.long()) and got.indices.dtype == torch.int32
        assert got.edge_ids is not None and got.edge_ids.dtype == torch.int32
        assert torch.equal(got.edge_ids.long(), edges.explicit_edge_ids().long())
    ids = internal_ids_by_type(owner, part.book)
    for internal, wanted in zip(found.internal, ids, strict=True):
        assert torch.equal(internal, wanted.to(part.book.id_dtype))


#: What every rank does, and where one is lost: module, function, and after how many calls of it.
STAGES: dict[str, tuple[Any, str, int]] = {
    "save": (save.files, "write_tensor", 4),
    "load": (load, "map_tensor", 3),
    "topology": (hybrid, "_send_edges", 0),
    "tables": (host_memory, "_swap", 0),
}


def fault(how: str, stage: str, victim: int, timeout: float, folder: str) -> dict[str, Any]:
    comm = Communicator.create("parts", timeout=timeout)
    module, name, after = STAGES[stage]
    clock = AwakeClock()
    try:
        part = None if stage == "load" else partition(graph(1, 300, 3000), comm=comm)
        comm.barrier()
        lost = _lost(how, getattr(module, name), after) if comm.rank == victim else getattr(module, name)
        with mock.patch.object(module, name, lost):
            if part is None:
                load_partition(folder, comm)
            elif stage == "save":
                save_partition(part, Path(folder, "broken"), comm)
            else:
                (replicate_topology if stage == "topology" else share_attributes)(part, comm)
    except CommError as error:
        return {"error": type(error).__name__, "text": str(error), "seconds": clock.seconds}
    return {"error": None}


def _lost(how: str, function: Callable[..., Any], after: int) -> Callable[..., Any]:
    """The function, but its process dies or stops after some calls."""
    left = after

    def until_then(*arguments: Any) -> Any:
        nonlocal left
        left -= 1
        if left >= 0:
            return function(*arguments)
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        return stop_for_good()

    return until_then


@pytest.mark.parametrize(
    ("ranks", "hosts"), [*in_all((1, [0]), (2, [0, 1])), (3, [0, 1, 1]), *in_all((4, [0, 1, 0, 2]))], ids=str
)
def test_what_ranks_hold_together_is_the_whole_graph(ranks: int, hosts: Sequence[int]) -> None:
    run_ranks(writes, ranks, hosts=hosts)


@pytest.mark.parametrize("job", [dtypes, refusals])
def test_two_ranks(job: Callable[..., Any]) -> None:
    run_ranks(job, 2)


@pytest.mark.parametrize(
    ("hosts", "round_bytes"), [*in_all(([0], 1 << 24)), ([0, 0, 1], 3_000), *in_all(([0, 1, 0, 1], 1 << 24))]
)
def test_every_rank_reads_the_whole_topology(hosts: list[int], round_bytes: int) -> None:
    run_ranks(everywhere, len(hosts), {"round_bytes": round_bytes}, hosts=hosts)


@pytest.mark.parametrize("ranks", [*in_all(1, 3), 2])
@pytest.mark.parametrize("job", [job_typed.reads_and_writes, job_typed.lookups])
def test_stores(job: Callable[..., Any], ranks: int) -> None:
    run_ranks(job, ranks)


# A rank is killed or stopped while parts are written, read again or shared.
#
# The others end with an error that names it, and nothing is left behind.


TIMEOUT = 8.0  # for starting, too: a machine may stand still for seconds


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
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
        results = run_ranks(fault, 3, arguments, never_end=never, check=False)
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


#: A graph of as many edges as nodes.
GRAPH = CscGraph.from_edge_index(torch.tensor([[0, 1, 2, 3], [1, 1, 3, 3]]), 4).typed
RANKS = 2


def sums_of_rank(comm: Communicator, tables: Tables, hybrid: bool) -> Tensor:
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


LOOKED_UP, OWNERS = 9, 3


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
    graph = CscGraph.from_edge_index(torch.empty(2, 0, dtype=torch.int64), LOOKED_UP).typed
    for rank in range(OWNERS):
        part = part_in_order(graph, [order], book_of([owner], OWNERS), rank)
        own = part.node.tolist()
        found = OwnRowFinder(part).find(0, torch.tensor(asked, dtype=torch.int64))
        places = [at for at, node in enumerate(asked) if node in own]
        assert found.position.tolist() == places
        assert found.row.tolist() == [own.index(asked[at]) for at in places]
        assert found.missing.tolist() == [at for at, node in enumerate(asked) if node not in own]


OPTIONS: tuple[dict[str, Any], ...] = (
    {"schedule": "local", "macrobatch_size": 3, "fetch_size": 2, "export": "native", "prefetch": 1},
    {"schedule": "global", "macrobatch_size": 4, "fetch_size": 4, "export": "pyg"},
    {
        "schedule": "local",
        "macrobatch_size": 2,
        "fetch_size": 1,
        "export": "native",
        "attributes": ["x", "y"],
    },
    {"schedule": "local", "macrobatch_size": 3, "fetch_size": 3, "feature_cache": 2000},
)


def parts_in_files(folder: str, comm: Communicator) -> Iterator[tuple[Case, Part]]:
    for number, case in enumerate((CASES[0], *CASES[3:6]) if ALL else (CASES[0], CASES[5])):
        part = part_of(case, comm.size, comm.rank)
        yield case, load_partition(save_partition(part, f"{folder}/{number}", comm), comm)


def traffic(counts: Counts) -> dict[str, dict[str, float]]:
    return {
        kind: {name: count for name, count in told.items() if "seconds" not in name}
        for kind, told in counts.as_dict().items()
    }


def epochs_from_files(comm: Communicator, folder: str) -> None:
    read = 0
    torch.manual_seed(0)
    model = SAGE(5, 8, 2, 3).eval()
    for case, part in parts_in_files(folder, comm):
        train = whole(case).train_mask.nonzero().view(-1)
        for number, options in enumerate(OPTIONS if ALL or case is CASES[0] else OPTIONS[:1]):
            topology = replicate_topology(part, comm) if number == 1 else None
            share = number % 2 == 0
            found, outputs = [], []
            for budget in (None, 1) if number else (None, 1, 4000):
                features = DistFeatureStore(part, comm, share=share, memory_budget=budget)
                loader = MacrobatchNeighborLoader(
                    (features, DistGraphStore(part, comm, topology)),
                    **{"num_neighbors": [3, 2], "batch_size": BATCH, "shuffle": True, "seed": 11},
                    **options,
                    input_nodes=train,
                )
                found.append(RankEpoch.of(comm, loader, lambda batch: batch.input_id))
                if number == 0:
                    outputs.append(model.inference(loader, memory_budget=5000))
                assert budget or not features.own.disk
                read += features.disk_reads.rows
            assert all(torch.equal(outputs[0], other) for other in outputs)
            in_memory, *on_disk = found
            for other in on_disk:
                assert len(other.batches) == len(in_memory.batches)
                for batch, right in zip(other.batches, in_memory.batches, strict=True):
                    assert_same(batch, right)
                assert traffic(other.counts) == traffic(in_memory.counts)
    assert read


def stores_of_files(comm: Communicator, folder: str) -> None:
    for case, part in parts_in_files(folder, comm):
        data = whole(case)
        for share in (True, False):
            store = DistFeatureStore(part, comm, share=share, memory_budget="1B")
            index = torch.randint(case.nodes, (9 + comm.rank,))
            x, y = store.multi_get_tensor([TensorAttr(None, name, index) for name in ("x", "y")])
            assert torch.equal(x, data.x[index]) and torch.equal(y, data.y[index])
            if case.edges:
                index = torch.randint(case.edges, (9,))
                kind = store.get_tensor(EDGE_TYPE, "edge_kind", index=index)
                assert torch.equal(kind, data.edge_kind[index])
        sizes = sorted(table.nbytes for tables in part.attributes.values() for table in tables.values())
        own = DistFeatureStore(part, comm, memory_budget=max(1, sum(sizes[:2]))).own
        if part.num_nodes and case.edges and all(sizes):
            assert len(own.disk) == len(sizes) - 2
            assert {rows.table.nbytes for rows in own.disk} <= set(sizes[2:])
        assert not DistFeatureStore(part, comm, memory_budget="1GiB").own.disk
    case, part = next(parts_in_files(folder + "/more", comm))
    store = DistFeatureStore(part, comm, memory_budget=1)
    with pytest.raises(ValueError, match=r"'x' lies in files .* larger memory_budget"):
        store.put_tensor(torch.zeros(1, 5), TensorAttr(None, "x", torch.tensor([0])))
    with pytest.raises(ValueError, match="converts tables in memory"):
        DistFeatureStore(part, comm, memory_budget=1, floats=torch.bfloat16)
    if comm.size > 1:
        with pytest.raises(AgreementError, match="memory_budget"):
            DistFeatureStore(part, comm, memory_budget=None if comm.rank else 1)


def a_file_is_cut(comm: Communicator, folder: str) -> None:
    _, part = next(parts_in_files(folder, comm))
    features = DistFeatureStore(part, comm, share=False, memory_budget=1)
    loader = MacrobatchNeighborLoader(
        (features, DistGraphStore(part, comm)), [3, 2], batch_size=BATCH, macrobatch_size=2, prefetch=1
    )
    if comm.rank == 1:
        rows = max(features.own.disk, key=lambda rows: rows.table.nbytes)
        os.truncate(rows.reader.table.path, rows.reader.table.offset + 100)
    comm.barrier()
    with pytest.raises(CommError if comm.rank == 0 else (OSError, CommError)) as raised:
        list(loader)
    told = str(raised.value)
    assert "rank 1" in told if comm.rank == 0 else "since it was opened" in told, told


@pytest.mark.parametrize(
    ("ranks", "hosts"), [*in_all((1, [0]), (2, [0, 1]), (4, [0, 1, 0, 1])), (3, [0, 1, 1])], ids=str
)
def test_equal_minibatches_and_messages(ranks: int, hosts: Sequence[int], tmp_path: Path) -> None:
    run_ranks(epochs_from_files, ranks, {"folder": str(tmp_path)}, hosts=hosts)


@pytest.mark.parametrize(("ranks", "hosts"), [*in_all((1, [0])), (3, [0, 1, 1])], ids=str)
def test_stores_of_files(ranks: int, hosts: Sequence[int], tmp_path: Path) -> None:
    run_ranks(stores_of_files, ranks, {"folder": str(tmp_path)}, hosts=hosts)


def test_a_file_that_is_cut_ends_every_rank(tmp_path: Path) -> None:
    run_ranks(a_file_is_cut, 2, {"folder": str(tmp_path)}, hosts=[0, 1])
