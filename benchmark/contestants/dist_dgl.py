"""DistDGL: the server of a host, its trainer, and the partitioning, as in DGL's examples.

``dist_dgl.py partition OPTIONS`` writes parts with owners at random; ``dist_dgl.py rank OPTIONS``
is a server or, by DGL_ROLE, a trainer that runs epochs of SAGE and writes what it saw to
OPTIONS["answer"].
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from pathlib import Path
from typing import Any

import dgl
import dgl.distributed
import torch
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel

from benchmark.networks.dgl import BlockNetwork
from benchmark.networks.recipe import LEARNING_RATE
from benchmark.support.graphs import GraphFolder

Options = dict[str, Any]


def partition(options: Options) -> None:
    """Writes the parts of a graph, owners at random."""
    folder = GraphFolder.open(options["graph"])
    graph = dgl.graph(("csc", (folder.colptr, folder.row, torch.empty(0, dtype=torch.int64))))
    graph = dgl.graph(graph.edges(order="eid"), num_nodes=graph.num_nodes())
    train = torch.zeros(graph.num_nodes(), dtype=torch.bool)
    train[folder.read("train_idx")] = True
    graph.ndata.update({"x": folder.x, "y": folder.y, "train": train})
    dgl.distributed.partition_graph(
        graph, "graph", options["ranks"], options["partition"], num_hops=1, part_method="random"
    )


def rank(options: Options) -> None:
    """A server, which never returns, or a trainer, by the environment."""
    dgl.distributed.initialize(os.environ["DGL_IP_CONFIG"])
    torch.distributed.init_process_group("gloo")
    graph = dgl.distributed.DistGraph("graph", part_config=os.environ["DGL_CONF_PATH"])
    seeds = dgl.distributed.node_split(graph.ndata["train"], graph.get_partition_book(), force_even=True)
    if options["seeds"]:  # of the whole graph, in equal shares
        seeds = seeds[: options["seeds"] // torch.distributed.get_world_size()]
    sampler = dgl.dataloading.NeighborSampler(list(reversed(options["fanouts"])))  # counted from the input
    loader = dgl.dataloading.DistNodeDataLoader(
        graph, seeds, sampler, batch_size=options["batch_size"], shuffle=True, drop_last=False
    )
    torch.manual_seed(0)
    columns = graph.ndata["x"].shape[1]
    network = BlockNetwork("sage", columns, options["hidden"], options["classes"], len(options["fanouts"]))
    model = DistributedDataParallel(network)
    optimiser = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE)
    found = [epoch(graph, loader, model, optimiser) for _ in range(options["epochs"])][-1]
    own = torch.distributed.get_rank()
    Path(options["answer"].format(rank=own)).write_text(json.dumps(found))
    torch.distributed.barrier()


def epoch(
    graph: dgl.distributed.DistGraph,
    loader: dgl.dataloading.DistNodeDataLoader,
    model: DistributedDataParallel,
    optimiser: torch.optim.Optimizer,
) -> Options:
    """One epoch; seconds by phase, rows and steps of this rank."""
    book = graph.get_partition_book()
    phases = dict.fromkeys(("sample", "features", "forward", "backward"), 0.0)
    torch.distributed.barrier()
    cpu, begin = cpu_seconds(), time.perf_counter()
    last, rows, remote, steps = begin, 0, 0, 0
    for nodes, seeds, blocks in loader:
        last = lap(phases, "sample", last)
        x, y = graph.ndata["x"][nodes], graph.ndata["y"][seeds]
        last = lap(phases, "features", last)
        loss = F.cross_entropy(model(blocks, x), y)
        last = lap(phases, "forward", last)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        last = lap(phases, "backward", last)
        rows, steps = rows + nodes.numel(), steps + 1
        remote += int((book.nid2partid(nodes) != book.partid).sum())
    torch.distributed.barrier()
    wall = time.perf_counter() - begin
    return {
        "wall": wall,
        "cpu": cpu_seconds() - cpu,
        "phases": phases,
        "steps": steps,
        "rows": rows,
        "remote_rows": remote,
        "row_bytes": graph.ndata["x"].shape[1] * 4,
    }


def cpu_seconds() -> float:
    """Returns the CPU seconds of all threads of this process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def lap(phases: dict[str, float], name: str, last: float) -> float:
    """Charges the time since ``last``; returns now."""
    now = time.perf_counter()
    phases[name] += now - last
    return now


if __name__ == "__main__":
    {"partition": partition, "rank": rank}[sys.argv[1]](json.loads(sys.argv[2]))
