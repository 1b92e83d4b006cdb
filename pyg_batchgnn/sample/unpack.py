"""The arrays of sampling operators as minibatches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import compress

import torch
from torch import Tensor

from pyg_batchgnn.data import Schema
from pyg_batchgnn.sample.parts import Parts
from pyg_batchgnn.sample.plan import Subgraph
from pyg_batchgnn.sample.sampled import SampledMinibatch
from pyg_batchgnn.sample.sampled_parts import Layout, SampledEdges, SampledNodes
from pyg_batchgnn.sample.sampler import MinibatchPlan
from pyg_batchgnn.sample.seeds import Seeds


class Unpacker:
    """Makes minibatches of the arrays that a sampling operator returns.

    Types and relations that a minibatch does not reach share the same empty parts and cost nothing.

    Args:
        schema: the schema of the graph.
        plan: the plan that was sampled by.
        layout: the form of the edges.
        disjoint: True if nodes come with the numbers of their examples.
    """

    def __init__(self, schema: Schema, plan: MinibatchPlan, layout: Layout, disjoint: bool) -> None:
        self.schema = schema
        self.plan = plan
        self.layout = layout
        self.disjoint = disjoint
        none = torch.empty(0, dtype=torch.int64)
        self._no_nodes = SampledNodes(none, [0] * (plan.num_hops + 1), none if disjoint else None)
        ends = torch.zeros(1, dtype=torch.int64)
        coo = torch.empty(2, 0, dtype=torch.int64) if layout is Layout.COO else None
        sources = torch.empty(0, dtype=torch.int32) if coo is None else coo[0]
        per_hop = [] if plan.subgraph is Subgraph.INDUCED else [0] * plan.num_hops
        self._no_edges = SampledEdges(ends, sources, none if plan.edge_ids else None, per_hop, coo)

    def minibatches(
        self, arrays: Sequence[Tensor], counts: Tensor, seeds: Sequence[Seeds], seed: int, epoch: int
    ) -> list[SampledMinibatch]:
        """Returns the minibatches.

        Args:
            arrays, counts: see `ops.sample`.
            seeds: the seeds of each minibatch.
            seed: the seed that they were sampled with.
            epoch: the epoch that they were sampled in.
        """
        following = iter(arrays)
        return [
            self._minibatch(following, per_hop, own, seed, epoch)
            for per_hop, own in zip(counts.tolist(), seeds, strict=True)
        ]

    def _minibatch(
        self, arrays: Iterator[Tensor], counts: list[int], seeds: Seeds, seed: int, epoch: int
    ) -> SampledMinibatch:
        schema, hops = self.schema, self.plan.num_hops
        first = schema.num_types * (hops + 1)
        nodes: dict[int, SampledNodes] = {}
        into: list[int] = []
        # A loop over all types would take longer than all the rest.
        for number in dict.fromkeys(at // (hops + 1) for at in compress(range(first), counts)):
            per_hop = counts[number * (hops + 1) : (number + 1) * (hops + 1)]
            nodes[number] = SampledNodes(next(arrays), per_hop, next(arrays) if self.disjoint else None)
            if self._has_rows(per_hop):
                into.extend(schema.relations_into[number])
        edges = {
            number: self._edges(arrays, counts[first + number * hops : first + (number + 1) * hops])
            for number in sorted(into)
        }
        return SampledMinibatch(
            schema,
            Parts(schema.num_types, nodes, self._no_nodes),
            Parts(schema.num_relations, edges, self._no_edges),
            seeds.key,
            seed=seed,
            epoch=epoch,
            seed_types=seeds.types,
            seed_time=seeds.time,
        )

    def _has_rows(self, per_hop: list[int]) -> bool:
        """Returns whether the nodes of a type are targets of edges."""
        return self.plan.subgraph is Subgraph.INDUCED or any(per_hop[:-1])

    def _edges(self, arrays: Iterator[Tensor], per_hop: list[int]) -> SampledEdges:
        indptr, edges = next(arrays), next(arrays)
        edge = next(arrays) if self.plan.edge_ids else None
        if self.plan.subgraph is Subgraph.INDUCED:
            per_hop = []
        if self.layout is Layout.CSC:
            return SampledEdges(indptr, edges, edge, per_hop)
        return SampledEdges(indptr, edges[0], edge, per_hop, edges)
