"""Runs the ranks of every backend and keeps what they found."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmark.support.cli import RESULTS
from benchmark.support.machine import describe
from benchmark.support.settings import BENCHMARK
from pyg_batchgnn.comm import available_backends

WORKER = "benchmark.communication.worker"
#: By name: backend, and what it is told.
WAYS: dict[str, tuple[str, dict[str, str]]] = {
    "gloo": ("gloo", {"GLOO_SOCKET_IFNAME": "lo"}),
    "ccl, TCP": ("ccl", {"CCL_ATL_SHM": "0"}),
    "ccl, shared memory": ("ccl", {"CCL_ATL_SHM": "1"}),
}
LIMIT = 300.0


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures and writes ``communication.json``; backends that are not installed are left out."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--results", type=Path, default=RESULTS)
    parsed = parser.parse_args(arguments)
    file = parsed.results / "communication.json"
    kept = json.loads(file.read_text())["runs"] if file.is_file() else []
    runs = [run for run in kept if run["ranks"] not in parsed.ranks]
    for ranks in parsed.ranks:
        for way, (backend, environment) in WAYS.items():
            if backend not in available_backends():
                print(f"{way}: not installed here, left out", flush=True)
                continue
            runs.append({"way": way, "ranks": ranks, **measure(backend, ranks, environment)})
            print(f"{way}, {ranks} ranks: {runs[-1]['backend']}", flush=True)
    runs.sort(key=lambda run: (run["ranks"], list(WAYS).index(run["way"])))
    when = time.strftime("%Y-%m-%d")
    result = {"benchmark": "communication", "machine": describe(), "when": when, "runs": runs}
    parsed.results.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(result, indent=1) + "\n")


def measure(backend: str, ranks: int, environment: dict[str, str]) -> dict[str, Any]:
    """Returns what the first of several ranks on this machine found.

    Raises:
        subprocess.CalledProcessError, subprocess.TimeoutExpired: a rank failed or did not end.
    """
    with tempfile.TemporaryDirectory() as folder:
        found = Path(folder) / "found.json"
        launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
        subprocess.run(
            [*launch, "--log-dir", folder, "-m", WORKER, backend, str(found)],
            env={**os.environ, "PYTHONPATH": str(BENCHMARK.parent), "OMP_NUM_THREADS": "1", **environment},
            check=True,
            timeout=LIMIT,
        )
        result: dict[str, Any] = json.loads(found.read_text())
        return result
