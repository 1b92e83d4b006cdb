"""A neighbour sampler in NumPy with PyG's rules, which shares nothing with the package.

It serves the comparison of accuracies only. Uniform choice without replacement: every in-edge of a
node draws a random number, and the node keeps the edges with the smallest.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from benchmark.support.graphs import GraphFolder


@dataclass(frozen=True, eq=False)
class ReferenceBatch:
    """A minibatch with the attributes of PyG's that the models read.

    Attributes:
        x: [N, F] float32, features of the nodes in order of discovery, seeds first.
        y: [N] int64 labels.
        edge_index: [2, E] int64 local ids, sources above destinations, in hop order.
        num_sampled_nodes: seeds, then nodes discovered at each hop.
        num_sampled_edges: edges of each hop.
        batch_size: number of seeds.
    """

    x: Tensor
    y: Tensor
    edge_index: Tensor
    num_sampled_nodes: list[int]
    num_sampled_edges: list[int]
    batch_size: int


class ReferenceSampler:
    """Samples neighbours uniformly; a node is expanded once, at the hop where it is discovered.

    Args:
        graph: the graph, by destination.
        fanouts: neighbours per hop, from the seeds.
        replace: whether a neighbour may be chosen more than once.
        seed: of NumPy's generator.
    """

    def __init__(self, graph: GraphFolder, fanouts: tuple[int, ...], replace: bool, seed: int) -> None:
        self.graph, self.fanouts, self.replace = graph, fanouts, replace
        self.colptr, self.row = graph.colptr.numpy(), graph.row.numpy()
        self.random = np.random.default_rng(seed)

    def chosen_edges(self, nodes: np.ndarray, fanout: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns the edges chosen for ``nodes``: (ascending position of the destination, edge)."""
        degree = self.colptr[nodes + 1] - self.colptr[nodes]
        if self.replace:
            owner = np.repeat(np.arange(len(nodes)), np.where(degree > 0, fanout, 0))
            return owner, self.colptr[nodes[owner]] + self.random.integers(0, degree[owner])
        owner = np.repeat(np.arange(len(nodes)), degree)
        first_of_owner = np.cumsum(degree) - degree
        rank = np.arange(len(owner)) - first_of_owner[owner]
        edge = self.colptr[nodes[owner]] + rank
        shuffled = np.lexsort((self.random.random(len(edge)), owner))  # by owner, then by random number
        return owner[rank < fanout], edge[shuffled][rank < fanout]

    def minibatch(self, seeds: np.ndarray) -> ReferenceBatch:
        """The minibatch of [S] distinct seed nodes."""
        local = np.full(self.graph.num_nodes, -1)
        local[seeds] = np.arange(len(seeds))
        nodes, frontier, expanded = [seeds], seeds, 0
        sources, destinations = [], []
        for fanout in self.fanouts:
            owner, edge = self.chosen_edges(frontier, fanout)
            source = self.row[edge]
            unseen = source[local[source] < 0]
            distinct, first = np.unique(unseen, return_index=True)
            new = distinct[np.argsort(first)]  # in order of first appearance
            local[new] = expanded + len(frontier) + np.arange(len(new))
            sources.append(local[source])
            destinations.append(expanded + owner)
            expanded += len(frontier)
            nodes.append(new)
            frontier = new
        node = torch.from_numpy(np.concatenate(nodes))
        edge_index = np.stack([np.concatenate(sources), np.concatenate(destinations)])
        return ReferenceBatch(
            x=self.graph.x[node],
            y=self.graph.y[node],
            edge_index=torch.from_numpy(edge_index),
            num_sampled_nodes=[len(some) for some in nodes],
            num_sampled_edges=[len(some) for some in sources],
            batch_size=len(seeds),
        )
