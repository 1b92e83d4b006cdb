"""The jobs of ranks in test_relay.py: sample together, compare with one process."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import torch

from pyg_batchgnn.comm import CommError, Communicator
from pyg_batchgnn.ops import InEdges
from pyg_batchgnn.partition import Part, PartitionBook
from pyg_batchgnn.sample import PartitionedSampler, SamplingPlan
from tests.support.reference_partition import split_graph


def ring(comm: Communicator, **options: Any) -> tuple[Part, PartitionedSampler]:
    """A ring of 100 nodes for each rank, every node with an in-edge from each of the next five."""
    nodes = 100 * comm.size
    destination = torch.arange(nodes).repeat_interleave(5)
    source = (destination + torch.arange(1, 6).repeat(nodes)) % nodes
    owner = torch.arange(nodes) % comm.size
    part = split_graph(torch.stack([source, destination]), owner, comm.size, comm.rank)
    return part, PartitionedSampler(part, comm, SamplingPlan((3, 3)), 1, **options)


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
