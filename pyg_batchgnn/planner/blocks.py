"""A simulation of the package's block cache (csrc/kernels/allocation.cpp) with sizes alone.

The memory that a process keeps depends on the order of the sizes. A block that was given back
serves a later request of its size class or of one of the two classes below it. It is dropped only
if much more is kept than was ever in use at once. A process may keep up to twice as much as is in
use, and no single factor fits all settings.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

#: As in the C++ code: the smallest block, the size classes by which a kept block may be too large,
#: the share by which a new block is larger, and the limits of what is kept.
_SMALLEST, _BORROW, _MARGIN, _KEEP_FACTOR, _ALWAYS_KEPT = 1024, 2, 32, 1.5, 16 << 20
#: The size of a huge page. Where memory is backed by huge pages, a block's pages are resident as a
#: whole.
_HUGE_PAGE = 2 << 20
_HEADER = 64


@dataclass(eq=False)
class Block:
    """A block of a size class.

    Attributes:
        size_class: the size class.
        touched: bytes that were ever written to.
    """

    size_class: int
    touched: int = 0


def class_of(size: int) -> int:
    """Returns the size class of a size. There are four classes per doubling."""
    rounded = max(size, _SMALLEST) - 1
    log = rounded.bit_length() - 1
    return (log << 2) + ((rounded >> (log - 2)) & 3) + 1


def bytes_of(size_class: int) -> int:
    """Returns the bytes of a block of a size class."""
    base = 1 << (size_class >> 2)
    return base + (base >> 2) * (size_class & 3)


class Blocks:
    """The blocks that are in use and those that are kept.

    Args:
        live: bytes that are in use elsewhere.

    Attributes:
        resident: bytes of all blocks that were written to.
        peak: the maximum of ``resident``.
    """

    def __init__(self, live: int = 0) -> None:
        self._kept: defaultdict[int, list[Block]] = defaultdict(list)
        self._live = self._peak_live = live
        self._cached = 0
        self.resident = self.peak = 0

    def take(self, size: float) -> Block:
        """Takes a block and writes to all of it."""
        wanted = int(size) + _HEADER
        block = self._found(class_of(wanted)) or self._made(class_of(wanted + wanted // _MARGIN))
        whole = bytes_of(block.size_class)
        self._live += whole
        self._peak_live = max(self._peak_live, self._live)
        page = _HUGE_PAGE if whole >= _HUGE_PAGE else 1
        touched = min(whole, -(-(int(size) + _HEADER) // page) * page)
        self.resident += max(0, touched - block.touched)
        block.touched = max(block.touched, touched)
        self.peak = max(self.peak, self.resident)
        return block

    @property
    def held(self) -> int:
        """The bytes of all blocks, in use and kept."""
        return self._live + self._cached

    def give(self, *blocks: Block) -> None:
        """Gives back blocks that are no longer in use."""
        for block in blocks:
            whole = bytes_of(block.size_class)
            self._live, self._cached = self._live - whole, self._cached + whole
            self._kept[block.size_class].append(block)

    def _found(self, wanted: int) -> Block | None:
        for size_class in range(wanted, wanted + _BORROW + 1):
            if self._kept[size_class]:
                self._cached -= bytes_of(size_class)
                return self._kept[size_class].pop()
        return None

    def _made(self, wanted: int) -> Block:
        after = self._live + bytes_of(wanted)
        allowed = _KEEP_FACTOR * max(self._peak_live, after) + _ALWAYS_KEPT - after
        for size_class in sorted(self._kept, reverse=True):
            while self._kept[size_class] and self._cached > allowed:
                self._cached -= bytes_of(size_class)
                self.resident -= self._kept[size_class].pop().touched
        return Block(wanted)
