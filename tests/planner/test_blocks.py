"""The package's memory played with sizes, beside the package's memory."""

from __future__ import annotations

import random

import pytest
import torch

from pyg_batchgnn import ops
from pyg_batchgnn.planner.blocks import Blocks, bytes_of, class_of


@pytest.mark.parametrize("size", [0, 1, 1024, 1025, 1280, 1281, 5_000_000, 2**31, 3 * 2**31 + 1])
def test_classes(size: int) -> None:
    wanted = class_of(size)
    assert bytes_of(wanted) >= size and bytes_of(wanted) <= max(1.25 * size, 1280)
    assert bytes_of(wanted - 1) < max(size, 1024)


@pytest.mark.parametrize("seed", range(4))
def test_as_many_bytes_are_held_as_the_kernels_hold(seed: int) -> None:
    draw = random.Random(seed)
    ops.empty_cache()
    before = ops.memory_stats()
    played, held = Blocks(before.live), []
    for _ in range(400):
        if held and draw.random() < 0.5:
            tensor, block = held.pop(draw.randrange(len(held)))
            del tensor
            played.give(block)
        else:
            size = int(2 ** draw.uniform(8, 23))
            held.append((ops.empty((size,), torch.uint8), played.take(size)))
        seen = ops.memory_stats()
        assert played.held == seen.live + seen.cached - before.cached
    del held
    ops.empty_cache()


def test_pages_count_that_were_written_to() -> None:
    played = Blocks()
    block = played.take(5 << 20)
    assert played.resident == 6 << 20  # of a block of 6 MiB, three pages
    played.give(block)
    assert played.take(4 << 20) is block and played.resident == played.peak == 6 << 20


def test_sizes_around_the_limit_of_a_class_map_no_memory_again() -> None:
    draw, limit = random.Random(0), bytes_of(class_of(20 << 20))
    ops.empty_cache()
    held, calls = ops.empty((int(0.985 * limit),), torch.uint8), -1
    for step in range(50):
        held = ops.empty((int(limit * draw.uniform(0.985, 1.01)),), torch.uint8)  # two at a time
        if step == 1:
            calls = ops.memory_stats().system_calls
    assert held.numel() and ops.memory_stats().system_calls == calls
    ops.empty_cache()
