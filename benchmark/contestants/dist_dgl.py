"""DistDGL: the server of a host, its trainer, and the partitioning, as in DGL's examples.

``dist_dgl.py partition OPTIONS`` writes the parts of a graph: homogeneous, typed, or nodes alone;
owners are random. ``dist_dgl.py JOB OPTIONS`` is a server, which never returns, or, by DGL_ROLE, a
trainer that does the job and writes its answer to the file OPTIONS["answer"].
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dgl
import dgl.distributed
import numpy as np
import torch
import torch.nn.functional as F
from dgl.distributed import DistEmbedding
from dgl.distributed.optim import SparseAdam
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from benchmark.networks.dgl import BlockNetwork, TypedBlockNetwork
from benchmark.networks.recipe import LEARNING_RATE
from benchmark.support.graphs import GraphFolder
from benchmark.support.mag import SEEDS, TypedFolder, is_typed
from benchmark.support.meters import cpu_seconds, lap

Answer = dict[str, Any]
Rows = dict[str, Tensor]
#: The name of the graph in its parts.
NAME = "graph"
#: The file of a folder of parts that has the new id of each node of a ring.
NEW_IDS = "new_ids.npy"


def partition(options: Answer) -> None:
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
    node = torch.arange(nodes)
    return dgl.graph((node, node.roll(1)), num_nodes=nodes)


def _homogeneous(folder: GraphFolder) -> dgl.DGLGraph:
    graph = dgl.graph(("csc", (folder.colptr, folder.row, torch.empty(0, dtype=torch.int64))))
    graph = dgl.graph(graph.edges(order="eid"), num_nodes=graph.num_nodes())
    train = _mask(graph.num_nodes(), folder.read("train_idx"))
    graph.ndata.update({"x": folder.x, "y": folder.y, "train": train})
    return graph


def _typed(folder: TypedFolder) -> dgl.DGLGraph:
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


@dataclass(frozen=True)
class Fetched:
    """A minibatch with its features."""

    nodes: Rows
    blocks: list[dgl.DGLGraph]  # one for each layer
    x: Rows  # [N_t, F] by node type, the features of the input nodes
    y: Tensor  # [S] int64, the labels of the seed nodes


class Minibatches:
    """The minibatches of a trainer's training nodes, in another order in each epoch."""

    def __init__(self, graph: dgl.distributed.DistGraph, options: Answer) -> None:
        self.graph = graph
        self.seed_type = next(name for name in graph.ntypes if "train" in graph.nodes[name].data)
        mask = graph.nodes[self.seed_type].data["train"]
        seeds = dgl.distributed.node_split(
            mask, graph.get_partition_book(), ntype=self.seed_type, force_even=True
        )
        if options["seeds"]:  # of the whole graph, in equal shares
            seeds = seeds[: options["seeds"] // torch.distributed.get_world_size()]
        fanouts = list(reversed(options["fanouts"]))  # counted from the input
        self.loader = dgl.dataloading.DistNodeDataLoader(
            graph,
            seeds if len(graph.ntypes) == 1 else {self.seed_type: seeds},
            dgl.dataloading.NeighborSampler(fanouts),
            batch_size=options["batch_size"],
            shuffle=True,
            drop_last=False,
        )

    def epoch(self, phases: dict[str, float]) -> Iterator[Fetched]:
        """Yields the minibatches of an epoch; charges the seconds of sampling and of features."""
        last = time.perf_counter()
        for nodes, seeds, blocks in self.loader:
            last = lap(phases, "sample", last)
            asked = {name: ids for name, ids in self._by_type(nodes).items() if len(ids)}
            x = {name: self._rows(name, "x", ids) for name, ids in asked.items()}
            y = self._rows(self.seed_type, "y", self._by_type(seeds)[self.seed_type])
            lap(phases, "features", last)
            yield Fetched(asked, blocks, x, y)
            last = time.perf_counter()

    def counts(self, nodes: Iterable[Rows]) -> Answer:
        """Returns how many rows some minibatches have, and how many of them are of other hosts."""
        book = self.graph.get_partition_book()
        found = {"steps": 0, "rows": 0, "remote_rows": 0}
        for of_minibatch in nodes:
            found["steps"] += 1
            for name, ids in of_minibatch.items():
                found["rows"] += ids.numel()
                found["remote_rows"] += int((book.nid2partid(ids, name) != book.partid).sum())
        return {**found, "row_bytes": self.graph.nodes[self.seed_type].data["x"].shape[1] * 4}

    def _rows(self, name: str, attribute: str, ids: Tensor) -> Tensor:
        return self.graph.nodes[name].data[attribute][ids]

    def _by_type(self, ids: Tensor | Rows) -> Rows:
        return ids if isinstance(ids, dict) else {self.seed_type: ids}


def preparation(graph: dgl.distributed.DistGraph, options: Answer) -> Answer:
    """Prepares the minibatches of some epochs, with features; returns figures of the last one."""
    minibatches, found = Minibatches(graph, options), {}
    for _ in range(options["epochs"]):
        clock, nodes = Clock(("sample", "features")), []
        for minibatch in minibatches.epoch(clock.phases):
            nodes.append(minibatch.nodes)
        found = {**clock.stop(), **minibatches.counts(nodes)}
    return found


def training(graph: dgl.distributed.DistGraph, options: Answer) -> Answer:
    """Trains SAGE for some epochs; returns figures of the last one."""
    minibatches, found = Minibatches(graph, options), {}
    typed = len(graph.ntypes) > 1
    torch.manual_seed(0)
    columns = graph.nodes[minibatches.seed_type].data["x"].shape[1]
    shape = ("sage", columns, options["hidden"], options["classes"], len(options["fanouts"]))
    network = TypedBlockNetwork(*shape, graph) if typed else BlockNetwork(*shape)
    # The last layer has relations that lead to no seed node.
    model = DistributedDataParallel(network, find_unused_parameters=typed)
    optimiser = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE)
    for _ in range(options["epochs"]):
        clock, nodes = Clock(("sample", "features", "forward", "backward")), []
        for minibatch in minibatches.epoch(clock.phases):
            last = time.perf_counter()
            x = minibatch.x if typed else minibatch.x[minibatches.seed_type]
            loss = F.cross_entropy(model(minibatch.blocks, x), minibatch.y)
            last = lap(clock.phases, "forward", last)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            lap(clock.phases, "backward", last)
            nodes.append(minibatch.nodes)
        found = {**clock.stop(), **minibatches.counts(nodes)}
    return found


class Clock:
    """The seconds of an epoch, from when all trainers begin until all have ended."""

    def __init__(self, phases: Iterable[str]) -> None:
        self.phases = dict.fromkeys(phases, 0.0)
        torch.distributed.barrier()
        self._cpu, self._begin = cpu_seconds(), time.perf_counter()

    def stop(self) -> Answer:
        torch.distributed.barrier()
        wall = time.perf_counter() - self._begin
        return {"wall": wall, "cpu": cpu_seconds() - self._cpu, "phases": self.phases}


#: The learning rate of embeddings.
ROWS_LEARNING_RATE = 0.01


def embedding(graph: dgl.distributed.DistGraph, options: Answer) -> Answer:
    """Reads the rows of each minibatch's nodes and updates them; returns the seconds per step of
    each round, and the mean number of rows that other hosts hold.

    The nodes of the minibatches are those in the file ``options["nodes"]`` of this rank, by their
    ids in the whole graph.
    """
    new = torch.from_numpy(np.load(Path(os.environ["DGL_CONF_PATH"]).parent / NEW_IDS))
    own = torch.distributed.get_rank()
    with np.load(options["nodes"].format(rank=own)) as file:
        nodes = [new[torch.from_numpy(file[name])] for name in file.files]
    columns = options["columns"]
    gradients = [torch.rand(len(ids), columns) for ids in nodes]
    (node_type,) = graph.ntypes
    policy = graph.get_node_partition_policy(node_type)
    rows = DistEmbedding(graph.num_nodes(), columns, "rows", init_func=_uniform, part_policy=policy)
    optimiser = SparseAdam([rows], lr=ROWS_LEARNING_RATE)
    seconds = []
    for _ in range(1 + options["rounds"]):  # the first is not measured
        torch.distributed.barrier()
        begun = time.perf_counter()
        for ids, gradient in zip(nodes, gradients, strict=True):
            optimiser.zero_grad()
            rows(ids).backward(gradient)
            optimiser.step()  # ends with a barrier
        seconds.append((time.perf_counter() - begun) / len(nodes))
    book = graph.get_partition_book()
    remote = [int((book.nid2partid(ids) != book.partid).sum()) for ids in nodes]
    return {"seconds": seconds[1:], "remote": sum(remote) / len(remote)}


def _uniform(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype).uniform_(-1, 1)


JOBS: dict[str, Callable[[dgl.distributed.DistGraph, Answer], Answer]] = {
    "training": training,
    "preparation": preparation,
    "embedding": embedding,
}


def rank(job: str, options: Answer) -> None:
    """Serves a host's part, or does a job as the trainer of a host."""
    dgl.distributed.initialize(os.environ["DGL_IP_CONFIG"])
    torch.distributed.init_process_group("gloo")
    graph = dgl.distributed.DistGraph(NAME, part_config=os.environ["DGL_CONF_PATH"])
    found = JOBS[job](graph, options)
    own = torch.distributed.get_rank()
    Path(options["answer"].format(rank=own)).write_text(json.dumps(found))
    torch.distributed.barrier()


if __name__ == "__main__":
    wanted = json.loads(sys.argv[2])
    if sys.argv[1] == "partition":
        partition(wanted)
    else:
        rank(sys.argv[1], wanted)
