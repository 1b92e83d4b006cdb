"""Small sampled minibatches made in plain Python, for testing models without the loader."""

from __future__ import annotations

import random
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class SmallBatch:
    """The input of a model, with attributes as in a batch of PyG's."""

    x: Tensor
    edge_index: Tensor
    num_sampled_nodes: list[int]
    num_sampled_edges: list[int]
    node: list[int]

    @property
    def model_input(self) -> tuple[Tensor, Tensor, list[int], list[int]]:
        return self.x, self.edge_index, self.num_sampled_nodes, self.num_sampled_edges


def random_neighbours(num_nodes: int, num_edges: int, seed: int) -> list[list[int]]:
    """Returns the in-neighbours of each node; the last node has no edges."""
    rng = random.Random(seed)
    neighbours: list[list[int]] = [[] for _ in range(num_nodes)]
    for _ in range(num_edges):
        neighbours[rng.randrange(num_nodes - 1)].append(rng.randrange(num_nodes - 1))
    return neighbours


def sample_batch(
    neighbours: list[list[int]], seeds: list[int], fanouts: list[int], features: int, seed: int = 0
) -> SmallBatch:
    """Samples a batch: expands each node once; -1 takes all; duplicate seeds keep rows."""
    rng = random.Random(seed)
    node = list(seeds)
    local: dict[int, int] = {}
    for row, original in enumerate(seeds):
        local.setdefault(original, row)
    sources: list[int] = []
    destinations: list[int] = []
    nodes_per_hop, edges_per_hop = [len(seeds)], []
    begin = 0
    for fanout in fanouts:
        end, edges_before = len(node), len(sources)
        for row in range(begin, end):
            adjacent = neighbours[node[row]]
            picks = adjacent if fanout < 0 or not adjacent else rng.choices(adjacent, k=fanout)
            for picked in picks:
                if picked not in local:
                    local[picked] = len(node)
                    node.append(picked)
                sources.append(local[picked])
                destinations.append(row)
        begin = end
        nodes_per_hop.append(len(node) - end)
        edges_per_hop.append(len(sources) - edges_before)
    table = torch.randn(len(neighbours), features, generator=torch.Generator().manual_seed(seed))
    edge_index = torch.tensor([sources, destinations], dtype=torch.int64).view(2, -1)
    return SmallBatch(
        table[torch.tensor(node, dtype=torch.int64)], edge_index, nodes_per_hop, edges_per_hop, node
    )


def batch_cases() -> dict[str, SmallBatch]:
    """The ordinary batch and the odd ones, all of three hops and 12 features."""
    graph = random_neighbours(60, 400, seed=1)
    last = len(graph) - 1
    return {
        "ordinary": sample_batch(graph, [3, 1, 4, 15, 9], [4, 3, 2], 12),
        "all neighbours": sample_batch(graph, [3, 1, 4], [-1, -1, -1], 12),
        "duplicate seeds": sample_batch(graph, [3, 1, 3, 3, 4, 1], [4, 3, 2], 12),
        "isolated seed": sample_batch(graph, [last, 5, 6], [4, 3, 2], 12),
        "only isolated seeds": sample_batch(graph, [last, last], [4, 3, 2], 12),
        "empty last hop": sample_batch(graph, [3, 1, 4], [4, 3, 0], 12),
        "empty first hop": sample_batch(graph, [3, 1, 4], [0, 3, 2], 12),
        "no seeds": sample_batch(graph, [], [4, 3, 2], 12),
    }
