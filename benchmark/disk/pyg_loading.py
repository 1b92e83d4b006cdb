"""PyG's NeighborLoader over mapped features, in an environment that has pyg-lib."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import torch


def run(order: dict[str, Any]) -> dict[str, Any]:
    """Makes up to ``steps`` minibatches of a folder for at most ``seconds``, without any step."""
    from torch_geometric.data import Data
    from torch_geometric.loader import NeighborLoader

    folder = Path(order["folder"])
    bounds, source = (
        torch.from_numpy(np.load(folder / "csc" / f"{name}.npy")) for name in ("indptr", "indices")
    )
    edges = torch.empty(2, len(source), dtype=torch.int64)
    edges[0] = source
    del source
    edges[1] = torch.repeat_interleave(torch.arange(len(bounds) - 1), bounds.diff())
    x = torch.from_numpy(np.load(folder / "nodes" / "x.npy", mmap_mode="c")).view(torch.bfloat16)
    nodes = torch.from_numpy(np.load(folder / "splits" / "train.npy"))[: order["steps"] * 1024]
    data = Data(x=x, edge_index=edges, num_nodes=len(bounds) - 1)
    loader = NeighborLoader(data, [10, 10, 10], nodes, batch_size=1024, shuffle=True, is_sorted=True)
    begin, steps, seconds = time.perf_counter(), 0, 0.0
    for _ in loader:
        steps, seconds = steps + 1, time.perf_counter() - begin
        if seconds > order["seconds"]:
            break
    return {"seconds": seconds, "steps": steps}
