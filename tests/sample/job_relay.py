"""The jobs of ranks in test_relay.py: sample together, compare with one process."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pyg_batchgnn.comm import CommError, Communicator, KindCounts, MessageKind
from pyg_batchgnn.ops import InEdges
from pyg_batchgnn.partition import Part, PartitionBook
from pyg_batchgnn.sample import (
    Layout,
    MacrobatchSampler,
    PartitionedSampler,
    Replacement,
    SampledMinibatch,
    SamplingPlan,
)
from pyg_batchgnn.store import CscGraph
from tests.support.faults import AwakeClock, stop_for_good
from tests.support.minibatch_checks import assert_same
from tests.support.reference_partition import internal_ids, split_graph

FANOUTS = ((3, 2), (5,), (-1, 2), (4, -1), (0, 3), (300, 2), (2, 2, 2, 2), (70_000, 1), (256, 3))


@dataclass(frozen=True)
class Case:
    """A graph, its owners, a plan and what each rank asks for; the same on every rank."""

    edge_index: Tensor
    owner: Tensor
    plan: SamplingPlan
    seeds: list[list[Tensor]]  # original ids, by rank and minibatch
    layout: Layout
    seeds_are_own: bool
    wide: bool
    seed: int
    epoch: int
    threads: int


def cases(ranks: int, count: int) -> Iterator[Case]:
    for number in range(count):
        yield _case(np.random.default_rng(1000 * ranks + number), ranks, number)


def _case(draw: np.random.Generator, ranks: int, number: int) -> Case:
    """A random case: self loops, parallel edges, isolated nodes, hubs, empty parts and ranks."""
    nodes = int(draw.choice([1, 7, 60, 400, 400]))
    edges = int(draw.choice([0, 1, 3, 12, 12])) * nodes
    sources = draw.integers(0, nodes, edges)
    destinations = (draw.random(edges) ** 2 * nodes).astype(np.int64)
    owner = {
        0: lambda: draw.integers(0, ranks, nodes),
        1: lambda: np.sort(draw.integers(0, ranks, nodes)),
        2: lambda: draw.integers(0, 2, nodes) * (ranks - 1),  # parts in the middle have nothing
        3: lambda: np.full(nodes, draw.integers(0, ranks)),  # one part has all
    }[number % 4]()
    seeds_are_own = bool(draw.integers(0, 2))
    seeds = []
    for rank in range(ranks):
        allowed = np.flatnonzero(owner == rank) if seeds_are_own else np.arange(nodes)
        sizes = draw.choice([0, 1, 20, 40], draw.integers(0, 6)) if len(allowed) else np.zeros(rank % 2, int)
        seeds.append([torch.from_numpy(draw.choice(allowed, size)) if size else _none() for size in sizes])
    return Case(
        torch.from_numpy(np.stack([sources, destinations])),
        torch.from_numpy(owner),
        SamplingPlan(
            FANOUTS[number % len(FANOUTS)],
            Replacement.WITH if draw.integers(0, 2) and number % len(FANOUTS) != 7 else Replacement.WITHOUT,
            bool(draw.integers(0, 2)),
        ),
        seeds,
        Layout.COO if draw.integers(0, 2) else Layout.CSC,
        seeds_are_own,
        number % 3 == 1,
        int(draw.integers(-(2**62), 2**62)),
        int(draw.integers(0, 1000)),
        int(draw.choice([1, 2, 5])),
    )


def _none() -> Tensor:
    return torch.empty(0, dtype=torch.int64)


def equal_to_one_process(count: int) -> list[int]:
    """Returns how many minibatches and edges were compared on this rank."""
    compared = [0, 0]
    with Communicator.create("sampling", timeout=30) as comm:
        for case in cases(comm.size, count):
            part = part_of(case, comm)
            assert part.in_edges.indices.dtype == (torch.int64 if case.wide else torch.int32)
            sampler = PartitionedSampler(
                *(part, comm, case.plan, case.seed, case.threads, case.layout),
                seeds_are_own=case.seeds_are_own,
            )
            graph = CscGraph.from_edge_index(case.edge_index, case.owner.numel())
            alone = MacrobatchSampler(graph, case.plan, case.seed, 1, case.layout)
            ids = internal_ids(case.owner)
            seeds = case.seeds[comm.rank]
            for epoch in (case.epoch, -1):
                before = comm.counters.snapshot()
                got = sampler.sample([ids[those] for those in seeds], seeds, epoch, 3)
                spent = (comm.counters.snapshot() - before)[MessageKind.TOPOLOGY]
                want = alone.sample(seeds, epoch)
                assert len(got) == len(want)
                check_counts(spent, rounds(case, comm.size))
                original = torch.argsort(ids)
                for mine, theirs in zip(got, want, strict=True):
                    assert_same(mine.with_ids([original[mine.node]]), theirs)
                    compared[0] += 1
                    compared[1] += mine.num_edges
        assert comm.counters.snapshot().total.rounds == comm.counters.snapshot()[MessageKind.TOPOLOGY].rounds
    return compared


def part_of(case: Case, comm: Communicator) -> Part:
    """Returns a rank's part; the ids of a ``wide`` case do not fit 32 bits."""
    part = split_graph(case.edge_index, case.owner, comm.size, comm.rank)
    if not case.wide:
        narrow = part.in_edges.explicit_edge_ids().int()
        return replace(part, relations=(replace(part.in_edges, edge_ids=narrow),))
    return replace(
        part,
        book=WideBook(part.book.offsets),
        relations=(replace(part.in_edges, indices=part.in_edges.indices.long()),),
    )


class WideBook(PartitionBook):
    @property
    def id_dtype(self) -> torch.dtype:
        return torch.int64


def rounds(case: Case, ranks: int) -> int:
    """The design's formula (section 4)."""
    if ranks == 1:
        return 0
    return 2 * (case.plan.num_hops - 1) if case.seeds_are_own else 2 * case.plan.num_hops


def check_counts(spent: KindCounts, rounds: int) -> None:
    assert (spent.rounds, spent.count_rounds) == (rounds, rounds)
    if rounds == 0:
        assert spent == KindCounts()


# Counts
# ############################################################################################


def counted(edge_ids: bool, seeds_are_own: bool, minibatches: int) -> dict[str, Any]:
    """Rows and bytes of one macrobatch, and what they should be by the minibatches themselves."""
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


# Faults
# ############################################################################################


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
        return {
            "error": type(error).__name__,
            "text": str(error),
            "ranks": list(error.ranks),
            "seconds": clock.seconds,
        }
    raise AssertionError("nobody failed")


def _misbehave(how: str, sampler: PartitionedSampler) -> None:
    """Fails between the questions and the answers."""

    def instead(*_arguments: Any) -> Any:
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        stop_for_good()

    sampler._answer = instead  # type: ignore[method-assign]


def refusals() -> dict[str, str]:
    """Checks that wrong arguments are refused before any exchange."""
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
            *(part,),
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
