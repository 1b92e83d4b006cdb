"""Loaders of tables of codes: batches equal those of the decoded tables, bit for bit."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data

from pyg_batchgnn import quantize
from pyg_batchgnn.ops import QuantizedTensor
from pyg_batchgnn.sample import Placement
from pyg_batchgnn.types import EDGES as EDGE_GROUP
from pyg_batchgnn.types import NODES as NODE_GROUP
from tests.loader.test_on_disk import MODES, NOTHING, SIZES, TYPED, timed, typed
from tests.support import memory_stores
from tests.support.loader_cases import assert_same, make_loader
from tests.support.mapped_data import mapped
from tests.support.ranks import run_ranks
from tests.support.tiers import in_all

NARROW = ("x", "edge_attr")


@pytest.fixture(autouse=True)
def _small_budgets_warn() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "memory_budget leaves")
        yield


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


# One process ######################################################################################


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("sizes", SIZES, ids=lambda sizes: str(sizes["macrobatch_size"]))
@pytest.mark.parametrize("export", ["pyg", "native"])
@pytest.mark.parametrize("mode", ["plain", "disjoint", "induced", "links"])
def test_batches_are_those_of_the_decoded_tables(
    mode: str, export: str, sizes: dict[str, Any], dtype: torch.dtype
) -> None:
    data = narrow(timed(), dtype)
    assert_same(MODES[mode](data, export=export, **sizes), MODES[mode](decoded(data), export=export, **sizes))


@pytest.mark.parametrize("features", ["auto", "copy"])
@pytest.mark.parametrize("export", ["pyg", "native"])
@pytest.mark.parametrize("mode", TYPED)
def test_typed_batches_are_those_of_the_decoded_tables(mode: str, export: str, features: str) -> None:
    data = narrow(typed())
    options = {"features": features} if export == "native" else {}
    found = TYPED[mode](data, export=export, prefetch=1, **options)
    assert_same(found, TYPED[mode](decoded(data), export=export))


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


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_batches_of_worker_processes(context: str) -> None:
    data = narrow(timed())
    found = make_loader(data, num_workers=1, multiprocessing_context=context)
    assert_same(found, make_loader(decoded(data)))


def test_the_bytes_that_are_counted_are_those_of_codes() -> None:
    data = narrow(timed())
    options: dict[str, Any] = {"export": "native", "features": "copy", "attributes": ["x"]}
    found, wide = make_loader(data, **options), make_loader(decoded(data), **options)
    for loader in (found, wide):
        list(loader)
    assert found.stats().total.bytes_gathered * 4 == wide.stats().total.bytes_gathered > 0


@pytest.mark.parametrize("export", ["pyg", "native"])
def test_feature_stores(export: str) -> None:
    data = narrow(timed())
    found, wanted = (memory_stores.stores_of(one, "csc") for one in (data, decoded(data)))
    assert_same(make_loader(found, export=export), make_loader(wanted, export=export))


# Files ############################################################################################


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


@pytest.mark.parametrize("export", ["pyg", "native"])
@pytest.mark.parametrize("mode", TYPED)
def test_typed_codes_in_files(mode: str, export: str, tmp_path: Path) -> None:
    data = narrow(typed())
    found = TYPED[mode](in_files(data, tmp_path), export=export, memory_budget=NOTHING, prefetch=1)
    assert_same(found, TYPED[mode](decoded(data), export=export))


def test_codes_in_memory_beside_a_table_in_a_file(tmp_path: Path) -> None:
    data = narrow(timed())
    data.other = mapped(torch.randn(data.num_nodes, 3), tmp_path / "other.npy")
    found = make_loader(data, export="native", memory_budget=NOTHING)
    for batch, other in zip(found, make_loader(decoded(data), export="native"), strict=True):
        assert isinstance(batch.block["x"], QuantizedTensor)
        assert torch.equal(batch.x, other.x)
        assert torch.equal(batch.attribute("other"), other.attribute("other"))


# What is refused or decoded #######################################################################


def test_codes_that_were_written_to_are_refused(tmp_path: Path) -> None:
    data = in_files(narrow(timed()), tmp_path)
    loader = make_loader(data, export="native", memory_budget=NOTHING)
    data.x.codes[3] += 1
    with pytest.raises(ValueError, match="'x' is mapped from a file and was written to"):
        list(loader)


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


def test_changed_tables_are_seen() -> None:
    data: Data = narrow(timed())
    loader = make_loader(data, export="native")
    next(iter(loader))
    data.x = quantize(torch.randn(*data.x.shape))
    for batch in loader:
        assert torch.equal(batch.x, data.x.dequantize()[batch.node])


# Ranks ############################################################################################

JOBS = "tests.loader.job_quantized"


@pytest.mark.parametrize("job", ["counts", "caches", "stores", "historical"])
@pytest.mark.parametrize(("ranks", "hosts"), [*in_all((1, [0]), (4, [0, 1, 2, 0])), (2, [0, 1])], ids=str)
def test_codes_over_ranks(job: str, ranks: int, hosts: list[int]) -> None:
    if job != "caches" or ranks > 1:
        run_ranks(f"{JOBS}:{job}", ranks, hosts=hosts)


@pytest.mark.parametrize(("ranks", "hosts"), [*in_all((1, [0])), (2, [0, 0]), (3, [0, 1, 1])], ids=str)
def test_a_quantised_partition(ranks: int, hosts: list[int], tmp_path: Path) -> None:
    run_ranks(f"{JOBS}:folders", ranks, {"folder": str(tmp_path)}, hosts=hosts)


@pytest.mark.parametrize("on_disk", [False, True])
def test_memory_of_pyg_batches_is_that_of_floats(on_disk: bool, tmp_path: Path) -> None:
    data = narrow(timed())
    data = in_files(data, tmp_path) if on_disk else data
    batches = [make_loader(one, memory_budget=NOTHING) for one in (data, decoded(narrow(timed())))]
    costs = []
    for loader in batches:
        parts = loader._parts
        sampled = parts.pipeline.sampler.sample([torch.arange(32)], 0)
        costs.append(parts.cost(sampled).batch)
    assert costs[0] == costs[1] > 0
