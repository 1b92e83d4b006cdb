"""DistDGL: preparing minibatches, and training SAGE on them, with one node type or several."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import dgl
import dgl.distributed
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from benchmark.networks.dgl import BlockNetwork
from benchmark.networks.recipe import LEARNING_RATE
from benchmark.networks.typed_dgl import TypedBlockNetwork

Answer = dict[str, Any]
Rows = dict[str, Tensor]


@dataclass(frozen=True)
class Fetched:
    """A minibatch with its features.

    Attributes:
        nodes: [N_t] int64 by node type, the ids of the input nodes; types without any are absent.
        blocks: one for each layer.
        x: [N_t, F] by node type, the features of the input nodes.
        y: [S] int64, the labels of the seed nodes.
    """

    nodes: Rows
    blocks: list[dgl.DGLGraph]
    x: Rows
    y: Tensor


class Minibatches:
    """The minibatches of a trainer's training nodes, in another order in each epoch.

    Attributes:
        seed_type: the node type that has training nodes.
    """

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
        """Returns seconds and CPU seconds of this trainer, and seconds by phase."""
        torch.distributed.barrier()
        wall = time.perf_counter() - self._begin
        return {"wall": wall, "cpu": cpu_seconds() - self._cpu, "phases": self.phases}


def cpu_seconds() -> float:
    """Returns the CPU seconds of all threads of this process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def lap(phases: dict[str, float], name: str, last: float) -> float:
    """Charges the time since ``last``; returns now."""
    now = time.perf_counter()
    phases[name] += now - last
    return now
