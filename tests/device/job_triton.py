"""The process of test_lane.py: the kernel, interpreted on the CPU."""

from __future__ import annotations

import itertools
import os

import torch

from pyg_batchgnn.device import CpuLane, locked_bytes
from pyg_batchgnn.device.triton_rows import read_rows
from pyg_batchgnn.loader import device_stage
from tests.loader.test_on_device import CASES, check, narrow, nodes, wide
from tests.support.tiny_datasets import equal

SHAPES = ((1,), (100,), (3, 7), (130,), (0,), ())
DTYPES = (torch.float32, torch.bfloat16, torch.int64, torch.int8, torch.bool, torch.float64)


def kernel() -> None:
    """Rows of every width and dtype, out of the table and of the cache."""
    generator = torch.Generator().manual_seed(0)
    for shape, dtype, ids in itertools.product(SHAPES, DTYPES, (torch.int32, torch.int64)):
        table = torch.randint(-100, 100, (50, *shape), generator=generator).to(dtype)
        if dtype.is_floating_point:
            table[0] = float("nan")
        for count in (0, 1, 70):
            index = torch.randint(50, (count,), generator=generator).to(ids)
            right = table[index.long()]
            assert equal(read_rows(table, index), right), (shape, dtype, count)
            for kept in (torch.arange(0), torch.tensor([3]), torch.arange(0, 50, 2)):
                slot = torch.full((50,), -1, dtype=torch.int32)
                slot[kept] = torch.arange(len(kept), dtype=torch.int32)
                # Rows that the cache has are wrong in the table, and the other way round.
                cache, rest = table[kept], table.clone()
                rest[kept] = torch.zeros((), dtype=dtype)
                assert equal(read_rows(rest, index, cache, slot), right if len(kept) else rest[index.long()])


def loaders() -> None:
    device_stage.lane_of = lambda _: CpuLane(reads_host=True)  # type: ignore[assignment]
    makes = [CASES[name] for name in ("plain", "typed", "binary links", "bfloat16")]
    for make in [*makes, nodes(lambda: narrow(wide()))]:
        for cache in ({}, {"device_cache": 4000}):
            there = check(make, {"feature_placement": "host", **cache}, epochs=1)
            held = there.stats().device
            assert held.registered_bytes > 0 and there.stats().total.rows_over_bus > 0
            assert bool(cache) == (there.stats().total.rows_from_device_cache > 0)
            del there
            assert locked_bytes() == 0


def compile_for_a_gpu() -> None:
    """Compiles the kernel for an A100, an H100 and a B200, which takes no GPU."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource, compile

    from pyg_batchgnn.device.triton_rows import _copy_rows

    constants = {"CACHED": True, "ROWS": 8, "COLUMNS": 128, "PROGRAMS": 128}
    cases = itertools.product((80, 90, 100), ("*i64", "*i8"), ("*i64", "*i32"), (True, False))
    for kind, word, ids, cached in cases:
        types = dict.fromkeys(("out", "table", "cache"), word) | {"index": ids, "slot": "*i32"}
        types |= dict.fromkeys(("count", "width", "tiles", "across"), "i32")
        types |= dict.fromkeys(constants, "constexpr")
        source = ASTSource(fn=_copy_rows, signature=types, constexprs={**constants, "CACHED": cached})
        assert "cubin" in compile(source, target=GPUTarget("cuda", kind, 32)).asm


if __name__ == "__main__":
    if os.environ.get("TRITON_INTERPRET"):
        kernel()
        loaders()
    else:
        compile_for_a_gpu()
    print("right")
