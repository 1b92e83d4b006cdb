"""METIS as DGL calls it: ``metis.py OPTIONS`` cuts a folder's graph and writes what it took."""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path

import dgl
import numpy as np
import torch


def main(options: str) -> None:
    """Cuts the graph of ``dataset`` into ``parts``."""
    given = json.loads(options)
    folder = Path(given["dataset"])
    source, target = torch.from_numpy(np.load(folder / "edge_index.npy")).long()
    graph = dgl.graph((source, target))
    before, begin = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.perf_counter()
    owner = dgl.metis_partition_assignment(graph, given["parts"])
    wall = time.perf_counter() - begin
    sizes = owner.bincount()
    found = {
        "wall": wall,
        "edges": graph.num_edges(),
        "peak": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
        "held_before": 1024 * before,
        "edge_cut": float((owner[source] != owner[target]).float().mean()),
        "balance": {"nodes": float(sizes.max() / sizes.float().mean())},
    }
    Path(given["answer"]).write_text(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
