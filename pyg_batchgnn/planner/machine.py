"""The speeds of a rank's machine and network: measured here, or given for another cluster."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import psutil
import torch
import torch.nn.functional as F
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.cache import Aggregation
from pyg_batchgnn.comm import Communicator
from pyg_batchgnn.data import load_dataset
from pyg_batchgnn.loader import MacrobatchNeighborLoader
from pyg_batchgnn.nn import Aggregated
from pyg_batchgnn.nn.models import GCN, GIN, SAGE, NativeModel
from pyg_batchgnn.partition import Part, PartitionBook, partition
from pyg_batchgnn.planner.probe import seeds_of_type
from pyg_batchgnn.planner.workload import Workload
from pyg_batchgnn.sample import (
    Layout,
    MacrobatchSampler,
    PartitionedSampler,
    Replacement,
    SampledMinibatch,
    SamplingPlan,
)
from pyg_batchgnn.store import DistFeatureStore, DistGraphStore, TypedGraph

#: The share of the links' rate that an uneven all-to-all over TCP reached between four hosts at
#: 1 Gbit/s, on one graph (the arxiv-like one of the benchmarks).
ALL_TO_ALL = 0.6


@dataclass(frozen=True)
class PlannerNetwork:
    """The network between hosts."""

    bandwidth: float  # bytes per second that a host sends, and receives at the same time
    latency: float = 1e-4  # seconds that a message takes from one host to another
    efficiency: float = ALL_TO_ALL  # the share of the bandwidth that exchanges of all hosts reach


@dataclass(frozen=True)
class PlannerMachine:
    """The speeds of one core, and the cores and memory of one rank."""

    cores: float = 1.0  # cores per rank, 0.5 where two ranks share a core
    memory: float = 0.0  # bytes that a rank may use, 0 for no limit
    relay_edge: float = 4e-8  # seconds per edge to sample a minibatch over ranks
    local_edge: float = 6e-8  # the same from the whole topology
    node: float = 1e-8  # seconds per node of a minibatch to find the distinct nodes
    gather: float = 2.5e-10  # seconds per byte of rows that are gathered at random
    copy: float = 1.5e-10  # seconds per byte of rows that are copied in order
    export: float = 0.0  # seconds per byte of features that are copied once more per minibatch
    wire: float = 3e-10  # seconds per byte that goes through a socket, at one end
    exchange: float = 1.5e-3  # seconds that an exchange takes on a rank, whatever it carries
    macrobatch: float = 1e-3  # further seconds per macrobatch
    forward: float = 0.0  # seconds of a training step, for a minibatch of the probed size
    backward: float = 0.0
    first_layer: float = 0.2  # the share of a training step that aggregating the input takes
    resident: float = 3.0e8  # bytes of a process that holds no graph
    parallel: float = 0.85  # the share of a linear speed-up that several cores reach
    memory_rate: float = 1e12  # bytes per second that all cores of a rank gather together

    def speedup(self, tasks: float) -> float:
        """Returns how much faster than one core a rank does work of ``tasks`` tasks."""
        if self.cores <= 1:
            return self.cores
        used = min(self.cores, max(tasks, 1.0))
        return max(1.0, used * self.parallel) if used > 1 else 1.0

    def on(self, cores: float, memory: float) -> PlannerMachine:
        """Returns a machine with these speeds, and other cores and memory."""
        return dataclasses.replace(self, cores=cores, memory=memory)


def exchange_seconds(network: PlannerNetwork, machine: PlannerMachine, size: float, number: int) -> float:
    """Returns the seconds of ``number`` exchanges that bring a rank ``size`` bytes in all: of the
    network or of copying, whichever is slower."""
    rate = network.bandwidth * network.efficiency
    moving = max(size / rate, 2 * size * machine.wire / machine.speedup(machine.cores))
    return moving + number * (2 * network.latency + machine.exchange / min(machine.cores, 1))


def after_work() -> int:
    """Trains a few steps; returns the bytes of memory that this process has then."""
    import torch.nn.parallel.distributed  # noqa: F401 - ranks that train have it

    with Communicator.create("resident") as comm:
        part = partition(load_dataset("generated:nodes=200,features=8"), "random", comm=comm)
        stores = DistFeatureStore(part, comm), DistGraphStore(part, comm)
        model = SAGE(8, 8, 2, 64)
        for minibatch in MacrobatchNeighborLoader(
            stores, [2, 2], "train", batch_size=32, macrobatch_size=2, export="native"
        ):
            model(minibatch).sum().backward()
    return psutil.Process().memory_info().rss


#: The networks whose layers aggregate in each way.
NETWORKS: dict[Aggregation, Callable[..., NativeModel]] = {
    Aggregation.MEAN: SAGE,
    Aggregation.SYMMETRIC: GCN,
    Aggregation.SUM: functools.partial(GIN, norm="batch_norm"),
}


def step_seconds(
    model: NativeModel, kind: Aggregation, columns: int, minibatch: SampledMinibatch
) -> tuple[float, float]:
    """Returns (seconds of the forward pass, seconds of backward pass and update) of a training step
    on one core, the fastest of some. If the minibatch has one hop fewer than the model has layers,
    the step begins with aggregates."""
    optimiser = torch.optim.Adam(model.parameters(), fused=True)
    table = torch.ones(minibatch.num_nodes, columns)
    x: Tensor | Aggregated = table
    if len(minibatch.edges_per_hop) < model.num_layers:
        x = Aggregated(kind.value, table, None if kind.holds_own_row else table)
    target = torch.zeros(minibatch.batch_size, dtype=torch.int64)

    def once() -> tuple[float, float]:
        begin = time.perf_counter()
        loss = F.cross_entropy(model(minibatch, x=x), target)
        middle = time.perf_counter()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        return middle - begin, time.perf_counter() - middle

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return min((once() for _ in range(_TIMES)), key=sum)
    finally:
        torch.set_num_threads(threads)


#: Minibatches that are timed together, the most bytes of the table, bytes sent, and repetitions.
_BATCHES, _TABLE, _SENT, _TIMES = 4, 256 << 20, 64 << 20, 3


def measure_machine(
    workload: Workload,
    graph: TypedGraph,
    training: Tensor,
    comm: Communicator | None,
    *,
    replacement: Replacement = Replacement.WITH,
    hidden: int = 0,
    classes: int = 2,
    kind: Aggregation = Aggregation.MEAN,
) -> PlannerMachine:
    """Measures the speeds of one core of this machine.

    Args:
        training: [s] int64, the training nodes.
        comm: a communicator of this process alone, to measure sampling over ranks, which takes 12
            bytes for each edge; None does not.
        hidden: the columns of the layers of which a training step is timed; 0 times none.
        kind: the layers' aggregation: mean for SAGE.
    """
    plan = SamplingPlan(workload.fanouts, replacement, labor=workload.labor)
    order = torch.randperm(training.numel(), generator=torch.Generator().manual_seed(1))
    seeds = training[order].to(torch.int64).split(workload.batch_size)[:_BATCHES]
    named = seeds_of_type(graph.schema, workload.seed_type, seeds)
    sampler = MacrobatchSampler(graph, plan, 0, 1, Layout.CSC)
    sampled = sampler.sample(named, 0)
    edges, nodes = sum(one.num_edges for one in sampled), sum(one.num_nodes for one in sampled)
    relayed = local = _shortest(lambda: sampler.sample(named, 0))
    if comm is not None:
        whole, first = _whole(graph)
        internal = [ids + first[workload.seed_type] for ids in seeds]
        relay = PartitionedSampler(whole, comm, plan, 0, 1, Layout.CSC, seeds_are_own=True)
        relayed = _shortest(lambda: relay.sample(internal, named, 0, 0))
    reached = [[one.nodes[at].node for one in sampled] for at in range(len(graph.num_nodes))]
    distinct = _shortest(lambda: list(map(ops.unique_nodes, reached, graph.num_nodes)))
    gather, copy = _row_rates(max(workload.features, 4))
    forward, backward, cached = 0.0, 0.0, 0.0
    if hidden:
        step = (NETWORKS[kind](workload.columns, hidden, plan.num_hops, classes), kind, workload.columns)
        forward, backward = step_seconds(*step, sampled[0])
        if plan.num_hops > 1:
            short = MacrobatchSampler(graph, plan.without_last_hop(), 0, 1, Layout.CSC)
            cached = sum(step_seconds(*step, short.sample(named[:1], 0)[0]))
    command = [sys.executable, "-c", f"from {__name__} import after_work; print(after_work())"]
    resident = float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return PlannerMachine(
        relay_edge=relayed / max(edges, 1),
        local_edge=local / max(edges, 1),
        node=distinct / max(nodes, 1),
        gather=gather,
        copy=copy,
        wire=_wire(),
        forward=forward,
        backward=backward,
        first_layer=max(0.0, 1 - cached / (forward + backward)) if cached else 0.0,
        resident=resident,
    )


def _shortest(work: Callable[[], object]) -> float:
    """Returns the seconds of the fastest of several runs, after one that is not timed."""
    times = []
    for _ in range(1 + _TIMES):
        begin = time.perf_counter()
        work()
        times.append(time.perf_counter() - begin)
    return min(times[1:])


def _whole(graph: TypedGraph) -> tuple[Part, list[int]]:
    """Returns the whole graph as the part of one rank, and the first internal id of each type."""
    schema, ends = graph.schema, [0, *itertools.accumulate(graph.num_nodes)]
    dtype = ops.id_dtype(ends[-1])
    relations = []
    for source, one in zip(schema.source_types, graph.relations, strict=True):
        sources = one.indices.to(dtype)
        edge_ids = one.explicit_edge_ids().to(ops.id_dtype(one.num_edges))
        relations.append(
            ops.InEdges(one.indptr, sources + ends[source] if ends[source] else sources, edge_ids)
        )
    part = Part(
        schema=schema,
        book=PartitionBook(ends, schema.num_types),
        number=0,
        node=torch.cat([torch.arange(count) for count in graph.num_nodes]),
        relations=tuple(relations),
        edge_counts=tuple(one.num_edges for one in graph.relations),
        directory=torch.arange(ends[-1], dtype=dtype),
    )
    return part, ends[:-1]


def _row_rates(width: int) -> tuple[float, float]:
    """Returns the seconds per byte of gathering rows at random and of copying them in order."""
    rows = max(1, min(_TABLE // width, 1 << 20))
    table = torch.ones(rows, max(width // 4, 1))
    index = torch.randperm(rows)[: max(1, rows // 2)]
    out = torch.empty(index.numel(), table.size(1))
    with ops.thread_limit(1):
        gathered = _shortest(lambda: ops.put_rows(out, table, index))
        copied = _shortest(lambda: ops.put_rows(out, table, None))
    return gathered / out.nbytes, copied / out.nbytes


def _wire() -> float:
    """Returns the seconds of processor time per byte at one end of a socket."""
    data = bytes(1 << 20)
    with socket.create_server(("127.0.0.1", 0)) as server:
        sender = socket.create_connection(server.getsockname())
        receiver, _ = server.accept()

    def receive() -> None:
        space, left = bytearray(1 << 20), _SENT
        while left:
            left -= receiver.recv_into(space)

    with sender, receiver:
        thread = threading.Thread(target=receive)
        begin = time.process_time()
        thread.start()
        for _ in range(_SENT // len(data)):
            sender.sendall(data)
        thread.join()
        return (time.process_time() - begin) / _SENT / 2
