"""Aggregation and dense layers alone, on a minibatch of the graph, against torch.

Ours writes into memory that it keeps; torch's results are fresh memory, with the allocator told to
keep it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from benchmark.support.cli import BenchmarkRun, parser
from benchmark.support.settings import MallocSetting, ProcessSetting


def measure(run: BenchmarkRun, threads: int) -> list[dict[str, Any]]:
    """Measures all cases with ``threads`` threads, in a process of their own."""
    ended = subprocess.run(
        [sys.executable, "-m", "benchmark.layers.worker"],
        input=json.dumps(replace(run.options, threads=threads).as_dict()),
        env=ProcessSetting(threads, MallocSetting.KEPT).environment(),
        capture_output=True,
        text=True,
    )
    if ended.returncode:
        raise RuntimeError(f"benchmark.layers.worker failed:\n{ended.stderr}")
    return json.loads(ended.stdout.splitlines()[-1])


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures, then stores the JSON file."""
    run = BenchmarkRun.parse(parser(__doc__ or "", batches=1, rounds=1, threads=(1, 2)).parse_args(arguments))
    threads = sorted({setting.threads for setting in run.settings})
    run.store("layers", {"cases": {str(count): measure(run, count) for count in threads}})


if __name__ == "__main__":
    main()
