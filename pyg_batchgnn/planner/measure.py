"""Short measurements of one core of this machine with the real graph's minibatches."""

from __future__ import annotations

import itertools
import socket
import threading
import time
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.cache import Aggregation
from pyg_batchgnn.comm import Communicator
from pyg_batchgnn.partition import Part, PartitionBook
from pyg_batchgnn.planner.machine import PlannerMachine
from pyg_batchgnn.planner.probe import seeds_of_type
from pyg_batchgnn.planner.resident import resident_bytes
from pyg_batchgnn.planner.training_step import TrainingStepTimer
from pyg_batchgnn.planner.workload import Workload
from pyg_batchgnn.sample import (
    Layout,
    MacrobatchSampler,
    PartitionedSampler,
    Replacement,
    SampledMinibatch,
    SamplingPlan,
)
from pyg_batchgnn.store import TypedGraph

#: Minibatches that are timed together, the most bytes of the table, bytes sent, and repetitions.
_BATCHES, _TABLE, _SENT, _TIMES = 4, 256 << 20, 64 << 20, 3


def measure_machine(
    workload: Workload,
    graph: TypedGraph,
    training: Tensor,
    comm: Communicator,
    *,
    replacement: Replacement = Replacement.WITH,
    hidden: int = 0,
    classes: int = 2,
    kind: Aggregation = Aggregation.MEAN,
) -> PlannerMachine:
    """Measures the speeds of one core of this machine.

    Args:
        workload: what is trained.
        graph: the whole graph.
        training: [s] int64, the training nodes.
        comm: a communicator of this process alone.
        replacement: whether sampling is with replacement.
        hidden: the width of the layers whose training step is timed. 0 times none.
        classes: the number of classes.
        kind: the layers' aggregation: mean for SAGE.
    """
    plan = SamplingPlan(workload.fanouts, replacement)
    order = torch.randperm(training.numel(), generator=torch.Generator().manual_seed(1))
    seeds = [
        part.contiguous() for part in training[order].to(torch.int64).split(workload.batch_size)[:_BATCHES]
    ]
    whole, first = _whole(graph)
    named = seeds_of_type(graph.schema, workload.seed_type, seeds)
    internal = [ids + first[workload.seed_type] for ids in seeds]
    sampler = MacrobatchSampler(graph, plan, 0, 1, Layout.CSC)
    sampled = sampler.sample(named, 0)
    edges, nodes = sum(one.num_edges for one in sampled), sum(one.num_nodes for one in sampled)
    relay = PartitionedSampler(whole, comm, plan, 0, 1, Layout.CSC, seeds_are_own=True)
    local = _seconds(lambda: sampler.sample(named, 0))
    relayed = _seconds(lambda: relay.sample(internal, named, 0, 0))
    distinct = _seconds(lambda: _find_distinct(sampled, graph.num_nodes))
    gather, copy = _row_rates(max(workload.features, 4))
    forward, backward, cached = 0.0, 0.0, 0.0
    if hidden:
        step = TrainingStepTimer(kind, max(workload.features // 4, 1), hidden, classes, plan.num_hops)
        forward, backward = step.seconds(sampled[0])
        if plan.num_hops > 1:
            short = MacrobatchSampler(graph, plan.without_last_hop(), 0, 1, Layout.CSC)
            cached = sum(step.seconds(short.sample(named[:1], 0)[0]))
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
        resident=resident_bytes(),
    )


def _seconds(work: Callable[[], object]) -> float:
    """Returns the shortest of several times, after one run that is not timed."""
    times = []
    for _ in range(1 + _TIMES):
        begin = time.perf_counter()
        work()
        times.append(time.perf_counter() - begin)
    return min(times[1:])


def _find_distinct(sampled: Sequence[SampledMinibatch], num_nodes: Sequence[int]) -> None:
    for number, count in enumerate(num_nodes):
        ops.unique_nodes([one.nodes[number].node for one in sampled], count)


def _whole(graph: TypedGraph) -> tuple[Part, list[int]]:
    """Returns the whole graph as the part of one rank, and the first internal id of each type.

    A graph of one type shares its memory.
    """
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
    """Returns the seconds per byte to gather rows at random, and to copy them in order."""
    rows = max(1, min(_TABLE // width, 1 << 20))
    table = torch.ones(rows, max(width // 4, 1))
    index = torch.randperm(rows)[: max(1, rows // 2)]
    out = torch.empty(index.numel(), table.size(1))
    gathered = _seconds(lambda: ops.put_rows(out, table, index, 1))
    copied = _seconds(lambda: ops.put_rows(out, table, None, 1))
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
