"""One of two ranks that test a backend: ``python -m pyg_batchgnn.doctor.exchange BACKEND``.

Prints one line of JSON: the microseconds of a small all-to-all, and the GB/s that a rank sends in a
large one.
"""

from __future__ import annotations

import json
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist

import pyg_batchgnn  # noqa: F401  (registers the backend "ccl")

_SECONDS = 0.4  # about the length of each measurement
_LIMIT = timedelta(seconds=20)


def main(backend: str) -> None:
    """Exchanges uneven numbers of rows, checks them, and measures.

    Raises:
        AssertionError: the rows that came are not those that were sent.
    """
    dist.init_process_group(backend, timeout=_LIMIT)
    rank, size = dist.get_rank(), dist.get_world_size()
    sent, received = [rank + to for to in range(size)], [source + rank for source in range(size)]
    out = torch.empty(sum(received), dtype=torch.int64)
    dist.all_to_all_single(out, torch.full((sum(sent),), rank), received, sent)
    assert out.tolist() == [source for source in range(size) for _ in range(source + rank)], out.tolist()
    small, large = _seconds(size * 128), _seconds(size << 17)
    dist.destroy_process_group()
    print(json.dumps({"microseconds": small * 1e6, "gigabytes": (size - 1 << 20) / large / 1e9}))


def _seconds(words: int) -> float:
    """Returns the seconds of one all-to-all of 8-byte words.

    Every rank repeats it equally often.
    """
    rows = torch.zeros(words, dtype=torch.int64)
    out = torch.empty_like(rows)

    def repeat(times: int) -> float:
        dist.barrier()
        begun = time.perf_counter()
        for _ in range(times):
            dist.all_to_all_single(out, rows)
        return (time.perf_counter() - begun) / times

    first = torch.tensor([repeat(5)], dtype=torch.float64)
    dist.broadcast(first, 0)
    return repeat(max(5, min(1000, int(_SECONDS / float(first)))))


if __name__ == "__main__":
    main(sys.argv[1])
