"""Sampling minibatches of a graph with any number of node types and relations.

The kernel trusts its arguments, which are checked here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from torch import Tensor

from pyg_batchgnn.ops.known import writes
from pyg_batchgnn.ops.library import kernels, memory_errors, to_signed
from pyg_batchgnn.ops.sample_checks import (
    check_details,
    check_orders,
    check_relations,
    check_rules,
    check_seeds,
)


class _Held(NamedTuple):
    """The kernel's form of a graph.

    Attributes:
        state: the graph, as the kernel takes it.
        writes: the writes to its arrays when they were checked; None if nobody counts them.
    """

    state: Tensor
    writes: int | None


@dataclass(frozen=True, eq=False)
class SampledGraph:
    """The arrays of a graph that is sampled.

    They are checked once for as long as torch does not write to them.

    Attributes:
        num_nodes: the number of nodes of each type.
        indptr: by relation, [N_target + 1] int64.
        indices: by relation, [E_r] int32 or int64, the same for all.
        edge_ids: by relation, [E_r] int32 or int64; empty where the positions are the ids.
        source, target: by relation, the numbers of its types.
        digest: by relation, the digest of its names, signed.
        order: empty, or two vectors per relation: times [E_r] int64 in ascending order within each
            adjacency list, and the positions in ``indices`` in that order; empty vectors where a
            relation has no times.
        weights: empty, or three vectors per relation, in the order of ``order`` if it has times:
            sums [E_r] and weights [E_r] float64, and the number of positive weights before each
            edge [E_r + 1] int64; an empty vector of sums where a relation has no weights, and of
            numbers where all weights are positive.
    """

    num_nodes: list[int]
    indptr: list[Tensor]
    indices: list[Tensor]
    edge_ids: list[Tensor]
    source: list[int]
    target: list[int]
    digest: list[int]
    order: list[Tensor]
    weights: list[Tensor]

    def held(self, check: Callable[[], None] | None = None) -> Tensor:
        """Returns the graph in the form that the kernel takes, checked.

        Args:
            check: checks the arrays of a part of a graph; None for a whole graph.

        Raises:
            TypeError, ValueError, IndexError: the arrays do not fit together.
        """
        known: _Held | None = self.__dict__.get("_held")
        now = writes(self._arrays)
        if known is None or now is None or known.writes != now:
            edges = (self.indptr, self.indices, self.edge_ids, self.source, self.target)
            if check is None:
                check_relations(self.num_nodes, *edges)
            else:
                check()
            check_orders(self.order, self.weights, self.indices)
            if len(self.digest) != len(self.indptr):
                raise ValueError(f"{len(self.digest)} digests came for {len(self.indptr)} relations")
            state = kernels.sampled_graph(self.num_nodes, *edges, self.digest, self.order, self.weights)
            known = _Held(state, now)
            object.__setattr__(self, "_held", known)
        return known.state

    def __getstate__(self) -> dict[str, Any]:
        """Returns the arrays, which another process can take."""
        return {name: value for name, value in self.__dict__.items() if name != "_held"}

    @cached_property
    def _arrays(self) -> tuple[Tensor, ...]:
        return (*self.indptr, *self.indices, *self.edge_ids, *self.order, *self.weights)


@dataclass(frozen=True, eq=False)
class SampledSeeds:
    """The seeds of all minibatches, by minibatch and then by node type.

    Attributes:
        node: [S] int64 ids within their types.
        ptr: [B * types + 1] int64, where the seeds of each minibatch and type begin.
        keys: [B] int64, the digest of each minibatch's seeds, signed.
        example: [S] int64, in disjoint sampling the number of each seed's example, else None.
        time: [S] int64, the time of each seed's example, or None.
        excluded: [5, n] int64, the minibatch, relation, example (-1: all), target and source of
            each excluded pair, columns in ascending order; or None.
    """

    node: Tensor
    ptr: Tensor
    keys: Tensor
    example: Tensor | None = None
    time: Tensor | None = None
    excluded: Tensor | None = None


@dataclass(frozen=True, eq=False)
class SamplingRules:
    """The rules of picking.

    Attributes:
        hops: the number of hops.
        fanouts: [R * hops] neighbours to pick, hops of relation 0 first; -1 for all.
        shares: [R * hops] float64, shares of the neighbours to pick, 0 where ``fanouts`` holds; or
            None.
        replace: True picks with replacement.
        return_edge: True if the ids of the picked edges are wanted.
        last: True picks the last neighbours by time.
        window: allowed times go back this far from the seed's; -1: without end.
        induced: True takes all edges between the sampled nodes.
        coo: True returns sources and targets as int64, else sources by target as int32.
    """

    hops: int
    fanouts: list[int]
    shares: Tensor | None
    replace: bool
    return_edge: bool
    last: bool
    window: int
    induced: bool
    coo: bool


def sample(
    graph: SampledGraph, seeds: SampledSeeds, rules: SamplingRules, seed: int, epoch: int, threads: int
) -> tuple[Sequence[Tensor], Tensor]:
    """Samples one minibatch for each list of seeds.

    Returns:
        The arrays of all minibatches, and [B, types * (hops + 1) + R * hops] int64, the nodes of
        each type and then the edges of each relation, by hop. The arrays of a minibatch are, for
        each type that has nodes, its ids [N_t] int64 and in disjoint sampling their examples
        [N_t]; then, for each relation into a type with expanded nodes, ``indptr`` [D_t + 1], the
        edges ([2, E_r] or [E_r]) and, if they are wanted, the edge ids [E_r].
    """
    held, relations = graph.held(), len(graph.indptr)
    check_seeds(seeds.node, seeds.ptr, seeds.keys, graph.num_nodes)
    details = (seeds.example, seeds.time, seeds.excluded)
    check_details(*details, seeds.node.numel(), (seeds.keys.numel(), relations))
    check_rules(rules.fanouts, rules.shares, relations * rules.hops)
    with memory_errors(
        f"not enough memory to sample {seeds.node.numel()} seeds with fanouts {rules.fanouts}; use "
        f"smaller fanouts, batches or macrobatches"
    ):
        return kernels.sample(
            *(held, seeds.node, seeds.ptr, seeds.keys, *details),
            *(rules.hops, rules.fanouts, rules.shares, rules.replace, rules.return_edge, rules.last),
            *(rules.window, rules.induced, rules.coo, to_signed(seed), to_signed(epoch), threads),
        )
