"""Learned embeddings over ranks, against torch's modules under DistributedDataParallel.

It times the embedding part of a training step: reading the rows of a minibatch's nodes, and the
update by their gradients. The minibatches are those of GraphSAGE, sampled in advance. Then it
trains with rows that may be stale, in one process.
"""

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

from benchmark.embeddings.staleness import accuracies
from benchmark.support.cli import RESULTS, write_json
from benchmark.support.machine import describe
from benchmark.support.settings import BENCHMARK, MallocSetting, ProcessSetting

WORKER = "benchmark.embeddings.worker"
LIMIT = 3000.0


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(description=__doc__)
    add = result.add_argument
    add("--dataset", default="generated:nodes=1000000,seed=0", help="what load_dataset takes")
    add("--columns", type=int, default=100, help="columns of the table")
    add("--ranks", type=int, default=2, help="ranks, all on this machine")
    add("--threads", type=int, default=1, help="threads of each rank")
    add("--batch-size", type=int, default=1024, help="seed nodes of a rank's minibatch")
    add("--fanouts", type=int, nargs="+", default=[15, 10, 5], help="neighbours by hop")
    add("--steps", type=int, default=10, help="steps of a round")
    add("--rounds", type=int, default=5, help="rounds that count")
    add("--policy", default="ldg", help="partitioning policy")
    add("--sides", nargs="*", default=["sparse", "dense"], help="torch's sides: sparse, dense")
    add("--stale-steps", type=int, nargs="*", default=[0, 1, 2, 4, 8], help="how stale rows may be")
    add("--seeds", type=int, default=5, help="seeds of the runs with stale rows")
    add("--epochs", type=int, default=5, help="epochs of the runs with stale rows")
    add("--results", type=Path, default=RESULTS, help="folder for the JSON file")
    return result


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures all sides in turns and writes ``embeddings.json``."""
    parsed = parser().parse_args(arguments)
    apart = ("results", "stale_steps", "seeds", "epochs")
    options = {name: value for name, value in vars(parsed).items() if name not in apart}
    found = run(options)
    if parsed.stale_steps:
        found["staleness"] = accuracies(parsed.stale_steps, parsed.seeds, parsed.epochs)
    when = time.strftime("%Y-%m-%d")
    result = {
        "benchmark": "embeddings",
        "machine": describe(),
        "when": when,
        "workload": options,
        **found,
    }
    write_json(parsed.results / "embeddings.json", result)


def run(options: dict[str, Any]) -> dict[str, Any]:
    """Returns what the first rank found.

    Raises:
        subprocess.CalledProcessError, subprocess.TimeoutExpired: a rank failed or did not end.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "found.json"
        launch = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        launch += [f"--nproc-per-node={options['ranks']}", "--log-dir", folder, "-m", WORKER]
        setting = ProcessSetting(threads=options["threads"], malloc=MallocSetting.KEPT)
        subprocess.run(
            [*launch, json.dumps(options), str(file)],
            env={
                **os.environ,
                **setting.environment(),
                "PYTHONPATH": str(BENCHMARK.parent),
                "GLOO_SOCKET_IFNAME": "lo",
            },
            check=True,
            timeout=LIMIT,
        )
        result: dict[str, Any] = json.loads(file.read_text())
        return result
