"""Attributes in files that are larger than what a loader may hold."""

from __future__ import annotations

import copy
import itertools
import os
import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Data, HeteroData

from pyg_batchgnn import MacrobatchHGTLoader, MacrobatchLinkNeighborLoader, MacrobatchNeighborLoader
from pyg_batchgnn.fetch import LIST_BYTES, DiskRows, Window, disk
from pyg_batchgnn.fetch.sweep import simulate
from tests.support.loader_cases import EDGES, NODES, assert_same, make_data, make_loader
from tests.support.mapped_data import mapped, with_files
from tests.support.tiers import each, in_all

pytestmark = pytest.mark.filterwarnings("ignore:memory_budget leaves")

#: Less than any table takes, so that all are read by macrobatch.
NOTHING = 1
WRITES = ("author", "writes", "paper")


@pytest.fixture(autouse=True)
def _users_who_keep_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "PATIENCE", 0.05)


def rows_of(loader: Any) -> DiskRows:
    assert loader.sizes
    look = loader._setup.pipeline.look_ahead
    assert look is not None
    return look.rows


def with_room(loader: Any, nbytes: int, period: int | None = 2) -> Any:
    sizes, prefetch = loader.sizes, loader._options.prefetch
    window = Window(prefetch, -(-sizes.macrobatch // sizes.fetch))
    rows_of(loader).set_capacity(nbytes, window, period)
    return loader


def timed() -> Data:
    draws = torch.Generator().manual_seed(1)
    return make_data(
        time=torch.randint(100, (NODES,), generator=draws), weight=torch.rand(EDGES, generator=draws)
    )


def typed() -> HeteroData:
    data, draws = HeteroData(), torch.Generator().manual_seed(2)
    counts = {"author": 80, "paper": 200}
    for name, count in counts.items():
        data[name].x = torch.randn(count, 3, generator=draws)
        data[name].y = torch.arange(count)
    for source, kind, target in (WRITES, ("paper", "cites", "paper"), ("paper", "rev_writes", "author")):
        ends = [torch.randint(counts[end], (600,), generator=draws) for end in (source, target)]
        data[source, kind, target].edge_index = torch.stack(ends)
    data[WRITES].edge_attr = torch.randn(600, 2, generator=draws)
    return data


MODES: dict[str, Any] = {
    "plain": lambda data, **sizes: make_loader(data, shuffle=True, **sizes),
    "replace": lambda data, **sizes: make_loader(data, replace=True, **sizes),
    "disjoint": lambda data, **sizes: make_loader(data, disjoint=True, **sizes),
    "timed": lambda data, **sizes: make_loader(data, time_attr="time", tokens=9, **sizes),
    "weighted": lambda data, **sizes: make_loader(data, weight_attr="weight", **sizes),
    "induced": lambda data, **sizes: make_loader(data, subgraph_type="induced", **sizes),
    "links": lambda data, **sizes: MacrobatchLinkNeighborLoader(
        data, [4, 3], batch_size=200, seed=3, neg_sampling="binary", **sizes
    ),
    "triplets": lambda data, **sizes: MacrobatchLinkNeighborLoader(
        data, [4], batch_size=300, seed=3, neg_sampling="triplet", exclude_seed_edges=True, **sizes
    ),
}
TYPED: dict[str, Any] = {
    "nodes": lambda data, **sizes: make_loader(data, input_nodes="paper", **sizes),
    "links": lambda data, **sizes: MacrobatchLinkNeighborLoader(
        data, [4, 3], (WRITES, None), batch_size=90, seed=3, neg_sampling="binary", **sizes
    ),
    "hgt": lambda data, **sizes: MacrobatchHGTLoader(data, [20, 20], "paper", batch_size=32, seed=5, **sizes),
}
SIZES: list[dict[str, Any]] = [
    {"macrobatch_size": 1, "fetch_size": 1},
    {"macrobatch_size": 4, "fetch_size": 3, "prefetch": 1},
    {"macrobatch_size": "all", "fetch_size": "all"},
]


@each
@pytest.mark.parametrize("sizes", SIZES, ids=lambda sizes: str(sizes["macrobatch_size"]))
@pytest.mark.parametrize("export", ["pyg", "native"])
@pytest.mark.parametrize("mode", MODES)
def test_batches_are_those_in_memory(mode: str, export: str, sizes: dict[str, Any], tmp_path: Path) -> None:
    data = timed()
    found = MODES[mode](with_files(data, tmp_path), export=export, memory_budget=NOTHING, **sizes)
    with_room(found, 9000 if mode == "plain" else 12_000)
    expected = MODES[mode](data, export=export, **sizes)
    for _ in range(2):
        assert_same(found, expected)
    counts = found.stats().total
    assert counts.disk_bytes > counts.disk_useful > 0
    assert counts.disk_hits or mode == "plain"


@each
@pytest.mark.parametrize("export", ["pyg", "native"])
@pytest.mark.parametrize("mode", TYPED)
def test_typed_batches_are_those_in_memory(mode: str, export: str, tmp_path: Path) -> None:
    data = typed()
    found = TYPED[mode](with_files(data, tmp_path), export=export, memory_budget=NOTHING, prefetch=1)
    with_room(found, 9000)
    assert_same(found, TYPED[mode](data, export=export))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64, torch.uint8])
def test_types_and_shapes_of_rows(dtype: torch.dtype, tmp_path: Path) -> None:
    data = make_data()
    data.x = torch.arange(NODES * 14).view(NODES, 7, 2).to(dtype)
    found = with_room(make_loader(with_files(data, tmp_path), memory_budget=NOTHING), 40_000)
    assert_same(found, make_loader(data))


@pytest.mark.parametrize("export", ["pyg", "native"])
def test_one_table_for_several_attributes(export: str, tmp_path: Path) -> None:
    data = typed()
    data["author"].y = data["paper"].y
    found = data.clone()
    for one, x in (data, data["paper"].x), (found, mapped(data["paper"].x, tmp_path / "x.npy")):
        for name in ("author", "paper"):
            one[name].x = one[name].z = x
    options = {"input_nodes": "paper", "export": export}
    loader = with_room(make_loader(found, memory_budget=NOTHING, prefetch=1, **options), 9000)
    assert_same(loader, make_loader(data, **options))
    assert loader.stats().total.disk_rows


def test_an_array_for_reading_only(tmp_path: Path) -> None:
    data = make_data()
    np.save(tmp_path / "x.npy", data.x.numpy())
    read = data.clone()
    read.x = np.load(tmp_path / "x.npy", mmap_mode="r")
    loader = make_loader(read, memory_budget=NOTHING)
    assert_same(loader, make_loader(data))
    assert loader.stats().total.disk_rows


def test_small_files_are_held(tmp_path: Path) -> None:
    data = with_files(make_data(), tmp_path)
    for export in ("pyg", "native"):
        loader = make_loader(data, export=export)
        assert_same(loader, make_loader(make_data(), export=export))
        assert not loader.stats().total.disk_rows
    (tmp_path / "x-0.npy").unlink()  # nothing is read any more
    loader.set_epoch(0)
    assert_same(loader, make_loader(make_data(), export=export))


def test_ids_of_a_users_hook(tmp_path: Path) -> None:
    def reversed_nodes(out: Any) -> Any:
        out.node = out.node.flip(0) % 100
        return out

    data = make_data()
    found, expected = (
        make_loader(one, transform_sampler_output=reversed_nodes, memory_budget=NOTHING)
        for one in (with_files(data, tmp_path), data)
    )
    assert_same(found, expected)


def test_single_minibatches_and_iterators_that_are_broken_off(tmp_path: Path) -> None:
    data = make_data()
    found = with_room(make_loader(with_files(data, tmp_path), memory_budget=NOTHING, prefetch=2), 11_000)
    expected = make_loader(data, prefetch=2)
    for loader in (found, expected):
        next(iter(loader))
    some = iter(found)
    assert_same([next(some), found([1, 2, 3])], [next(iter(expected)), expected([1, 2, 3])])
    assert_same(found, expected)


def test_worker_processes_read_through_the_system(tmp_path: Path) -> None:
    data = make_data()
    found = make_loader(with_files(data, tmp_path), memory_budget=NOTHING, num_workers=2)
    assert_same(found, make_loader(data))


@pytest.mark.parametrize("prefetch", [1, *in_all(0, 3)])
def test_batches_that_are_kept_do_not_change(prefetch: int, tmp_path: Path) -> None:
    """Some are kept for a while, all are kept, and views of their rows are kept."""
    data = make_data()
    loader = make_loader(
        with_files(data, tmp_path), export="native", memory_budget=NOTHING, prefetch=prefetch
    )
    with_room(loader, 250 * (data.x[0].nbytes + LIST_BYTES), period=1)
    expected = [batch.attribute("x") for batch in make_loader(data, export="native")]
    for keep in (1, 3, len(expected)):
        loader.set_epoch(0)
        kept: list[tuple[int, torch.Tensor, torch.Tensor]] = []
        for at, batch in enumerate(loader):
            assert batch.row is not None
            kept = [*kept[1 - keep :], (at, batch.block["x"][1:], batch.row)] if keep > 1 else []
            for number, rows, row in kept:
                wanted = expected[number][row > 0]
                assert torch.equal(rows[row[row > 0] - 1], wanted)


def units(loader: Any, sizes: dict[str, int]) -> list[torch.Tensor]:
    nodes = [batch.n_id for batch in loader]
    groups = []
    for begin in range(0, len(nodes), sizes["macrobatch_size"]):
        macrobatch = nodes[begin : begin + sizes["macrobatch_size"]]
        size = sizes["fetch_size"]
        groups += [torch.cat(macrobatch[at : at + size]) for at in range(0, len(macrobatch), size)]
    return [torch.unique(group) for group in groups]


@each
@pytest.mark.parametrize("rows", [0, 250, 280, NODES])
@pytest.mark.parametrize("period", [1, 3, 7])
def test_rows_are_read_as_the_sweeps_say(period: int, rows: int, tmp_path: Path) -> None:
    sizes = {"macrobatch_size": 3, "fetch_size": 1}
    data = make_data()
    del data.edge_attr
    known = {"memory_budget": NOTHING, "lookahead": 1000}  # the epoch alone
    loader = make_loader(with_files(data, tmp_path), shuffle=True, batch_size=8, **known, **sizes)
    with_room(loader, rows * (data.x[0].nbytes + LIST_BYTES), period)
    needed = units(make_loader(data, shuffle=True, batch_size=8), sizes)
    expected = simulate(needed, NODES, rows, period, in_use=1)
    assert_same(loader, make_loader(data, shuffle=True, batch_size=8))
    counts = loader.stats().total
    if expected is None:
        assert rows < 280
        return
    assert counts.disk_rows == sum(expected)
    assert counts.disk_useful == counts.disk_rows * data.x[0].nbytes
    assert counts.disk_hits == sum(map(len, needed))
    assert counts.minibatches_ahead == len(loader)


def test_a_shorter_look_ahead_reads_more(tmp_path: Path) -> None:
    data = make_data()
    del data.edge_attr
    sizes = {"batch_size": 4, "macrobatch_size": 2, "fetch_size": 1, "shuffle": True}
    read = {}
    for ahead in (None, 2):
        loader = make_loader(with_files(data, tmp_path), memory_budget=NOTHING, lookahead=ahead, **sizes)
        assert_same(
            with_room(loader, 200 * (data.x[0].nbytes + LIST_BYTES), period=1), make_loader(data, **sizes)
        )
        read[ahead] = loader.stats().total.disk_rows
    assert read[2] > 1.05 * read[None]


def test_sizes_come_from_the_budget(tmp_path: Path) -> None:
    draws = torch.Generator().manual_seed(0)
    nodes = 20_000
    data = Data(
        x=mapped(torch.randn(nodes, 128, generator=draws), tmp_path / "x.npy"),
        edge_index=torch.randint(nodes, (2, 100_000), generator=draws),
    )
    sizes, read = [], []
    for budget in ("3MiB", "12MiB"):
        loader = MacrobatchNeighborLoader(
            data, [5, 5], batch_size=100, shuffle=True, seed=0, memory_budget=budget, export="native"
        )
        sizes.append(loader.sizes.macrobatch)
        for _ in loader:  # none is kept
            pass
        assert rows_of(loader).nbytes <= int(re.sub(r"\D", "", budget)) << 20
        read.append(loader.stats().total.disk_bytes)
    assert sizes[0] < sizes[-1] and read == sorted(read, reverse=True)
    forecast = loader._setup.pipeline.look_ahead.forecast
    assert 0.5 * read[-1] < forecast.bytes < 2 * read[-1]


def test_one_loader_at_a_time_keeps_rows(tmp_path: Path) -> None:
    data = with_files(make_data(), tmp_path)
    one, other = (with_room(make_loader(data, memory_budget=NOTHING), 6000) for _ in range(2))
    list(one)
    assert rows_of(one).nbytes and not rows_of(other).nbytes
    left = iter(other)
    next(left)
    assert rows_of(other).nbytes and not rows_of(one).nbytes
    one.set_epoch(0)
    assert_same(one, make_loader(make_data()))
    assert rows_of(other).nbytes  # it iterates still
    del left


@pytest.mark.parametrize("prefetch", [1, *in_all(0)])
def test_epochs_that_follow_each_other_share_sweeps(prefetch: int, tmp_path: Path) -> None:
    data = make_data()
    del data.edge_attr
    sizes = {"batch_size": 8, "macrobatch_size": 2, "shuffle": True, "prefetch": prefetch}
    loader = make_loader(with_files(data, tmp_path), memory_budget=NOTHING, **sizes)
    with_room(loader, 250 * (data.x[0].nbytes + LIST_BYTES), period=3)
    expected = make_loader(data, **sizes)
    read = []
    for epoch in (0, 1, 2, 5, 6):
        loader.set_epoch(epoch)
        expected.set_epoch(epoch)
        assert_same(map(copy.copy, loader), expected)
        read.append(loader.stats().total.minibatches_ahead // len(expected))
    assert read == [2, 3, 4, 6, 7]  # the epoch after each, and 5, which was not expected


def test_other_epochs_than_were_expected(tmp_path: Path) -> None:
    data = make_data()
    sizes = {"batch_size": 8, "shuffle": True, "prefetch": 1}
    loader = make_loader(with_files(data, tmp_path), memory_budget=NOTHING, **sizes)
    with_room(loader, 280 * (data.x[0].nbytes + LIST_BYTES), period=2)
    expected = make_loader(data, **sizes)
    for _ in range(2):
        loader.set_epoch(0)
        for one, other in zip(loader, list(make_loader(data, **sizes))[:30], strict=False):
            assert torch.equal(one.x, other.x)
    states = []
    for one in (loader, expected):
        one.set_epoch(1)
        left = iter(one)
        for _ in range(31):
            next(left)
        states.append(one.state_dict())
        left.close()
        one.load_state_dict(states[-1])
    assert_same(loader, expected)
    assert_same(loader, expected)
    for one in (loader, expected):
        one.load_state_dict({**states[0], "seed": 99, "batches": 0})
    assert_same(loader, expected)


def test_a_forecast(tmp_path: Path) -> None:
    data = make_data()
    loader = make_loader(with_files(data, tmp_path), memory_budget="6MiB", batch_size=8, shuffle=True)
    assert loader.disk_forecast() is None  # all is held
    loader = make_loader(with_files(data, tmp_path), memory_budget=NOTHING, batch_size=8)
    with_room(loader, NODES * 100, period=None)
    found = loader.disk_forecast()
    assert found.sizes == loader.sizes
    assert found.seconds == found.bytes / found.bytes_per_second
    assert found.least_later_seconds == found.seconds - found.first_seconds


def test_looking_ahead_that_is_interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = make_data()
    sizes = {"batch_size": 8, "macrobatch_size": 2, "shuffle": True}
    loader = make_loader(with_files(data, tmp_path), memory_budget=NOTHING, **sizes)
    with_room(loader, NODES * (data.x[0].nbytes + LIST_BYTES), period=None)
    pipeline = loader._setup.pipeline
    plain, calls = pipeline.sample_uncounted, itertools.count()

    def interrupted(item: Any) -> Any:
        if next(calls) == 9:
            raise KeyboardInterrupt
        return plain(item)

    monkeypatch.setattr(pipeline, "sample_uncounted", interrupted)
    with pytest.raises(KeyboardInterrupt):
        next(iter(loader))
    loader.set_epoch(0)
    assert_same(loader, make_loader(data, **sizes))


def test_nothing_is_read_for_an_epoch_that_does_not_come(tmp_path: Path) -> None:
    data = make_data()
    del data.edge_attr
    sizes = {"batch_size": 8, "macrobatch_size": 2, "shuffle": True}
    expected, read = make_loader(data, **sizes), []
    for epochs in (None, 2):
        folder = tmp_path / str(epochs)
        folder.mkdir()
        loader = make_loader(with_files(data, folder), memory_budget=NOTHING, **sizes)
        loader.epochs = epochs
        with_room(loader, 250 * (data.x[0].nbytes + LIST_BYTES), period=3)
        for epoch in range(2):
            loader.set_epoch(epoch)
            expected.set_epoch(epoch)
            assert_same(map(copy.copy, loader), expected)
        total = loader.stats().total
        read.append((total.minibatches_ahead // len(expected), total.disk_rows))
    assert read[0][0] == 3 and read[1][0] == 2
    assert read[1][1] < read[0][1]
    for wrong in ("2", 0, 1.5):
        with pytest.raises(
            ValueError, match=f"epochs must be an integer of at least 1, or None, got {wrong!r}"
        ):
            loader.epochs = wrong


def test_a_table_that_was_written_to_is_read_from_memory(tmp_path: Path) -> None:
    data = with_files(make_data(), tmp_path)
    data.x += 1
    expected = make_data()
    expected.x += 1
    assert_same(make_loader(data, memory_budget=NOTHING), make_loader(expected))


def test_a_table_may_not_be_written_to_afterwards(tmp_path: Path) -> None:
    data = with_files(make_data(), tmp_path)
    loader = make_loader(data, memory_budget=NOTHING)
    list(loader)
    data.x[3] = 5
    with pytest.raises(ValueError, match=r"'x' is mapped .* was written to .* make a new loader"):
        next(iter(loader))


def test_a_file_may_not_be_written_to_afterwards(tmp_path: Path) -> None:
    data = make_data()
    np.save(tmp_path / "x.npy", data.x.numpy())
    data.x = torch.from_numpy(np.load(tmp_path / "x.npy", mmap_mode="r+"))
    loader = make_loader(data, memory_budget=NOTHING)
    os.utime(tmp_path / "x.npy", ns=(0, 0))
    list(make_loader(data, memory_budget=NOTHING))  # it reads what the file has now
    with pytest.raises(OSError, match=r"written to since it was opened: .*x\.npy"):
        list(loader)


def test_other_data_gets_the_memory_of_the_first(tmp_path: Path) -> None:
    draws = torch.Generator().manual_seed(0)
    graph = {"edge_index": torch.randint(5000, (2, 25_000), generator=draws)}
    tables = [mapped(torch.randn(5000, 512, generator=draws), tmp_path / f"{name}.npy") for name in "xy"]
    loader = MacrobatchNeighborLoader(Data(x=tables[0], **graph), [5], batch_size=50, memory_budget="10MiB")
    for table in tables:
        loader.data = Data(x=table, **graph)
        for batch in loader:
            assert torch.equal(batch.x, table[batch.n_id])
        assert rows_of(loader).nbytes > 5 << 20


def test_closing_does_not_wait_for_batches_that_are_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(disk, "PATIENCE", 100.0)
    data = make_data()
    sizes = {"batch_size": 4, "macrobatch_size": 1, "fetch_size": 1, "prefetch": 1}
    loader = make_loader(with_files(data, tmp_path), export="native", memory_budget=NOTHING, **sizes)
    with_room(loader, 150 * (data.x[0].nbytes + LIST_BYTES), period=1)
    left, kept = iter(loader), []
    for _ in range(3):
        kept.append(next(left))
    begin = time.monotonic()
    left.close()
    assert time.monotonic() - begin < 50
    assert torch.equal(kept[0].attribute("x"), data.x[kept[0].node])
