"""The jobs of ranks in test_relay.py: sample together, compare with one process."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from pyg_batchgnn.comm import CommError, Communicator, MessageKind
from pyg_batchgnn.ops import InEdges
from pyg_batchgnn.partition import Part, PartitionBook
from pyg_batchgnn.sample import PartitionedSampler, SampledMinibatch, SamplingPlan
from tests.support.faults import AwakeClock, stop_for_good, told
from tests.support.reference_partition import internal_ids, split_graph


def counted(edge_ids: bool, seeds_are_own: bool, minibatches: int) -> dict[str, Any]:
    nodes, fanouts = 3000, (4, 3, 2)
    draw = np.random.default_rng(5)
    edge_index = torch.from_numpy(draw.integers(0, nodes, (2, 30_000)))
    plan = SamplingPlan(fanouts, edge_ids=edge_ids)
    with Communicator.create("sampling", timeout=30) as comm:
        owner = torch.from_numpy(draw.integers(0, comm.size, nodes))
        part = split_graph(edge_index, owner, comm.size, comm.rank)
        ids = internal_ids(owner)
        seeds = [part.node[torch.randperm(part.num_nodes)[:20]] for _ in range(minibatches)]
        sampler = PartitionedSampler(part, comm, plan, 1, seeds_are_own=seeds_are_own)
        got = sampler.sample([ids[those] for those in seeds], seeds, 0, 0)
        spent = comm.counters.snapshot()[MessageKind.TOPOLOGY]
        remote_nodes, remote_edges, blocks = _remote(got, part, seeds_are_own)
    return {
        "rank": part.number,
        "sent": [spent.rows_sent, spent.bytes_sent],
        "received": [spent.rows_received, spent.bytes_received],
        "asked": [remote_nodes, remote_edges, blocks],
    }


def _remote(got: list[SampledMinibatch], part: Part, seeds_are_own: bool) -> tuple[int, int, int]:
    """Counts the expanded remote nodes, their edges, and the questions of minibatches to owners."""
    nodes = edges = blocks = 0
    for batch in got:
        owner = part.book.owner(batch.node)
        ends = torch.tensor(batch.nodes_per_hop).cumsum(0).tolist()
        for hop, (first, last) in enumerate(zip([0, *ends], ends[:-1], strict=False)):
            if hop == 0 and seeds_are_own:
                continue
            away = owner[first:last] != part.number
            nodes += int(away.sum())
            edges += int(batch.indptr.diff()[first:last][away].sum())
            blocks += owner[first:last][away].unique().numel()
    return nodes, edges, blocks


def ring(comm: Communicator, **options: Any) -> tuple[Part, PartitionedSampler]:
    """A ring of 100 nodes for each rank, every node with an in-edge from each of the next five."""
    nodes = 100 * comm.size
    destination = torch.arange(nodes).repeat_interleave(5)
    source = (destination + torch.arange(1, 6).repeat(nodes)) % nodes
    owner = torch.arange(nodes) % comm.size
    part = split_graph(torch.stack([source, destination]), owner, comm.size, comm.rank)
    return part, PartitionedSampler(part, comm, SamplingPlan((3, 3)), 1, **options)


def fault(how: str, victim: int, timeout: float) -> dict[str, Any]:
    comm = Communicator.create("sampling", timeout=timeout)
    part, sampler = ring(comm)
    seeds = torch.arange(part.first, part.first + 10)
    clock = AwakeClock()
    try:
        for macrobatch in range(5000):
            if macrobatch == 3 and comm.rank == victim:
                _misbehave(how, sampler)
            sampler.sample([seeds], [part.node[:10]], 1, macrobatch)
    except CommError as error:
        return told(error, clock)
    raise AssertionError("nobody failed")


def _misbehave(how: str, sampler: PartitionedSampler) -> None:
    def instead(*_arguments: Any) -> Any:
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        stop_for_good()

    sampler._answer = instead  # type: ignore[method-assign]


def refusals() -> dict[str, str]:
    said = {}
    with Communicator.create("sampling", timeout=20) as comm:
        part, sampler = ring(comm, seeds_are_own=True)
        seeds, names = torch.arange(part.first, part.first + 3), part.node[:3]
        attempts = {
            "foreign": ([(seeds + 100) % (100 * comm.size)], [names]),
            "outside": ([seeds + 10_000], [names]),
            "short": ([seeds], [names[:2]]),
            "lists": ([seeds], []),
            "dtype": ([seeds.int()], [names]),
        }
        for what, (lists, originals) in attempts.items():
            try:
                sampler.sample(lists, originals, 0, 0)
            except (ValueError, IndexError, TypeError) as error:
                said[what] = f"{type(error).__name__}: {error}"
        try:
            PartitionedSampler(replace(part, number=1 - comm.rank), comm, SamplingPlan((2,)))
        except ValueError as error:
            said["part"] = str(error)
        try:
            PartitionedSampler(replace(part, node=part.node[1:]), comm, SamplingPlan((2,)))
        except ValueError as error:
            said["node"] = str(error)
        (after,) = sampler.sample([seeds], [names], 0, 0)
        assert after.batch_size == 3
    return said


def wrong_book() -> dict[str, Any]:
    """Lets rank 1 think that rank 0 owns more than it does."""
    comm = Communicator.create("sampling", timeout=4)
    part, sampler = ring(comm)
    if comm.rank == 1:
        book = PartitionBook([0, 150, 200])
        shorter = torch.arange(part.num_nodes - 50)
        part = replace(
            part,
            book=book,
            node=part.node[shorter],
            relations=(
                InEdges(
                    part.in_edges.indptr[: shorter.numel() + 1],
                    part.in_edges.indices[: int(part.in_edges.indptr[shorter.numel()])],
                    part.in_edges.explicit_edge_ids()[: int(part.in_edges.indptr[shorter.numel()])],
                ),
            ),
        )
        sampler = PartitionedSampler(part, comm, SamplingPlan((3, 3)), 1)
    try:
        with comm:
            seeds = torch.arange(140, 145) if comm.rank == 1 else torch.arange(5)
            sampler.sample([seeds], [seeds], 0, 0)
    except CommError as error:
        return {"text": str(error), "ranks": list(error.ranks)}
    time.sleep(0.1)
    raise AssertionError("nobody noticed")
