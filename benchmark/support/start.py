"""Starts a function of a benchmark in a process of its own.

    python -m benchmark.support.start MODULE FUNCTION ORDER
    python -m benchmark.support.start MODULE JOB OPTIONS ANSWER

ORDER is a JSON value, the function's argument. With a file ANSWER the process is a rank of a job:
`MODULE.JOBS[JOB]` gets a communicator and OPTIONS, and the file what it returns.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any

MODULE = "benchmark.support.start"


def in_process(
    module: str,
    function: str,
    order: Any,
    *,
    ranks: int = 1,
    python: str = sys.executable,
    environment: Mapping[str, str] | None = None,
) -> None:
    """Runs a function in a process, or on some ranks that torchrun starts."""
    torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    command = [python, *(torchrun if ranks > 1 else []), "-m", MODULE, module, function, json.dumps(order)]
    variables = environment or {**os.environ, "OMP_NUM_THREADS": "1"}
    ended = subprocess.run(command, env=dict(variables), stderr=subprocess.PIPE, text=True, check=False)
    if ended.returncode:
        raise RuntimeError(f"{module} failed:\n{ended.stderr.strip()[-3000:]}")


if __name__ == "__main__":
    if len(sys.argv) == 5:
        from benchmark.support.ranks import answer_with

        answer_with(*sys.argv[1:])
        sys.exit()
    getattr(import_module(sys.argv[1]), sys.argv[2])(json.loads(sys.argv[3]))
