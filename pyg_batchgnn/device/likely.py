"""The rows that minibatches are most likely to need, in one process.

The probability that a minibatch holds a node follows hop by hop from the fanouts, as for the
feature cache of ranks: an in-edge of an expanded node is taken with a probability that the node's
degree and the fanout decide, and edges are treated as independent of each other.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from pyg_batchgnn.ops import InEdges
from pyg_batchgnn.sample import SamplingPlan, taken_probability
from pyg_batchgnn.store import TypedGraph

#: Edges that are worked on at once, which bounds memory.
_EDGES = 1 << 24


def inclusion_of_nodes(
    graph: TypedGraph, plan: Any, seeds: Sequence[tuple[int, Tensor]], probability: float
) -> list[Tensor]:
    """Returns the probability that a minibatch holds each node, [N_t] float64 by type."""
    found = [torch.zeros(count, dtype=torch.float64) for count in graph.num_nodes]
    for number, node in seeds:
        found[number] += torch.bincount(node, minlength=graph.num_nodes[number]) * probability
        found[number].clamp_(max=1.0)
    if not isinstance(plan, SamplingPlan):
        return [one + edges for one, edges in zip(found, _sums(graph, None), strict=True)]
    left = [1 - one for one in found]  # of not having been found yet
    degrees = [edges.degrees.to(torch.float64) for edges in graph.relations]
    for hop in range(plan.num_hops):
        escapes = []
        ends = zip(graph.schema.relations, graph.schema.target_types, degrees, strict=True)
        for names, target, in_edges in ends:
            fanout = plan.fanouts_of(names)[hop]
            taken = found[target] * taken_probability(in_edges, fanout, plan.replacement)
            escapes.append(torch.log1p(-taken.clamp(max=1 - 1e-6)))
        sums = _sums(graph, escapes)
        found = [-torch.expm1(total) * rest for total, rest in zip(sums, left, strict=True)]
        left = [rest - one for rest, one in zip(left, found, strict=True)]
    return [1 - rest for rest in left]


def _sums(graph: TypedGraph, values: Sequence[Tensor] | None) -> list[Tensor]:
    """Sums the targets' values, or counts targets for None, over each node's out-edges, by type."""
    sums = [torch.zeros(count, dtype=torch.float64) for count in graph.num_nodes]
    for at, (edges, source) in enumerate(zip(graph.relations, graph.schema.source_types, strict=True)):
        for begin, end in _ranges(edges):
            first, last = int(edges.indptr[begin]), int(edges.indptr[end])
            weights = None
            if values is not None:
                degrees = edges.indptr[begin : end + 1].diff()
                weights = torch.repeat_interleave(values[at][begin:end], degrees, output_size=last - first)
            sums[source] += torch.bincount(edges.indices[first:last], weights, minlength=sums[source].numel())
    return sums


def _ranges(edges: InEdges) -> list[tuple[int, int]]:
    """Cuts the targets into ranges of about `_EDGES` edges."""
    steps = torch.arange(0, edges.num_edges + _EDGES, _EDGES).clamp(max=edges.num_edges)
    ends = torch.searchsorted(edges.indptr, steps).clamp(max=edges.num_targets).unique().tolist()
    ends = sorted({0, *ends, edges.num_targets})
    return list(itertools.pairwise(ends))


def likely_rows(
    inclusion: Sequence[Tensor], row_bytes: Mapping[int, int], num_nodes: Sequence[int], budget: int
) -> dict[int, Tensor]:
    """Chooses the rows for a device's cache of ``budget`` bytes, the most likely ones: by number of
    the type, nodes [c] int64, ascending."""
    numbers = [number for number, size in row_bytes.items() if size > 0]
    left = budget - 4 * sum(num_nodes[number] for number in numbers)
    if left <= 0 or not numbers:
        return {}
    value = torch.cat([inclusion[number] for number in numbers])
    size = torch.cat([torch.full((num_nodes[number],), row_bytes[number]) for number in numbers])
    most = min(value.numel(), left // min(row_bytes[number] for number in numbers))
    order = value.argsort(descending=True, stable=True)[:most]
    order = order[(size[order].cumsum(0) <= left) & (value[order] > 0)].sort().values
    ends = torch.tensor([num_nodes[number] for number in numbers]).cumsum(0)
    kind = torch.searchsorted(ends, order, right=True)
    chosen = {}
    for at, number in enumerate(numbers):
        nodes = order[kind == at] - (int(ends[at]) - num_nodes[number])
        if nodes.numel():
            chosen[number] = nodes
    return chosen
