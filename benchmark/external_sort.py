"""Measures `batchgnn convert`: a list of edges whose destinations are in no order, sorted on disk.

    python -m benchmark.external_sort FOLDER --nodes 27764989 --memory-budget 4GiB

makes a quarter of papers100M's edges. FOLDER is made, and removed at the end.
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmark.disk.meters import PeakMemory
from pyg_batchgnn.data import PapersSpec, convert_folder, generate_papers_folder, open_folder
from pyg_batchgnn.data.files import EdgeAppender

_PIECE = 1 << 22


def measure(folder: Path, nodes: int, memory_budget: str) -> dict[str, Any]:
    """Makes a list of edges in a new folder, sorts it, and removes the folder."""
    graph = generate_papers_folder(PapersSpec(nodes=nodes, features=1), folder / "graph")
    edges = open_folder(graph).edges
    (folder / "list").mkdir()
    with EdgeAppender(folder / "list" / "edge_index.npy", np.int32) as out:
        for begin in range(0, edges.num_edges, _PIECE):
            piece = edges.some(range(begin, min(begin + _PIECE, edges.num_edges)))
            out.append(piece.target.numpy(), piece.source.numpy())
    (folder / "list" / "META.json").write_text(json.dumps({"num_nodes": nodes}))
    del edges
    shutil.rmtree(graph)
    begun = time.perf_counter()
    shutil.copyfile(folder / "list" / "edge_index.npy", folder / "copy.npy")
    copied = time.perf_counter() - begun
    (folder / "copy.npy").unlink()
    peak = PeakMemory(every=0.05)
    before, begun = peak.sample(), time.perf_counter()
    made = convert_folder(folder / "list", folder / "csc", memory_budget=memory_budget)
    seconds = time.perf_counter() - begun
    peak.close()
    sorted_edges = made.edges["edges"]
    shutil.rmtree(folder)
    return {
        "nodes": nodes,
        "edges": sorted_edges.edges,
        "buckets": sorted_edges.buckets,
        "seconds": seconds,
        "seconds by phase": dict(made.seconds),
        "edges per second": sorted_edges.edges / seconds,
        "seconds of a plain copy": copied,
        "memory budget": memory_budget,
        "memory beside the program": peak.bytes - before,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--nodes", type=int, default=27_764_989)
    parser.add_argument("--memory-budget", default="4GiB")
    given = parser.parse_args()
    print(json.dumps(measure(given.folder, given.nodes, given.memory_budget), indent=1))


if __name__ == "__main__":
    main()
