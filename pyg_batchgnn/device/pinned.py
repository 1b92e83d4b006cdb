"""Page-locked memory of the host: blocks of the package's pool, and tables of the user.

Pages are registered by address and unregistered before their memory is given back.
"""

from __future__ import annotations

import mmap
import os
import resource
import threading
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.device.lane import CpuLane, Ticket

# Registered ranges ################################################################################


#: The device type and the address of a registered range.
_Key: TypeAlias = tuple[str, int]


class LockedRange:
    """Keeps a tensor's pages registered (page-locked) as long as this object lives."""

    def __init__(self, lane: CpuLane, tensor: Tensor, key: _Key | None) -> None:
        self.nbytes = 0 if key is None else tensor.nbytes
        self._release = weakref.finalize(self, _release, lane, tensor, key, os.getpid())

    def release(self) -> None:
        self._release()


@dataclass
class _Held:
    count: int  # holders
    nbytes: int


#: Registered ranges. Loaders of one table, or of views of it, share its range.
_HELD: dict[_Key, _Held] = {}
_LOCK = threading.RLock()  # the garbage collector may release one range while another is registered


def lock_pages(lane: CpuLane, tensor: Tensor) -> LockedRange | str:
    """Page-locks a contiguous CPU tensor; returns the reason if that is impossible."""
    device = lane.device.type
    with _LOCK:
        key = next(_ranges(device, tensor.data_ptr(), tensor.nbytes, is_inside=True), None)
        if key is None:
            storage = tensor.untyped_storage()
            # A storage of which a range of ours is a part looks as if torch had locked all of it.
            is_ours = any(_ranges(device, storage.data_ptr(), storage.nbytes()))
            if not is_ours and lane.has_locked(tensor):
                return LockedRange(lane, tensor, None)
            reason = lane.register(tensor.data_ptr(), tensor.nbytes)
            if reason is not None:
                return reason
            key = device, tensor.data_ptr()
            _HELD[key] = _Held(0, tensor.nbytes)
        _HELD[key].count += 1
        return LockedRange(lane, tensor, key)


def _ranges(device: str, begin: int, nbytes: int, is_inside: bool = False) -> Iterator[_Key]:
    """Yields the registered ranges that share a page with some bytes, or contain them."""
    end, page = begin + nbytes, mmap.PAGESIZE
    for key, held in _HELD.items():
        first, last = key[1], key[1] + held.nbytes
        is_near = first // page <= (end - 1) // page and begin // page <= (last - 1) // page
        if key[0] == device and (first <= begin and end <= last if is_inside else is_near):
            yield key


def _release(lane: CpuLane, tensor: Tensor, key: _Key | None, process: int) -> None:
    if os.getpid() != process:  # a forked process has no part in the device
        return
    lane.mark().wait()  # for the kernels that read the tensor, which was kept until now
    del tensor
    if key is None:
        return
    with _LOCK:
        held = _HELD[key]
        held.count -= 1
        if held.count == 0:
            del _HELD[key]
            lane.unregister(key[1])


def locked_bytes() -> int:
    """Returns the bytes of host memory that this process has registered for devices."""
    with _LOCK:
        return sum(held.nbytes for held in _HELD.values())


def described_limit() -> str:
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    return "unlimited" if soft == resource.RLIM_INFINITY else f"{soft / 2**20:.0f} MiB"


# Blocks ###########################################################################################

#: A new block has room for this share more than was asked for, since minibatches vary.
_MARGIN = 4
#: The sizes of new blocks are multiples of this number of bytes.
_UNIT = 1 << 16


@dataclass(eq=False)
class PinnedBlock:
    """Bytes of host memory, pageable if `locked` is None."""

    bytes: Tensor  # [n] uint8
    locked: LockedRange | None = None


class PinnedPool:
    """Blocks of pinned (page-locked) host memory, reused once their copy is over. A block beyond
    the bound, or one that the system refuses to lock, is pageable: its copy is slower."""

    def __init__(self, lane: CpuLane, bound: int) -> None:
        self.lane, self.bound = lane, bound
        self.pinned_bytes = self.peak_bytes = self.pageable = 0
        self._free: list[PinnedBlock] = []
        self._under_way: deque[tuple[PinnedBlock, Ticket]] = deque()
        self._refused = False
        self._lock, self._process = threading.RLock(), os.getpid()

    def take(self, nbytes: int) -> PinnedBlock:
        """Returns a block of at least ``nbytes`` bytes."""
        with self._lock:
            while True:
                self._reclaim()
                fitting = [block for block in self._free if block.bytes.numel() >= nbytes]
                if fitting:
                    found = min(fitting, key=lambda block: block.bytes.numel())
                    self._free.remove(found)
                    return found
                size = min(-(-(nbytes + nbytes // _MARGIN) // _UNIT) * _UNIT, max(self.bound, nbytes))
                if self.pinned_bytes + size <= self.bound:
                    return self._new(size)
                if nbytes > self.bound or not (self._free or self._under_way):
                    self._warn_of_bound(nbytes)
                    return self._pageable(nbytes)
                if self._free:
                    self._drop(self._free.pop())
                else:
                    self._under_way[0][1].wait()

    def give(self, block: PinnedBlock, ticket: Ticket) -> None:
        """Takes a block back, to be reused when ``ticket``, the end of its copy, is done."""
        if block.locked is not None:
            with self._lock:
                self._under_way.append((block, ticket))

    def close(self) -> None:
        """Waits for copies under way and unlocks all memory. The pool can be used again."""
        with self._lock:
            while self._under_way:
                block, ticket = self._under_way.popleft()
                ticket.wait()
                self._free.append(block)
            while self._free:
                self._drop(self._free.pop())

    @property
    def in_use(self) -> int:
        """The bytes of pinned blocks with copies under way."""
        with self._lock:
            self._reclaim()
            return self.pinned_bytes - sum(block.bytes.numel() for block in self._free)

    def __del__(self, process: Callable[[], int] = os.getpid) -> None:  # names of modules may be gone
        if process() == self._process:
            self.close()

    def _reclaim(self) -> None:
        while self._under_way and self._under_way[0][1].done():
            self._free.append(self._under_way.popleft()[0])

    def _new(self, size: int) -> PinnedBlock:
        if self._refused:
            return self._pageable(size)
        # Whole pages: the pool's own notes lie in the page before.
        whole = ops.empty((size + mmap.PAGESIZE,), torch.uint8)
        begin = -whole.data_ptr() % mmap.PAGESIZE
        pages = whole[begin : begin + size]
        locked = lock_pages(self.lane, pages)
        if isinstance(locked, str):
            self._refused = True
            warnings.warn(
                f"{size / 2**20:.1f} MiB of host memory cannot be pinned ({locked}; the limit of locked "
                f"memory, ulimit -l, is {described_limit()}): batches are copied from pageable memory, which "
                f"is slower; raise the limit, or set pinned_memory to what can be locked",
                stacklevel=2,
            )
            return self._pageable(size)
        self.pinned_bytes += size
        self.peak_bytes = max(self.peak_bytes, self.pinned_bytes)
        return PinnedBlock(pages, locked)

    def _pageable(self, nbytes: int) -> PinnedBlock:
        self.pageable += 1
        return PinnedBlock(ops.empty((nbytes,), torch.uint8))

    def _drop(self, block: PinnedBlock) -> None:
        assert block.locked is not None
        self.pinned_bytes -= block.bytes.numel()
        block.locked.release()

    def _warn_of_bound(self, nbytes: int) -> None:
        if self.pageable == 0:
            warnings.warn(
                f"a batch takes {nbytes / 2**20:.1f} MiB of pinned memory, but pinned_memory allows "
                f"{self.bound / 2**20:.1f} MiB in all: it is copied from pageable memory, which is slower; "
                f"give a larger pinned_memory or a smaller batch_size",
                stacklevel=2,
            )
