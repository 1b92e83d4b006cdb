"""Seconds and memory of partitioning as the graph grows, against METIS where DGL is installed.

Graphs of our own generator, 16 neighbours aimed at, 16 feature columns. METIS is the one in DGL,
which cuts a graph held in memory in one process; what it spends on reading and on moving features
is not counted.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmark.support.cli import RESULTS, add_peer_option, write_json
from benchmark.support.machine import describe
from benchmark.support.native import CACHE
from benchmark.support.settings import MallocSetting, ProcessSetting
from benchmark.support.world import World
from pyg_batchgnn.data import GeneratorSpec, generate_folder

POLICIES = ("random", "ldg")


def graph_folder(nodes: int, seed: int = 0) -> Path:
    """Returns the folder of a generated graph, written on first use."""
    folder = CACHE / "growing" / (f"{nodes}-{seed}" if seed else str(nodes))
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        generate_folder(GeneratorSpec(nodes=nodes, features=16, seed=seed), folder)
    return folder


def metis(python: str, folder: Path, parts: int) -> dict[str, Any]:
    """Returns seconds, peak memory and edge cut of METIS through DGL, in its own process."""
    with tempfile.NamedTemporaryFile(suffix=".json") as answer:
        options = json.dumps({"dataset": str(folder), "parts": parts, "answer": answer.name})
        environment = ProcessSetting(threads=1, malloc=MallocSetting.KEPT).environment()
        subprocess.run(
            [python, "-m", "benchmark.contestants.metis", options],
            env=environment,
            check=True,
            stdout=subprocess.DEVNULL,
        )
        found: dict[str, Any] = json.loads(Path(answer.name).read_text())
        return found


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = result.add_argument
    add(
        "--nodes", type=int, nargs="+", default=[1_000_000, 4_000_000, 16_000_000], help="sizes of the graphs"
    )
    add("--ranks", type=int, nargs="+", default=[1, 2, 4], help="ranks, which is also the number of parts")
    add("--metis-nodes", type=int, default=4_000_000, help="the largest graph that METIS is given")
    add("--results", type=Path, default=RESULTS, help="folder for the JSON file")
    add_peer_option(result)
    return result


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures every size, policy and number of ranks once."""
    options = parser().parse_args(arguments)
    peers, series = dict(options.peer), []
    for nodes in options.nodes:
        folder = graph_folder(nodes)
        for ranks in options.ranks:
            for policy in POLICIES:
                answers = World(ranks).run("partitioning", {"dataset": str(folder), "policy": policy})
                series.append({"nodes": nodes, "ranks": ranks, "policy": policy, "of_ranks": answers})
                print(f"  {nodes:,} nodes, {ranks} ranks, {policy}: {answers[0]['wall']:.1f} s", flush=True)
        if "dgl" in peers and nodes <= options.metis_nodes:
            answer = metis(peers["dgl"], folder, max(options.ranks))
            series.append(
                {"nodes": nodes, "ranks": max(options.ranks), "policy": "METIS", "of_ranks": [answer]}
            )
            print(f"  {nodes:,} nodes, METIS: {answer['wall']:.1f} s", flush=True)
    content = {
        "benchmark": "growth",
        "growth": series,
        "machine": describe(),
        "when": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
    }
    write_json(options.results / "growth.json", content)


if __name__ == "__main__":
    main()
