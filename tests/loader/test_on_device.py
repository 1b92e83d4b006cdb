"""Batches on a device: bit for bit those of the ordinary loader, through the whole queue."""

from __future__ import annotations

import functools
import gc
import io
import itertools
import pickle
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Data, HeteroData

from pyg_batchgnn import MacrobatchHGTLoader, MacrobatchLinkNeighborLoader, MacrobatchNeighborLoader, ops
from pyg_batchgnn.device import CpuLane, locked_bytes, tensors_of
from pyg_batchgnn.loader import device_stage
from pyg_batchgnn.ops import QuantizedTensor
from tests.support import hetero_cases, loader_cases, typed_link_cases
from tests.support.mapped_data import with_files
from tests.support.memory_stores import stores_of
from tests.support.rank_epochs import assert_same
from tests.support.tiers import ALL, each, in_all

SIZES: dict[str, Any] = {"batch_size": 24, "seed": 7, "macrobatch_size": 3, "fetch_size": 3, "shuffle": True}
NODES, EDGES = loader_cases.NODES, loader_cases.EDGES


def wide(dtype: torch.dtype = torch.float32) -> Data:
    data = loader_cases.make_data()
    data.x = torch.randn(NODES, 12, generator=torch.Generator().manual_seed(1)).to(dtype)
    data.edge_attr = torch.arange(EDGES * 6.0).view(EDGES, 6)
    data.time = torch.arange(NODES) % 10
    data.weight = torch.arange(EDGES) % 3 / 2
    data.train_mask = torch.arange(NODES) % 2 == 0
    data.whole = torch.arange(7)
    data.words = "about the graph"
    return data


def narrow(data: Data) -> Data:
    codes = torch.randint(
        -128, 128, (NODES, 24), dtype=torch.int8, generator=torch.Generator().manual_seed(2)
    )
    scales = torch.rand(2, 24, generator=torch.Generator().manual_seed(3))
    data.x = QuantizedTensor(codes, scales)
    return data


def odd(data: Data) -> Data:
    """Returns the graph with attributes that only the CPU selects, and others that are unusual."""
    data.columns = torch.randn(NODES, 24)[:, ::2]
    data.array = np.arange(NODES * 20.0).reshape(NODES, 20)
    data.learned = torch.randn(NODES, 20, requires_grad=True)
    data.flags = torch.randn(NODES, 18) > 0
    data.waves = torch.randn(NODES, 8, dtype=torch.complex64)
    data.nothing = torch.empty(NODES, 0)
    return data


def hetero() -> HeteroData:
    data = hetero_cases.make_timed()
    data["paper"].wide = torch.randn(60, 9)
    data["author"].x = torch.randn(40, 11)
    data[hetero_cases.CITES].wide = torch.randn(300, 10)
    return data


def nodes(make: Callable[[], Any], fanouts: Any = (4, 3), **given: Any) -> Callable[..., Any]:
    fanouts = list(fanouts) if isinstance(fanouts, tuple) else fanouts
    return functools.partial(_made, MacrobatchNeighborLoader, make, fanouts, **{**SIZES, **given})


def links(make: Callable[[], Any], **given: Any) -> Callable[..., Any]:
    return functools.partial(_made, MacrobatchLinkNeighborLoader, make, [4, 3], **{**SIZES, **given})


def hgt(make: Callable[[], Any], **given: Any) -> Callable[..., Any]:
    return functools.partial(_made, MacrobatchHGTLoader, make, [6, 4], **{**SIZES, **given})


def _made(kind: Any, make: Callable[[], Any], *positional: Any, **given: Any) -> Any:
    torch.manual_seed(11)
    return kind(make(), *positional, **given)


TYPED_SEEDS = {"input_nodes": hetero_cases.BOTH}
CASES: dict[str, Callable[..., Any]] = {
    "plain": nodes(wide, input_nodes=torch.arange(0, NODES, 2)),
    "with replacement": nodes(wide, replace=True),
    "all neighbours": nodes(wide, (-1, 2)),
    "in order": nodes(wide, shuffle=False, drop_last=True),
    "disjoint": nodes(wide, disjoint=True),
    "by time": nodes(wide, time_attr="time", tokens=6),
    "by time, the last": nodes(wide, time_attr="time", temporal_strategy="last"),
    "given times": nodes(wide, time_attr="time", input_time=torch.arange(NODES) % 7),
    "by weight": nodes(wide, weight_attr="weight"),
    "induced": nodes(wide, subgraph_type="induced"),
    "bfloat16": nodes(functools.partial(wide, torch.bfloat16)),
    "float16": nodes(functools.partial(wide, torch.float16)),
    "codes": nodes(lambda: narrow(wide())),
    "int32 edges": nodes(lambda: wide().update({"edge_index": wide().edge_index.int()})),
    "typed": nodes(hetero, **TYPED_SEEDS),
    "typed, by time": nodes(
        lambda: _timed_everywhere(hetero()), input_nodes=("paper", torch.arange(30)), time_attr="when"
    ),
    "typed, disjoint": nodes(hetero, disjoint=True, **TYPED_SEEDS),
    "typed, induced": nodes(hetero, subgraph_type="induced", **TYPED_SEEDS),
    "binary links": links(wide, neg_sampling="binary"),
    "labelled links": links(wide, edge_label=torch.arange(EDGES) % 5),
    "triplets": links(wide, neg_sampling="triplet"),
    "links by time": links(
        wide, neg_sampling="binary", time_attr="time", edge_label_time=torch.arange(EDGES) % 10
    ),
    "disjoint links": links(wide, neg_sampling="triplet", disjoint=True),
    "typed links": links(
        typed_link_cases.make_hetero, edge_label_index=typed_link_cases.BUYS, neg_sampling="binary"
    ),
    "typed triplets": links(
        typed_link_cases.make_hetero, edge_label_index=typed_link_cases.BUYS, neg_sampling="triplet"
    ),
    "HGT": hgt(wide),
    "typed HGT": hgt(hetero, input_nodes=("paper", None)),
}
#: Cases whose parts meet all that there is to copy; the others differ in sampling alone.
NATIVE = ("plain", "disjoint", "by time", "codes", "typed", "typed links", "triplets", "typed HGT")
FEW = (*NATIVE, "in order", "bfloat16", "int32 edges", "typed, by time", "labelled links", "binary links")
#: Cases that are no native minibatches.
PYG_CASES = {
    "bidirectional": nodes(wide, subgraph_type="bidirectional"),
    "a hook": nodes(wide, transform_sampler_output=lambda out: out),
    "odd attributes": nodes(lambda: odd(wide())),
}
PLACES: dict[str, dict[str, Any]] = {
    "on the device": {"feature_placement": "device"},
    "on the host": {"feature_placement": "host"},
    "host and cache": {"feature_placement": "host", "device_cache": 6000},
    "automatic": {"pinned_memory": "16KiB", "prefetch": 2},
}


def _timed_everywhere(data: HeteroData) -> HeteroData:
    for name in data.node_types:
        data[name].when = torch.arange(data[name].num_nodes) % 10
    return data


def check(make: Callable[..., Any], place: dict[str, Any], epochs: int = 2) -> Any:
    plain, there = make(), make(device="cpu", **place)
    for _ in range(epochs):
        assert_epoch(there, plain)
    return there


def assert_epoch(there: Any, plain: Any) -> None:
    for one, other in zip(plain, there, strict=True):
        assert_same(other, one)


@each
@pytest.mark.filterwarnings("ignore:a batch takes")
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("case", [*FEW, *in_all(*(name for name in CASES if name not in FEW)), *PYG_CASES])
def test_pyg_batches(case: str, place: str) -> None:
    make = {**CASES, **PYG_CASES}[case]
    options = PLACES[place]
    if case in ("bidirectional", "a hook"):  # put together by the CPU
        options = {name: value for name, value in options.items() if name in ("pinned_memory", "prefetch")}
    check(make, options)


@each
@pytest.mark.parametrize("place", [name for name in PLACES if name != "automatic"])
@pytest.mark.parametrize("case", [*NATIVE, *in_all(*(name for name in CASES if name not in NATIVE))])
def test_native_minibatches(case: str, place: str) -> None:
    check(functools.partial(CASES[case], export="native"), PLACES[place], epochs=1)


@pytest.mark.parametrize("export", ["pyg", "native"])
def test_stores_and_files(export: str, tmp_path: Path) -> None:
    """What only the CPU can read is read there, and copied."""
    data = wide()
    for name in ("whole", "words", "train_mask"):
        del data[name]
    check(nodes(lambda: stores_of(data, "coo"), export=export, input_nodes=torch.arange(60)), {})
    filed = with_files(wide(), tmp_path)
    check(nodes(lambda: filed, export=export, memory_budget="10KiB"), {"prefetch": 1})
    with pytest.raises(
        ValueError, match="device_cache=100 is for the tables of a Data in memory, but attributes"
    ):
        nodes(lambda: stores_of(data, "coo"))(device="cpu", device_cache=100)


def test_single_calls_and_tools_of_pyg() -> None:
    given = {"filter_per_worker": False}
    plain = CASES["plain"](**given)
    there = CASES["plain"](device="cpu", feature_placement="host", **given)
    at = torch.tensor([3, 1, 8])
    assert_same(there(at), plain(at))
    assert_same(there.collate_fn(at.tolist()), plain(at))
    assert_same(there.filter_fn(plain.collate_fn(at)), plain(at))


def test_a_transform_and_an_attribute_of_pinning() -> None:
    """`pin_memory` has nothing left to do, so that a script need not take it away."""

    def doubled(batch: Any) -> Any:
        batch.x = batch.x * 2
        return batch

    check(nodes(wide, transform=doubled, pin_memory=True), {"feature_placement": "host"})


@pytest.mark.parametrize("place", PLACES)
def test_a_script_that_changes_its_data(place: str) -> None:
    """What torch writes, and what a script puts into the data, is seen by the next epoch."""
    data = wide()
    there = nodes(lambda: data)(device="cpu", **{**PLACES[place], "pinned_memory": None})
    plain = nodes(lambda: data)()
    changes: list[Callable[[], Any]] = [
        lambda: data.x.mul_(2),
        lambda: data.update({"x": torch.randn(NODES, 5)}),
        lambda: data.update({"more": torch.randn(NODES, 3, 7)}),
        lambda: setattr(there, "data", wide()) or setattr(plain, "data", there.data),
    ]
    for change in changes:
        assert_epoch(there, plain)
        change()
    assert_epoch(there, plain)


@pytest.mark.parametrize("place", PLACES)
def test_a_table_that_has_become_too_short(place: str) -> None:
    """No row beyond its end is read, by whomever."""
    data = wide()
    data.num_nodes = NODES
    loader = nodes(lambda: data)(device="cpu", **PLACES[place])
    native = nodes(lambda: data, export="native")(device="cpu", **PLACES[place])
    list(loader)
    list(native)
    data._store._mapping["x"] = data.x[: NODES // 2].clone()  # PyG still takes it for one of nodes
    with pytest.raises(IndexError, match="has no row"):
        list(loader)
    with pytest.raises(ValueError, match="make a new loader"):
        list(native)


def test_what_the_system_locks_none_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """The CPU gathers rows though the device could read them. Copies come from pageable memory."""
    monkeypatch.setattr(device_stage, "lane_of", lambda _: CpuLane(limit=0, reads_host=True))
    with pytest.warns(UserWarning, match="cannot be pinned"):
        there = check(CASES["plain"], {"feature_placement": "host", "device_cache": 6000})
    held = there.stats().device
    assert held.registered_bytes == held.pinned_peak == 0 < held.pageable_copies


def test_sparse_features() -> None:
    data = wide()
    data.sparse = torch.eye(NODES).to_sparse()
    for one, other in zip(nodes(lambda: data)(), nodes(lambda: data)(device="cpu"), strict=True):
        assert other.sparse.is_sparse and other.sparse.to_dense().equal(one.sparse.to_dense())


def test_a_gradient_flows_back_to_learned_features() -> None:
    data = odd(wide())
    for batch in nodes(lambda: data)(device="cpu"):
        batch.learned.sum().backward()
        break
    assert data.learned.grad is not None and data.learned.grad.sum() > 0


@each
@pytest.mark.parametrize("export", ["pyg", "native"])
@pytest.mark.parametrize("case", [*NATIVE, *in_all(*(name for name in CASES if name not in NATIVE))])
def test_every_tensor_of_a_batch_is_handed_over(case: str, export: str) -> None:
    """The memory of one that is not would be used again while the user's stream reads it."""
    batch = next(iter(CASES[case](device="cpu", export=export, feature_placement="host")))
    known = {one.untyped_storage().data_ptr() for one in tensors_of(batch)}
    found: set[int] = set()

    class Search(pickle.Pickler):
        def persistent_id(self, value: Any) -> str | None:
            if not isinstance(value, torch.Tensor):
                return None
            is_narrow = isinstance(value, QuantizedTensor)
            parts = (value.codes, value.decoding) if is_narrow else (value,)
            found.update(one.untyped_storage().data_ptr() for one in parts)
            return "a tensor"

    Search(io.BytesIO()).dump(batch)
    assert found and found <= known


@each
@pytest.mark.parametrize("export", ["pyg", "native"])
@pytest.mark.parametrize("case", [*NATIVE, *in_all(*(name for name in CASES if name not in NATIVE))])
def test_the_host_waits_for_no_value(case: str, export: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The device's tensors have no values here: to look at one is an error."""

    class Blind(CpuLane):
        device = torch.device("meta")

    monkeypatch.setattr(device_stage, "lane_of", lambda _: Blind())
    for batch in CASES[case](device="cpu", export=export, feature_placement="host", device_cache=6000):
        assert next(tensors_of(batch)).is_meta


@pytest.mark.parametrize("taken", [None, 1, 4])
def test_no_kernel_reads_tables_of_the_host_after_an_epoch(
    taken: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A script may write to them then, though the host is ahead of the device."""

    class Busy(CpuLane):
        queued = over = 0

        def mark(self) -> Any:
            self.queued += 1
            return Moment(self, self.queued)

    class Moment:
        def __init__(self, lane: Busy, number: int) -> None:
            self.lane, self.number = lane, number

        def done(self) -> bool:
            return self.number <= self.lane.over

        def wait(self) -> None:
            self.lane.over = max(self.lane.over, self.number)

    lane = Busy()
    monkeypatch.setattr(device_stage, "lane_of", lambda _: lane)
    batches = iter(CASES["plain"](device="cpu", feature_placement="host"))
    assert list(itertools.islice(batches, taken))
    batches.close()
    assert lane.over == lane.queued > 0


@pytest.mark.parametrize("export", ["pyg", "native"])
@pytest.mark.parametrize("cache", [0, 40 * 48 + 4 * NODES])
@pytest.mark.parametrize("fetch_size", [1, 3])
def test_rows_by_source(export: str, cache: int, fetch_size: int) -> None:
    """The counts are those of the formula: distinct rows of a fetch group, split by the cache."""
    data = Data(x=torch.randn(NODES, 12), edge_index=wide().edge_index, y=torch.arange(NODES))
    loader = nodes(lambda: data, export=export, fetch_size=fetch_size)(
        device="cpu", feature_placement="host", device_cache=cache or None
    )
    ids = [batch.n_id for batch in loader]
    groups = [
        torch.cat(macro[at : at + fetch_size]).unique()
        for macro in (ids[begin : begin + 3] for begin in range(0, len(ids), 3))
        for at in range(0, len(macro), fetch_size)
    ]
    placed = loader._stage.placed
    (table,) = placed.every_host_table()
    kept = torch.empty(0, dtype=torch.int64) if table.slots is None else table.slots.node
    assert kept.numel() == (40 if cache else 0)
    hits = sum(int(torch.isin(group, kept).sum()) for group in groups)
    rows = sum(map(len, groups))
    total = loader.stats().total
    assert (total.rows_from_device_cache, total.rows_over_bus) == (hits, rows - hits)
    assert (total.bytes_from_device_cache, total.bytes_over_bus) == (48 * hits, 48 * (rows - hits))
    of_labels = rows if export == "native" else sum(map(len, ids))  # a native block has all attributes
    assert (total.rows_from_device, total.bytes_from_device) == (of_labels, 8 * of_labels)
    held = loader.stats().device
    assert held is not None and held.table_bytes == 8 * NODES
    assert held.cache_bytes == (cache if cache else 0)
    assert total.topology_over_bus > 4 * (total.nodes + total.edges)


@pytest.mark.parametrize("place", PLACES)
def test_the_memory_of_the_host_keeps_to_the_budget(place: str) -> None:
    """Minibatches that are sampled, scratch memory and pinned memory together."""
    budget = 16 << 20
    data = loader_cases.make_data(20_000, 200_000)
    data.x = torch.randn(20_000, 64)
    del data.edge_attr
    given = {"batch_size": 256, "fetch_size": "auto", "macrobatch_size": "auto", "memory_budget": budget}
    options = {name: value for name, value in PLACES[place].items() if name == "feature_placement"}
    gc.collect()
    ops.empty_cache()
    before = ops.memory_stats().live
    ops.reset_peak()
    loader = nodes(lambda: data, **given)(device="cpu", **options)
    for _ in loader:
        pass
    held = loader.stats().device
    assert held is not None and 0 < held.pinned_peak <= budget // 2 and held.pageable_copies == 0
    assert held.batches_peak > 0
    assert ops.memory_stats().peak - before <= budget
    assert held.block_peak <= budget // 4 and (held.block_peak > 0) == (
        place in ("on the host", "host and cache")
    )


def test_the_cache_holds_the_rows_that_are_needed_most() -> None:
    """A few nodes have all the out-edges: their rows are the cache."""
    hubs, targets = torch.arange(20).repeat(40), torch.arange(NODES).repeat(3)[:800]
    data = Data(x=torch.randn(NODES, 12), edge_index=torch.stack([hubs, targets]))
    loader = nodes(lambda: data)(
        device="cpu",
        feature_placement="host",
        device_cache=20 * 48 + 4 * NODES,
        input_nodes=torch.arange(50, 300),
    )
    list(loader)
    (table,) = loader._stage.placed.every_host_table()
    assert table.slots.node.tolist() == list(range(20))


class StopError(Exception):
    pass


@pytest.mark.parametrize("make", ["plain", "typed", "triplets"])
def test_a_thousand_iterators_that_are_broken_off(make: str) -> None:
    """Whatever the moment: no thread is left, and no pinned memory beyond that of one iterator."""
    loader = CASES[make](
        device="cpu", feature_placement="host", batch_size=8, macrobatch_size=1, fetch_size=1
    )
    pinned = 0
    for number in range(1000 if make == "plain" and ALL else 100):
        batches = iter(loader)
        for _ in range(number % 4):
            next(batches)
        if number % 3 == 0:
            batches.close()
        elif number % 3 == 1:
            with pytest.raises(StopError):
                _fail(batches)
        del batches
        if number == 20:
            pinned = loader.stats().device.pinned_bytes
    assert not [one.name for one in threading.enumerate() if one.name.startswith("macrobatch")]
    assert loader.stats().device.pinned_bytes <= max(pinned, 1 << 18) and loader._stage.rows.pool.in_use == 0
    del loader
    gc.collect()
    assert locked_bytes() == 0


def _fail(batches: Any) -> None:
    for _ in batches:
        raise StopError


def test_batches_that_are_kept_stay_as_they_are() -> None:
    """Pinned memory is used again, and what was handed out is not touched."""
    loader, plain = CASES["plain"](device="cpu", feature_placement="host"), CASES["plain"]()
    assert_epoch(list(loader), plain)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"device": "cuda"}, "sees no GPU"),
        ({"device": "mps"}, "must be 'cuda'"),
        ({"device": "nowhere"}, "is no device"),
        ({"device": True}, "must be a name such as 'cuda'"),
        ({"device": "cpu", "num_workers": 2}, "needs no worker processes"),
        ({"device": "cpu", "export": "native", "features": "in_place"}, "feature_placement says where"),
        ({"device": "cpu", "feature_placement": "moon"}, "must be one of 'auto', 'device', 'host'"),
        ({"device": "cpu", "feature_placement": "device", "device_cache": 5}, "leave one of them out"),
        ({"device_cache": 5}, "device_cache=5 is for batches on a device"),
        ({"feature_placement": "host"}, "is for batches on a device"),
        ({"device": "cpu", "pinned_memory": -1}, "pinned_memory must be a number of bytes"),
    ],
)
def test_refusals(given: dict[str, Any], says: str) -> None:
    if given.get("device") == "cuda" and torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises((TypeError, ValueError, RuntimeError), match=says):
        nodes(wide)(**given)
