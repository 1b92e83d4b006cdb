"""Starts a function of a benchmark in a process of its own.

    python -m benchmark.support.start MODULE FUNCTION ORDER ANSWER

ORDER is a JSON value, the function's argument; what it returns goes as JSON to the file ANSWER.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

MODULE = "benchmark.support.start"


def command(module: str, function: str, order: Any, answer: Path) -> list[str]:
    """Returns the arguments of an interpreter that runs a function."""
    return ["-m", MODULE, module, function, json.dumps(order), str(answer)]


def in_process(
    module: str,
    function: str,
    order: Any,
    *,
    ranks: int = 1,
    python: str = sys.executable,
    environment: Mapping[str, str] | None = None,
) -> Any:
    """Runs a function in a process, or on some ranks that torchrun starts; returns its answer."""
    torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    variables = environment or {**os.environ, "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "answer.json"
        words = [python, *(torchrun if ranks > 1 else []), *command(module, function, order, answer)]
        ended = subprocess.run(words, env=dict(variables), stderr=subprocess.PIPE, text=True, check=False)
        if ended.returncode:
            raise RuntimeError(f"{module} failed:\n{ended.stderr.strip()[-3000:]}")
        return json.loads(answer.read_text())


if __name__ == "__main__":
    found = getattr(import_module(sys.argv[1]), sys.argv[2])(json.loads(sys.argv[3]))
    Path(sys.argv[4]).write_text(json.dumps(found))
