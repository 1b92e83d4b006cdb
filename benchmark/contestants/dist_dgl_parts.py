"""DistDGL's parts of a graph: homogeneous, typed, or nodes alone. Owners are random."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dgl
import dgl.distributed
import numpy as np
import torch

from benchmark.support.graphs import GraphFolder
from benchmark.support.mag import SEEDS, TypedFolder, is_typed

#: The name of the graph in its parts.
NAME = "graph"
#: The file of a folder of parts that has the new id of each node of a ring.
NEW_IDS = "new_ids.npy"


def partition(options: dict[str, Any]) -> None:
    """Writes the parts of the graph in the folder "graph", or of a ring of as many "nodes"."""
    folder = Path(options["partition"])
    if "nodes" in options:
        graph = _ring(options["nodes"])
    elif is_typed(Path(options["graph"])):
        graph = _typed(TypedFolder.open(options["graph"]))
    else:
        graph = _homogeneous(GraphFolder.open(options["graph"]))
    original, _ = dgl.distributed.partition_graph(
        graph, NAME, options["ranks"], str(folder), num_hops=1, part_method="random", return_mapping=True
    )
    if "nodes" in options:
        new = np.empty(options["nodes"], dtype=np.int64)
        new[original.numpy()] = np.arange(options["nodes"])
        np.save(folder / NEW_IDS, new)


def _ring(nodes: int) -> dgl.DGLGraph:
    """Returns nodes in a ring; parts cannot be made without edges."""
    node = torch.arange(nodes)
    return dgl.graph((node, node.roll(1)), num_nodes=nodes)


def _homogeneous(folder: GraphFolder) -> dgl.DGLGraph:
    graph = dgl.graph(("csc", (folder.colptr, folder.row, torch.empty(0, dtype=torch.int64))))
    graph = dgl.graph(graph.edges(order="eid"), num_nodes=graph.num_nodes())
    train = _mask(graph.num_nodes(), folder.read("train_idx"))
    graph.ndata.update({"x": folder.x, "y": folder.y, "train": train})
    return graph


def _typed(folder: TypedFolder) -> dgl.DGLGraph:
    """Returns a typed graph; every type has features, papers have labels."""
    edges = {names: (one[0], one[1]) for names, one in folder.edges.items()}
    graph = dgl.heterograph(edges, num_nodes_dict=folder.num_nodes)
    for name, x in folder.features.items():
        graph.nodes[name].data["x"] = x
    train = _mask(graph.num_nodes(SEEDS), folder.read("train_idx"))
    graph.nodes[SEEDS].data.update({"y": folder.y, "train": train})
    return graph


def _mask(count: int, chosen: torch.Tensor) -> torch.Tensor:
    mask = torch.zeros(count, dtype=torch.bool)
    mask[chosen] = True
    return mask
