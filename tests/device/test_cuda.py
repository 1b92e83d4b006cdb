"""Tests that need a GPU; all else is tested with the CPU for a device."""

from __future__ import annotations

import gc
from typing import Any

import pytest
import torch

from pyg_batchgnn import MacrobatchNeighborLoader
from pyg_batchgnn.device import CudaLane, PinnedPool, lane_of, locked_bytes
from tests.loader.test_on_device import CASES, PLACES, PYG_CASES, wide
from tests.support.rank_epochs import assert_same

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")


@pytest.mark.filterwarnings("ignore:a batch takes")
@pytest.mark.parametrize("reads_host", [True, False])
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("case", [*CASES, *PYG_CASES])
def test_bits(case: str, place: str, reads_host: bool) -> None:
    """All batches, brought back, are the CPU's, whoever reads the host's rows."""
    make = {**CASES, **PYG_CASES}[case]
    options = {} if case in ("bidirectional", "a hook") else PLACES[place]
    there = make(device="cuda", **options)
    there._stage.lane.reads_host &= reads_host
    for _ in range(2):
        for one, other in zip(make(), there, strict=True):
            for store in other.stores:
                for name, value in store.items():
                    assert not isinstance(value, torch.Tensor) or value.is_cuda, name
            assert_same(other.cpu(), one)


@pytest.mark.parametrize("place", PLACES)
def test_native_minibatches(place: str) -> None:
    there, plain = (
        CASES["plain"](export="native", **given) for given in ({"device": "cuda", **PLACES[place]}, {})
    )
    for one, other in zip(plain, there, strict=True):
        assert other.node.is_cuda and other.edge_index.is_cuda and other.x.is_cuda
        assert_same(other.to_data().cpu(), one.to_data())


def test_the_lane() -> None:
    lane = lane_of(torch.device("cuda", 0))
    assert isinstance(lane, CudaLane) and lane.free_bytes() > 0
    pool = PinnedPool(lane, 1 << 20)
    block = pool.take(1000)
    assert block.locked is not None
    assert lane.register(block.bytes.data_ptr(), 4096) is not None  # it is registered already
    assert torch.arange(5, device="cuda").sum() == 10  # and torch is not blamed for that
    ticket = lane.mark()
    ticket.wait()
    assert ticket.done()
    del block, pool
    gc.collect()
    assert locked_bytes() == 0


def test_tables_that_are_pinned_already() -> None:
    """As after ``data.pin_memory()``: they are not registered again."""
    data = wide()
    data.x = data.x.pin_memory()
    there = MacrobatchNeighborLoader(
        data, [4, 3], batch_size=32, seed=7, device="cuda", feature_placement="host"
    )
    for one, other in zip(MacrobatchNeighborLoader(data, [4, 3], batch_size=32, seed=7), there, strict=True):
        assert other.x.cpu().equal(one.x)


def test_two_loaders_of_one_table() -> None:
    data, given = wide(), {"batch_size": 32, "seed": 7}
    plain = MacrobatchNeighborLoader(data, [4, 3], **given)
    plain.set_epoch(1)
    first, second = (
        MacrobatchNeighborLoader(data, [4, 3], device="cuda", feature_placement="host", **given)
        for _ in range(2)
    )
    assert len(list(first)) == len(list(second))
    del first
    gc.collect()
    for one, other in zip(plain, second, strict=True):
        assert other.x.cpu().equal(one.x)


@pytest.mark.parametrize("device", [None, "cuda"])
def test_data_on_the_gpu(device: str | None) -> None:
    """As with PyG's loader, attributes of a batch lie where those of the data do."""
    given: dict[str, Any] = {"batch_size": 32, "seed": 7, "device": device}
    there = MacrobatchNeighborLoader(wide().cuda(), [4, 3], **given)
    plain = MacrobatchNeighborLoader(wide(), [4, 3], batch_size=32, seed=7)
    for one, other in zip(plain, there, strict=True):
        assert other.x.is_cuda and other.edge_index.is_cuda
        assert_same(other.cpu(), one)


def test_training_beside_the_copies() -> None:
    """What steps read is what was handed out, however far the host is ahead of the GPU."""
    plain = CASES["plain"]()
    expected = torch.stack([batch.x.double().sum() for batch in plain])
    weight = torch.randn(4096, 4096, device="cuda")
    sums = []
    for batch in CASES["plain"](device="cuda", feature_placement="host"):
        for _ in range(10):
            weight = (weight @ weight).tanh()  # the GPU lags behind
        sums.append(batch.x.double().sum())
        del batch
    assert torch.stack(sums).cpu().allclose(expected)
