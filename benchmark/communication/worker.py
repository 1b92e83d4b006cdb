"""One rank, started by torchrun: times collectives of growing messages over one backend.

    torchrun --standalone --nproc-per-node=4 worker.py BACKEND FILE

The first rank writes what was found to FILE.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist

from pyg_batchgnn.comm import describe_backend

#: Bytes that a rank gives to one collective: 1 KiB to 64 MiB.
SIZES = [1 << power for power in range(10, 27, 2)]
#: Seconds for each size, about, and how many repetitions there are at least and at most.
SECONDS, LEAST, MOST = 0.4, 9, 500


def main(backend: str, file: Path) -> None:
    """Measures everything."""
    torch.set_num_threads(1)
    dist.init_process_group(backend)
    series = [
        {"operation": operation, "bytes": size, "seconds": slowest(call)}
        for operation, make in (("all-to-all", all_to_all), ("all-reduce", all_reduce))
        for size in SIZES
        for call in (make(size // 4),)
    ]
    if dist.get_rank() == 0:
        file.write_text(json.dumps({"backend": describe_backend(backend), "series": series}))
    dist.destroy_process_group()


def all_to_all(words: int) -> Callable[[], object]:
    """Returns an exchange of equal pieces with all ranks, this one included."""
    rows, out = torch.ones(words), torch.empty(words)
    return lambda: dist.all_to_all_single(out, rows)


def all_reduce(words: int) -> Callable[[], object]:
    """Returns a sum over all ranks."""
    rows = torch.zeros(words)
    return lambda: dist.all_reduce(rows)


def slowest(call: Callable[[], object]) -> float:
    """Returns the median of the slowest rank's seconds; ranks start repetitions together."""
    first = torch.tensor([timed(call, 3)[-1]], dtype=torch.float64)
    dist.broadcast(first, 0)
    times = timed(call, max(LEAST, min(MOST, int(SECONDS / float(first)))))
    seconds = torch.tensor(times, dtype=torch.float64)
    dist.all_reduce(seconds, dist.ReduceOp.MAX)
    return statistics.median(seconds.tolist())


def timed(call: Callable[[], object], times: int) -> list[float]:
    """Seconds of each repetition on this rank, from the barrier before it."""
    found = []
    for _ in range(times):
        dist.barrier()
        begun = time.perf_counter()
        call()
        found.append(time.perf_counter() - begun)
    return found


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
