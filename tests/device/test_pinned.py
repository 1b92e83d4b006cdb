"""Pinned memory, of which none is left, and parcels: any tensors in one copy through it."""

from __future__ import annotations

import gc
import mmap
import os
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch_geometric.data import Data

from pyg_batchgnn.device import CpuLane, Parcel, PinnedPool, locked_bytes, map_batch, tensors_of
from pyg_batchgnn.device.pinned import PinnedBlock, described_limit, lock_pages
from pyg_batchgnn.ops import QuantizedTensor
from tests.support.loader_cases import equal

KIB, MIB = 1 << 10, 1 << 20


class Later:
    """A copy that is over when it is told so, or when somebody waits for it."""

    def __init__(self) -> None:
        self.over, self.waited = False, 0

    def done(self) -> bool:
        return self.over

    def wait(self) -> None:
        self.waited += 1
        self.over = True


@pytest.fixture(autouse=True)
def none_is_left() -> Iterator[None]:
    yield
    gc.collect()
    assert locked_bytes() == 0


def test_a_block_is_used_again_when_its_copy_is_over() -> None:
    pool = PinnedPool(CpuLane(), MIB)
    first, copy = pool.take(1000), Later()
    assert first.locked is not None and first.bytes.data_ptr() % mmap.PAGESIZE == 0
    pool.give(first, copy)
    other = pool.take(1000)
    assert other is not first and pool.pinned_bytes == 128 * KIB
    pool.give(other, Later())
    copy.over = True
    assert pool.take(1000) is first
    assert pool.in_use == 128 * KIB


def test_at_the_bound_it_waits_for_the_oldest_copy() -> None:
    pool = PinnedPool(CpuLane(), 128 * KIB)
    copies = [Later(), Later()]
    blocks = [pool.take(1000), pool.take(1000)]
    for block, copy in zip(blocks, copies, strict=True):
        pool.give(block, copy)
    assert pool.take(1000) is blocks[0] and copies[0].waited == 1 and copies[1].waited == 0
    assert pool.pageable == 0


def test_a_larger_block_takes_the_place_of_smaller_ones() -> None:
    pool = PinnedPool(CpuLane(), 256 * KIB)
    for _ in range(2):
        pool.give(pool.take(1000), Later())
    big = pool.take(200 * KIB)
    assert big.locked is not None and big.bytes.numel() == 256 * KIB
    assert pool.pinned_bytes == 256 * KIB == pool.peak_bytes


def test_beyond_the_bound_it_is_pageable_and_says_so() -> None:
    pool = PinnedPool(CpuLane(), 64 * KIB)
    with pytest.warns(UserWarning, match=r"takes 0.1 MiB of pinned memory, but pinned_memory allows 0.1 MiB"):
        block = pool.take(100 * KIB)
    assert block.locked is None and block.bytes.numel() == 100 * KIB
    pool.give(block, Later())
    pool.take(100 * KIB)  # is said once
    assert pool.pageable == 2 and pool.pinned_bytes == 0


def test_what_the_system_refuses_is_pageable_and_says_why() -> None:
    pool = PinnedPool(CpuLane(limit=100 * KIB), MIB)
    assert pool.take(1000).locked is not None
    with pytest.warns(
        UserWarning, match=r"cannot be pinned \(out of memory; the limit of locked memory, ulimit"
    ):
        assert pool.take(60 * KIB).locked is None
    assert pool.take(60 * KIB).locked is None and described_limit()


@given(
    bound=st.integers(0, 8).map(lambda blocks: blocks * 64 * KIB),
    sizes=st.lists(st.integers(1, 300 * KIB), max_size=30),
    over=st.lists(st.booleans(), min_size=30, max_size=30),
)
@pytest.mark.filterwarnings("ignore:a batch takes")
def test_any_order_of_sizes(bound: int, sizes: list[int], over: list[bool]) -> None:
    """The bound holds, no block under way is lent again, and closing leaves nothing."""
    lane = CpuLane()
    pool = PinnedPool(lane, bound)
    given_away: list[tuple[PinnedBlock, Later]] = []
    for size, is_over in zip(sizes, over, strict=False):
        block = pool.take(size)
        assert block.bytes.numel() >= size
        assert all(copy.over for other, copy in given_away if other is block)
        assert pool.pinned_bytes <= bound and sum(lane.registered.values()) == pool.pinned_bytes
        given_away.append((block, Later()))
        pool.give(*given_away[-1])
        given_away[-1][1].over = is_over
    pool.close()
    assert pool.pinned_bytes == 0 and not lane.registered


@pytest.mark.parametrize("rows", [slice(None), slice(10, 20)])
def test_tables_and_their_views_share_a_range(rows: slice) -> None:
    """It stays registered as long as one of them is in use."""
    lane, table = CpuLane(), torch.zeros(100, 50)
    first, second = lock_pages(lane, table), lock_pages(lane, table[rows])
    assert not isinstance(first, str) and not isinstance(second, str)
    assert locked_bytes() == 20_000 and len(lane.registered) == 1
    first.release()
    first.release()
    assert lane.registered == {table.data_ptr(): 20_000}
    del second
    assert not lane.registered


def test_a_range_inside_a_storage_does_not_lock_the_rest() -> None:
    """Torch looks at the first byte of a storage to say whether it is pinned."""

    class AsTorch(CpuLane):
        def has_locked(self, tensor: Tensor) -> bool:
            first = tensor.untyped_storage().data_ptr()
            return any(begin <= first < begin + size for begin, size in self.registered.items())

    lane, table = AsTorch(), torch.zeros(100, 50)
    held = [lock_pages(lane, table[:10])]
    for overlapping in (table, table[5:20]):
        assert isinstance(lock_pages(lane, overlapping), str)
    held.append(lock_pages(lane, table[50:60]))
    assert [one.nbytes for one in held] == [2000, 2000]  # type: ignore[union-attr]


def test_pages_are_locked_until_the_work_that_reads_them_is_done() -> None:
    class Busy(CpuLane):
        def __init__(self) -> None:
            super().__init__()
            self.marks: list[Later] = []

        def mark(self) -> Later:
            assert self.registered
            self.marks.append(Later())
            return self.marks[-1]

        def unregister(self, address: int) -> None:
            assert all(one.over for one in self.marks)
            super().unregister(address)

    lane = Busy()
    locked = lock_pages(lane, torch.zeros(10))
    assert not isinstance(locked, str)
    del locked
    assert not lane.registered and len(lane.marks) == 1


def test_a_forked_process_unlocks_nothing() -> None:
    lane = CpuLane()
    pool, locked = PinnedPool(lane, MIB), lock_pages(lane, torch.zeros(10))
    pool.give(pool.take(10), Later())
    child = os.fork()
    if not child:
        del pool, locked
        os._exit(len(lane.registered))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 2


def test_what_torch_has_locked_is_not_registered_again() -> None:
    class Locked(CpuLane):
        def has_locked(self, tensor: torch.Tensor) -> bool:
            return True

    lane = Locked()
    locked = lock_pages(lane, torch.zeros(10))
    assert not isinstance(locked, str) and locked.nbytes == 0 and not lane.registered
    locked.release()


DTYPES = (torch.int64, torch.int32, torch.float32, torch.bfloat16, torch.bool, torch.uint8, torch.complex64)


def parcel() -> Parcel:
    lane = CpuLane()
    return Parcel(lane, PinnedPool(lane, 1 << 20))


@st.composite
def tensors(draw: st.DrawFn) -> Tensor:
    shape = draw(st.lists(st.integers(0, 5), max_size=3))
    made = torch.randint(0, 9, shape).to(draw(st.sampled_from(DTYPES)))
    return made.transpose(0, -1) if shape and draw(st.booleans()) else made


@given(sent=st.lists(tensors(), max_size=8), bound=st.sampled_from([None, 9, 1 << 31, (1 << 31) + 1]))
def test_any_tensors(sent: list[Tensor], bound: int | None) -> None:
    made = parcel()
    for one in [*sent, *sent]:
        assert made.add(one, bound) is one
    made.send()
    narrow = bound is not None and bound <= 1 << 31
    sizes = [one.numel() * (4 if narrow and one.dtype is torch.int64 else one.itemsize) for one in sent]
    assert made.nbytes == sum(-(-size // 16) * 16 for size in sizes)
    for one in sent:
        assert equal(made[one], one) and (not one.numel() or made[one].data_ptr() != one.data_ptr())


def test_what_is_not_plain_travels_alone() -> None:
    sparse, learned = torch.eye(3).to_sparse(), torch.ones(2, requires_grad=True)
    codes = QuantizedTensor(torch.ones(2, 3, dtype=torch.int8), torch.ones(2, 3))
    made = parcel()
    for one in (sparse, learned, codes):
        made.add(one)
    made.send()
    assert made[sparse].is_sparse and made[learned].requires_grad and isinstance(made[codes], QuantizedTensor)


def test_tensors_of_a_batch() -> None:
    """Each storage once; those inside of others and of lists too."""
    x = torch.arange(6.0).view(3, 2)
    table = QuantizedTensor(torch.ones(3, 2, dtype=torch.int8), torch.ones(2, 2))
    batch = Data(x=x, y=x[0], lists=[torch.ones(1), {"a": torch.ones(2)}], codes=table, words=["a"], number=3)
    batch.sparse = torch.eye(2).to_sparse()
    asked: list[bool] = []

    def coo() -> tuple[()]:
        asked.append(True)
        return ()

    batch.other = SimpleNamespace(to=None, coo=coo)
    found = tensors_of(batch)
    assert not asked  # parts of it would be computed before the batch is handed over
    assert not list(found)[4 + 3 :] and asked
    del batch.other
    assert len(list(tensors_of(batch))) == 1 + 2 + 2 + 2
    map_batch(batch, lambda one: one * 2 if isinstance(one, Tensor) and one.is_floating_point() else one)
    assert batch.x[0, 1] == 2 and batch.lists[1]["a"].tolist() == [2, 2] and batch.words == ["a"]
