"""Counts the parts of a partition, for its report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from pyg_batchgnn.comm import Communicator
from pyg_batchgnn.partition.balanced import Balanced
from pyg_batchgnn.partition.checks import check_comm
from pyg_batchgnn.partition.loads import USUAL, Load, sums_of
from pyg_batchgnn.partition.part import Part, parts_of
from pyg_batchgnn.partition.policy import PolicyLike, as_policy
from pyg_batchgnn.partition.report import PartCounts, PartitionReport

#: The number of nodes marked at a time, where distinct ones are counted, and of edges read at a
#: time.
_MARKS = 1 << 26
_EDGES = 1 << 22


def report_partition(
    parts: Part | Sequence[Part],
    comm: Communicator,
    hosts: int | None = None,
    policy: PolicyLike | None = None,
) -> PartitionReport:
    """Counts all parts, on every rank. Collective; only counts travel.

    Args:
        parts: this rank's part, or parts.
        comm: the communicator of all ranks.
        hosts: the number of hosts that get parts in order, as many each. By default the parts are
            on the hosts of the ranks if there is a part per rank, otherwise on one host.
        policy: the policy that made the parts. Its limits are compared with the loads, and its
            weights counted.
    """
    mine = parts_of(parts)
    check_comm(comm)
    made_by = None if policy is None else as_policy(policy)
    slack = dict(made_by.balance) if isinstance(made_by, Balanced) else {}
    counted = {str(part.number): {**_count(part), "loads": sums_of(part, slack)} for part in mine}
    found = {int(number): counts for said in comm.all_gather_json(counted) for number, counts in said.items()}
    counts = [found[number] for number in sorted(found)]
    return PartitionReport(
        {name: tuple(PartCounts(*part["types"][name]) for part in counts) for name in counts[0]["types"]},
        tuple(tuple(part["cut"]) for part in counts),
        tuple(tuple(part["halo"]) for part in counts),
        _hosts(comm, len(counts), hosts),
        tuple(_loads([part["loads"] for part in counts], slack)),
    )


def _loads(
    parts: Sequence[Mapping[str, Mapping[str, Sequence[float]]]], slack: Mapping[str, float]
) -> Iterator[Load]:
    """Yields the loads that some part has some of, by name.

    Args:
        parts: by part, type and load, the sum and the largest weight of a node.
        slack: by load, how many times the mean a part was allowed.
    """
    names = dict.fromkeys(name for part in parts for loads in part.values() for name in loads)
    for name in sorted(names, key=lambda name: USUAL.index(name) if name in USUAL else len(USUAL)):
        for node_type in parts[0]:
            found = [part[node_type].get(name, (0, 0)) for part in parts]
            sums, heaviest = zip(*found, strict=True)
            if any(sums):
                yield Load(name, node_type, sums, max(heaviest), slack.get(name))


def _hosts(comm: Communicator, parts: int, hosts: int | None) -> tuple[int, ...]:
    """Returns the host of each part."""
    if hosts is not None:
        return tuple(part * hosts // parts for part in range(parts))
    return tuple(comm.hosts) if parts == comm.size else (0,) * parts


def _count(part: Part) -> dict[str, Any]:
    """Returns the counts of each node type, in the order of `PartCounts`, and the halo by part."""
    schema = part.schema
    cut, halo = _outside(part)
    edges = [0] * schema.num_types
    for target, one in zip(schema.target_types, part.relations, strict=True):
        edges[target] += one.num_edges
    of_types = halo.sum(0).tolist()
    return {
        "types": {
            name: [
                len(part.nodes_of(at)),
                edges[at],
                part.split("train", name).numel(),
                int(cut[:, at].sum()),
                of_types[at],
            ]
            for at, name in enumerate(schema.node_types)
        },
        "cut": cut.sum(1).tolist(),
        "halo": halo.sum(1).tolist(),
    }


def _outside(part: Part) -> tuple[Tensor, Tensor]:
    """Returns the in-edges from other parts, [parts, types] by the part of the source and the type
    of the target; and [parts, types], the nodes of other parts that they come from."""
    schema, book, own = part.schema, part.book, part.book.nodes_of(part.number)
    cut, halo = torch.zeros(2, book.parts, schema.num_types, dtype=torch.int64)
    for begin in range(0, book.num_nodes, _MARKS):
        seen = torch.zeros(min(_MARKS, book.num_nodes - begin), dtype=torch.bool)
        for target, edges in zip(schema.target_types, part.relations, strict=True):
            for source in edges.indices.split(_EDGES):
                here = source[(source >= begin) & (source < begin + len(seen))]
                outside = here[(here < own.start) | (here >= own.stop)]
                cut[:, target] += torch.bincount(book.owner(outside), minlength=book.parts)
                seen[(outside - begin).to(torch.int64)] = True
        bounds = (book.offsets - begin).clamp(0, len(seen)).tolist()
        for cell, (first, last) in enumerate(pairwise(bounds)):
            halo.view(-1)[cell] += seen[first:last].sum()
    return cut, halo
