"""Loaders of tables of codes: batches equal those of the decoded tables, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data, TensorAttr

from pyg_batchgnn import MacrobatchNeighborLoader, quantize
from pyg_batchgnn.comm import AgreementError, Communicator, MessageKind
from pyg_batchgnn.data import NODES, from_pyg
from pyg_batchgnn.history import HistoricalCaches, HistoricalSettings
from pyg_batchgnn.nn import SAGE
from pyg_batchgnn.ops import QuantizedTensor
from pyg_batchgnn.partition import (
    Part,
    load_partition,
    partition,
    partition_parts,
    quantize_partition,
    save_partition,
    verify_partition,
)
from pyg_batchgnn.sample import Placement
from pyg_batchgnn.store import DistFeatureStore, DistGraphStore
from pyg_batchgnn.types import EDGES as EDGE_GROUP
from pyg_batchgnn.types import NODES as NODE_GROUP
from tests.loader.test_on_disk import NOTHING, TYPED, timed, typed
from tests.support import memory_stores
from tests.support.loader_cases import assert_same, make_loader
from tests.support.mapped_data import mapped
from tests.support.quantized_tables import decoded_rows
from tests.support.rank_epochs import assert_same as assert_same_batch
from tests.support.ranks import run_ranks
from tests.support.tiers import each, in_all

pytestmark = pytest.mark.filterwarnings("ignore:memory_budget leaves")

COLUMNS = 32


def plain() -> Data:
    data, draws = timed(), torch.Generator().manual_seed(4)
    del data.weight, data.time
    data.x = torch.randn(data.num_nodes, COLUMNS, generator=draws)
    data.y = data.y.clamp(min=0)
    data.train_mask = torch.arange(data.num_nodes) % 2 == 0
    return data


def train(data: Data) -> Tensor:
    return data.train_mask.nonzero().view(-1)


def stores_of(part: Part, comm: Communicator, **options: Any) -> tuple[DistFeatureStore, DistGraphStore]:
    return DistFeatureStore(part, comm, **options), DistGraphStore(part, comm)


def counts(comm: Communicator) -> None:
    data, seen = plain(), {}
    for name, graph in {"wide": data, "narrow": quantize(data)}.items():
        part = partition(graph, "random", comm=comm)
        loader = MacrobatchNeighborLoader(
            stores_of(part, comm, share=False), [4, 3], train(data),
            batch_size=20, seed=3, export="native", attributes=["x"], macrobatch_size=2,
        )  # fmt: skip
        before = comm.counters.snapshot()
        list(loader)
        seen[name] = (
            loader.stats().total.rows_fetched,
            (comm.counters.snapshot() - before)[MessageKind.FEATURES],
        )
    (rows, wide), (again, codes) = seen["wide"], seen["narrow"]
    assert rows == again and wide.rounds == codes.rounds and wide.rows_sent == codes.rows_sent
    assert (rows > 0) == (comm.size > 1)
    # An id of 4 bytes travels with the features, and an id asks for a row.
    given = (codes.rows_sent - rows) * (COLUMNS + 4)
    assert codes.bytes_received == rows * (COLUMNS + 4) + (codes.rows_received - rows) * 4
    assert codes.bytes_sent == rows * 4 + given
    assert wide.bytes_received - codes.bytes_received == rows * 3 * COLUMNS


def folders(comm: Communicator, folder: str) -> None:
    data = plain()
    path = Path(folder)
    save_partition(partition_parts(data, "random", 3, comm=comm), path / "wide", comm)
    if comm.rank == 0:
        quantize_partition(path / "wide", path / "narrow", attributes=["x", "edge_attr"])
        verify_partition(path / "narrow")
    comm.barrier()
    wanted = quantize(data, attributes=["x", "edge_attr"])
    reference = MacrobatchNeighborLoader(
        decoded(wanted), [4, 3], train(data), batch_size=20, seed=3, export="native"
    )
    for options in ({}, {"memory_budget": 1}, {"memory_budget": 1, "share": False}):
        both = stores_of(load_partition(path / "narrow", comm), comm, **options)
        table = both[0].own.attributes[NODES]["x"]
        assert isinstance(table, QuantizedTensor) and torch.equal(table.decoding, wanted.x.decoding)
        loader = MacrobatchNeighborLoader(both, [4, 3], train(data), batch_size=20, seed=3, export="native")
        for batch in loader:
            assert_same_batch(batch, reference(batch.input_id))


def stores(comm: Communicator) -> None:
    data = quantize(plain())
    part = partition(data, "random", comm=comm)
    store, _ = stores_of(part, comm)
    ids = torch.tensor([5, 5, 0, data.num_nodes - 1])
    rows = store.get_tensor(TensorAttr(None, attr_name="x", index=ids))
    assert type(rows) is Tensor and torch.equal(rows, data.x.dequantize()[ids])
    assert store.fields[NODES]["x"].dtype is torch.float32
    assert store.get_tensor_size(TensorAttr(None, attr_name="x")) == tuple(data.x.shape)
    with pytest.raises(ValueError, match="'x' is int8 codes, which are constant"):
        store.put_tensor(rows, TensorAttr(None, attr_name="x", index=ids))
    with pytest.raises(TypeError, match="would write to a QuantizedTensor"):
        torch.distributed.broadcast(data.x, 0)
    narrow_store, _ = stores_of(part, comm, floats=torch.bfloat16)
    found = narrow_store.get_tensor(TensorAttr(None, attr_name="x", index=ids))
    assert torch.equal(found, data.x.dequantize()[ids].to(torch.bfloat16))
    with pytest.raises(TypeError, match="codes are decoded into"):
        stores_of(part, comm, floats=torch.float16)
    if comm.size > 1:
        other = quantize(data.x.dequantize() * (comm.rank + 1))
        own = {NODES: {**part.attributes[NODES], "x": other[: part.num_nodes]}}
        wrong = Part(**{**vars(part), "attributes": {**part.attributes, **own}})
        with pytest.raises(AgreementError, match="scales and offsets"):
            stores_of(wrong, comm)
        assert from_pyg(data).nodes.tables["x"] is data.x


def historical(comm: Communicator, pushes: Communicator) -> None:
    data, seen, stats = quantize(plain()), list[list[Tensor]](), []
    for graph in (data, decoded(data)):
        both = stores_of(partition(graph, "random", comm=comm), comm)
        caches = HistoricalCaches(both[1], pushes, HistoricalSettings(push=None, delay=1))
        loader = MacrobatchNeighborLoader(
            both, [3, 2], "train", batch_size=10, seed=4, export="native", history=caches,
            attributes=["x", "y"],
        )  # fmt: skip
        torch.manual_seed(1)
        model, logits = SAGE(COLUMNS, 8, 2, 7).train(), []
        for _ in range(2):
            for minibatch in loader:
                assert torch.equal(minibatch.attribute("x"), decoded(data).x[minibatch.node])
                with decoded_rows() as found:
                    logits.append(model(minibatch).detach())
                assert found == [], "the first layer reads codes, of halo nodes too"
        seen.append(logits)
        stats.append(caches.stats())
    narrow_stats, wide = stats
    fetched = wide.features_fetched
    assert narrow_stats.features_fetched == fetched
    assert wide.feature_bytes - narrow_stats.feature_bytes == 3 * COLUMNS * fetched
    for one, other in zip(*seen, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


NARROW = ("x", "edge_attr")


def narrow(data: Any, dtype: torch.dtype = torch.float32) -> Any:
    return quantize(data, attributes=NARROW, dtype=dtype)


def decoded(data: Any) -> Any:
    found = data.clone()
    for store in found.stores:
        for name, value in store.items():
            if isinstance(value, QuantizedTensor):
                store[name] = value.dequantize()
    return found


def in_files(data: Any, folder: Path) -> Any:
    found = data.clone()
    for number, store in enumerate(found.stores):
        for name, value in store.items():
            if isinstance(value, QuantizedTensor):
                store[name] = value.with_codes(mapped(value.codes, folder / f"{name}-{number}.npy"))
    return found


@each
@pytest.mark.parametrize("place", ["auto", "copy", "files"])
@pytest.mark.parametrize("export", ["pyg", "native"])
@pytest.mark.parametrize("mode", TYPED)
def test_typed_batches_are_those_of_the_decoded_tables(
    mode: str, export: str, place: str, tmp_path: Path
) -> None:
    data, options = narrow(typed()), {}
    if place == "files":
        data, options = in_files(data, tmp_path), {"memory_budget": NOTHING}
    elif export == "native":
        options = {"features": place}
    found = TYPED[mode](data, export=export, prefetch=1, **options)
    assert_same(found, TYPED[mode](decoded(narrow(typed())), export=export))


def test_native_batches_read_codes_where_they_lie() -> None:
    data = narrow(timed())
    for batch in make_loader(data, export="native"):
        assert batch.placement is Placement.IN_PLACE
        assert batch.block["x"] is data.x, "the user's own table"
        assert batch.attributes[EDGE_GROUP].tables["edge_attr"] is data.edge_attr


@pytest.mark.parametrize("workers", [0, 2])
def test_blocks_of_copies_hold_codes(workers: int) -> None:
    data = narrow(timed())
    loader = make_loader(data, export="native", features="copy", num_workers=workers)
    for batch, other in zip(loader, make_loader(decoded(data), export="native"), strict=True):
        table = batch.block["x"]
        assert isinstance(table, QuantizedTensor) and batch.placement is Placement.BLOCK
        assert len(table) < len(data.x) + 1 and torch.equal(table.decoding, data.x.decoding)
        assert torch.equal(batch.x, other.x) and torch.equal(batch.edge_attr, other.edge_attr)
        assert type(batch.x) is Tensor


@pytest.mark.parametrize("export", ["pyg", "native"])
def test_feature_stores(export: str) -> None:
    data = narrow(timed())
    found, wanted = (memory_stores.stores_of(one, "csc") for one in (data, decoded(data)))
    assert_same(make_loader(found, export=export), make_loader(wanted, export=export))


@each
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("budget", [NOTHING, "1GiB", None])
@pytest.mark.parametrize("export", ["pyg", "native"])
def test_codes_in_files(export: str, budget: Any, dtype: torch.dtype, tmp_path: Path) -> None:
    data = narrow(timed(), dtype)
    found = make_loader(in_files(data, tmp_path), shuffle=True, export=export, memory_budget=budget)
    wanted = make_loader(decoded(data), shuffle=True, export=export)
    for _ in range(2):
        assert_same(found, wanted)
    if budget == NOTHING:
        counts = found.stats().total
        assert counts.disk_bytes > counts.disk_useful > 0
        for batch in found if export == "native" else ():
            assert isinstance(batch.block["x"], QuantizedTensor)


def test_codes_in_memory_beside_a_table_in_a_file(tmp_path: Path) -> None:
    data = narrow(timed())
    data.other = mapped(torch.randn(data.num_nodes, 3), tmp_path / "other.npy")
    found = make_loader(data, export="native", memory_budget=NOTHING)
    for batch, other in zip(found, make_loader(decoded(data), export="native"), strict=True):
        assert isinstance(batch.block["x"], QuantizedTensor)
        assert torch.equal(batch.x, other.x)
        assert torch.equal(batch.attribute("other"), other.attribute("other"))


def test_weights_of_edges_may_be_codes() -> None:
    data = timed()
    data.weight = quantize(data.weight)
    found = make_loader(data, weight_attr="weight")
    assert_same(found, make_loader(decoded(data), weight_attr="weight"))


def test_dgl_and_layers_get_floats() -> None:
    data = narrow(timed())
    for batch in make_loader(data, export="native"):
        rows, targets = batch.layer(1).rows()
        assert type(rows) is Tensor and torch.equal(rows, data.x.dequantize()[batch.node])
        assert torch.equal(targets, rows[: len(targets)])
        assert type(batch.layer(1).edge_attribute()) is Tensor
        assert batch.attributes[NODE_GROUP].nbytes == 0


@pytest.mark.parametrize("job", [counts, stores, historical])
@pytest.mark.parametrize(("ranks", "hosts"), [*in_all((1, [0]), (4, [0, 1, 2, 0])), (2, [0, 1])], ids=str)
def test_codes_over_ranks(job: Callable[..., Any], ranks: int, hosts: list[int]) -> None:
    run_ranks(job, ranks, hosts=hosts)


@pytest.mark.parametrize(("ranks", "hosts"), [*in_all((1, [0]), (2, [0, 0])), (3, [0, 1, 1])], ids=str)
def test_a_quantised_partition(ranks: int, hosts: list[int], tmp_path: Path) -> None:
    run_ranks(folders, ranks, {"folder": str(tmp_path)}, hosts=hosts)


@pytest.mark.parametrize("on_disk", [False, True])
def test_memory_of_pyg_batches_is_that_of_floats(on_disk: bool, tmp_path: Path) -> None:
    data = narrow(timed())
    data = in_files(data, tmp_path) if on_disk else data
    batches = [make_loader(one, memory_budget=NOTHING) for one in (data, decoded(narrow(timed())))]
    costs = []
    for loader in batches:
        parts = loader._setup
        sampled = parts.pipeline.sampler.sample([torch.arange(32)], 0)
        costs.append(parts.cost(sampled).batch)
    assert costs[0] == costs[1] > 0
