"""Sampling minibatches of a graph with any number of node types and relations.

The kernel trusts its arguments, which are checked here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor

from pyg_batchgnn.ops.checks import check_ids, check_indptr, check_range, check_vector, is_known_indptr
from pyg_batchgnn.ops.library import kernels, memory_errors, thread_count, to_signed


@dataclass(frozen=True, eq=False)
class SampledGraph:
    """The arrays of a graph to be sampled, checked again only if torch has written to them."""

    num_nodes: list[int]
    indptr: list[Tensor]  # by relation, [N_target + 1] int64
    indices: list[Tensor]  # by relation, [E_r] int32 or int64, the same for all
    edge_ids: list[Tensor]  # by relation, [E_r] int32 or int64; empty where the positions are the ids
    # source, target: by relation, the numbers of its types.
    source: list[int]
    target: list[int]
    digest: list[int]  # by relation, the digest of its names, signed
    source_digest: list[int]  # by relation, the digest of the name of its source type, signed
    # Empty, or two vectors per relation: times [E_r] int64, ascending within each adjacency list,
    # and the positions in ``indices`` in that order; empty where a relation has no times.
    order: list[Tensor]
    # Empty, or three vectors per relation, in the order of times: sums [E_r] and weights [E_r]
    # float64, and the number of positive weights before each edge [E_r + 1] int64; sums are empty
    # without weights, and numbers where all weights are positive.
    weights: list[Tensor]
    # Empty where ``indices`` holds original ids, or by relation the original ids of the sources
    # [E_r], of the dtype of ``indices``; read where destinations share the words of sources.
    source_ids: list[Tensor] = field(default_factory=list)

    def held(self, check: Callable[[], None] | None = None) -> Tensor:
        """Returns the graph as kernels take it, checked; by ``check`` for a part of a graph."""
        # The graph as the kernel takes it, and the writes to its arrays when they were checked.
        known: tuple[Tensor, int | None] | None = self.__dict__.get("_held")
        now = _writes(self._arrays)
        if known is None or now is None or known[1] != now:
            edges = (self.indptr, self.indices, self.edge_ids, self.source, self.target)
            (check or self.check_relations)()
            check_orders(self.order, self.weights, self.indices)
            if not len(self.digest) == len(self.source_digest) == len(self.indptr):
                raise ValueError(f"{len(self.digest)} digests came for {len(self.indptr)} relations")
            if self.source_ids and [(one.dtype, one.shape) for one in self.source_ids] != [
                (one.dtype, one.shape) for one in self.indices
            ]:
                raise ValueError("source_ids must have an entry, of the same dtype, for each of indices")
            digests = self.digest, self.source_digest
            state = kernels.sampled_graph(
                self.num_nodes, *edges, *digests, self.order, self.weights, self.source_ids
            )
            known = state, now
            object.__setattr__(self, "_held", known)
        return known[0]

    def check_relations(self, num_sources: int | None = None) -> None:
        """Raises TypeError, ValueError or IndexError unless the in-edges of each relation fit its
        types. ``num_sources``: an upper bound of source ids in a part of a graph; None for the
        nodes of their type."""
        lists = (self.indptr, self.indices, self.edge_ids)
        if {*map(len, lists), len(self.source)} != {len(self.target)}:
            raise ValueError("every relation needs one indptr, indices, edge_ids, source and target")
        for number, (rows, sources, ids) in enumerate(zip(*lists, strict=True)):
            check_indptr("indptr", rows, sources.numel(), of_graph=True)
            targets = self.num_nodes[self.target[number]]
            if rows.numel() != targets + 1:
                raise ValueError(
                    f"indptr of relation {number} is of {rows.numel() - 1} nodes, but its target type has "
                    f"{targets}"
                )
            most = self.num_nodes[self.source[number]] if num_sources is None else num_sources
            check_ids("indices", sources, most, of_graph=True)
            if sources.dtype != self.indices[0].dtype:
                raise TypeError(
                    f"indices of all relations must be {self.indices[0].dtype}, got {sources.dtype}"
                )
            check_vector("edge_ids", ids)
            _check_length("edge_ids", ids, sources.numel())

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_held"}

    @cached_property
    def _arrays(self) -> tuple[Tensor, ...]:
        return (*self.indptr, *self.indices, *self.edge_ids, *self.order, *self.weights, *self.source_ids)


def _writes(arrays: Sequence[Tensor]) -> int | None:
    """Returns how often torch has written to these tensors; None if one has no counter."""
    try:
        return sum(map(_version, arrays))
    except (RuntimeError, AttributeError):  # made in inference mode, or no tensor
        return None


_version = attrgetter("_version")


@dataclass(frozen=True, eq=False)
class SampledSeeds:
    """The seeds of all minibatches, by minibatch and then by node type."""

    node: Tensor  # [S] int64 ids within their types
    ptr: Tensor  # [B * types + 1] int64, where the seeds of each minibatch and type begin
    keys: Tensor  # [B] int64, the digest of each minibatch's seeds, signed
    # [S] int64, in disjoint sampling the number of each seed's example, else None.
    example: Tensor | None = None
    time: Tensor | None = None  # [S] int64, the time of each seed's example, or None
    # [5, n] int64, the minibatch, relation, example (-1: all), target and source of each excluded
    # pair, columns in ascending order; or None.
    excluded: Tensor | None = None


@dataclass(frozen=True, eq=False)
class SamplingRules:
    """How neighbours are picked."""

    hops: int
    fanouts: list[int]  # [R * hops] neighbours to pick, hops of relation 0 first; -1 for all
    # [R * hops] float64, shares of the neighbours to pick, 0 where ``fanouts`` holds; or None.
    shares: Tensor | None
    coo: bool  # True returns sources and targets as int64, else sources by target as int32
    options: Mapping[str, int]  # the rules by the names of `Plan::set` in kernels/sample/plan.h

    def held(self, num_relations: int) -> Tensor:
        """Returns the rules as kernels take them, checked, without the form of the edges."""
        fanouts, count = self.fanouts, num_relations * self.hops
        if len(fanouts) != count or any(fanout < -1 for fanout in fanouts):
            raise ValueError(f"there must be {count} fanouts, each at least -1, got {list(fanouts)}")
        if self.shares is not None:
            check_vector("shares", self.shares, (torch.float64,))
            if self.shares.numel() != count:
                raise ValueError(f"{self.shares.numel()} shares came for {count} fanouts")
        return self._state

    @cached_property
    def _state(self) -> Tensor:
        names, values = list(self.options), list(map(int, self.options.values()))
        made: Tensor = kernels.sampling_rules(self.hops, self.fanouts, self.shares, names, values)
        return made

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_state"}


def sample(
    graph: SampledGraph, seeds: SampledSeeds, rules: SamplingRules, seed: int, epoch: int
) -> tuple[Sequence[Tensor], Tensor]:
    """Samples one minibatch for each list of seeds.

    Returns:
        The arrays of all minibatches, and [B, types * (hops + 1) + R * hops] int64, the nodes of
            each type and then the edges of each relation, by hop. The arrays of a minibatch are,
            for each type that has nodes, its ids [N_t] int64 and in disjoint sampling their
            examples [N_t]; then, for each relation into a type with expanded nodes, ``indptr`` [D_t
            + 1], the edges ([2, E_r] or [E_r]) and, if they are wanted, the edge ids [E_r].
    """
    held, relations = graph.held(), len(graph.indptr)
    check_seeds(seeds, graph.num_nodes)
    plan = rules.held(relations)
    with memory_errors(
        f"not enough memory to sample {seeds.node.numel()} seeds with fanouts {rules.fanouts}; use "
        f"smaller fanouts, batches or macrobatches"
    ):
        return kernels.sample(
            *(held, plan, seeds.node, seeds.ptr, seeds.keys, seeds.example, seeds.time, seeds.excluded),
            *(rules.coo, to_signed(seed), to_signed(epoch), thread_count()),
        )


def list_tokens(
    kind: Tensor, row: Tensor, num_nodes: list[int], relations: Sequence[Sequence[Any]], count: int
) -> Tensor:
    """Returns the first ``count`` nodes around each seed of a disjoint minibatch, breadth first:
    types, rows, hops, relations, edges and parents, [6, S, count] int64, padded with -1.

    ``kind, row``: the seeds' types and rows [S] int64. ``relations``: for each one the types of its
    sources and targets, ``indptr`` and ``indices``.
    """
    with memory_errors(f"not enough memory for {count} tokens of each of {row.numel()} seeds; take fewer"):
        return kernels.list_tokens(kind, row, num_nodes, *map(list, relations), count)


# Sampling by budgets ##############################################################################


@dataclass(frozen=True, eq=False)
class BudgetRules:
    """How the Heterogeneous Graph Transformer samples: a number of nodes per type and hop."""

    hops: int
    samples: list[int]  # [types * hops] nodes to sample, hops of type 0 first; -1 for all
    type_digest: list[int]  # by type, the digest of its name, signed
    cap: int  # the neighbours of a node that count in a relation; -1 for all
    return_edge: bool
    coo: bool

    @cached_property
    def state(self) -> Tensor:
        """The rules as kernels take them, without the form of the edges."""
        made: Tensor = kernels.budget_rules(
            self.hops, self.samples, self.type_digest, self.cap, self.return_edge
        )
        return made

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "state"}


def sample_by_budgets(
    graph: SampledGraph, seeds: SampledSeeds, rules: BudgetRules, seed: int, epoch: int
) -> tuple[Sequence[Tensor], Tensor]:
    """As `sample`, by budgets of nodes. Edges have no hops: their counts are 0."""
    types = len(graph.num_nodes)
    held = graph.held()
    check_seeds(seeds, graph.num_nodes)
    if len(rules.samples) != types * rules.hops or any(one < -1 for one in rules.samples):
        raise ValueError(
            f"there must be {types * rules.hops} numbers of samples, each at least -1, got {rules.samples}"
        )
    if len(rules.type_digest) != types:
        raise ValueError(f"{len(rules.type_digest)} digests came for {types} node types")
    if rules.cap < -1 or rules.cap == 0:
        raise ValueError(f"the cap of neighbours must be positive, or -1 for none, got {rules.cap}")
    with memory_errors(
        f"not enough memory to sample {seeds.node.numel()} seeds with num_samples {rules.samples}; use "
        f"smaller samples, batches or macrobatches"
    ):
        return kernels.sample_hgt(
            *(held, rules.state, seeds.node, seeds.ptr, seeds.keys),
            *(rules.coo, to_signed(seed), to_signed(epoch), thread_count()),
        )


# Checks ###########################################################################################


def check_orders(order: Sequence[Tensor], weights: Sequence[Tensor], indices: Sequence[Tensor]) -> None:
    """Raises TypeError or ValueError unless times and weights fit the edges of the relations."""
    for what, arrays, each in (("order", order, 2), ("weights", weights, 3)):
        if len(arrays) not in (0, each * len(indices)):
            raise ValueError(f"{what} must have {each} vectors for each of {len(indices)} relations")
    for number, sources in enumerate(indices):
        edges = sources.numel()
        if order:
            time, position = order[2 * number : 2 * number + 2]
            check_vector("times", time, (torch.int64,))
            _check_length("times", time, edges)
            check_ids("positions", position, edges, "edges", of_graph=True)
            _check_length("positions", position, time.numel())
        if weights:
            sums, each_weight, positive = weights[3 * number : 3 * number + 3]
            for name, values in (("sums", sums), ("weights", each_weight)):
                check_vector(name, values, (torch.float64,))
                _check_length(name, values, edges)
            _check_length("sums", sums, each_weight.numel())
            check_vector("positive", positive, (torch.int64,))
            if positive.numel() not in (0, edges + 1):
                raise ValueError(f"positive has {positive.numel()} entries for {edges} edges")
            total = int(positive[-1]) if positive.numel() else 0
            if positive.numel() and not is_known_indptr(positive, total, True):
                if int(positive[0]) != 0 or not torch.equal(positive[1:], (each_weight > 0).cumsum(0)):
                    raise ValueError(
                        "positive must count the positive weights before each place; use WeightSums.of"
                    )
                check_indptr("positive", positive, total, of_graph=True)


def check_seeds(seeds: SampledSeeds, num_nodes: Sequence[int]) -> None:
    """Raises IndexError unless seeds are nodes of their type; all else was checked before."""
    check_vector("seeds", seeds.node, (torch.int64,))
    if len(num_nodes) == 1:
        return check_range("seeds", seeds.node, num_nodes[0])
    counts = seeds.ptr.diff()
    given = counts.nonzero().view(-1)  # few of many types
    limit = torch.tensor(num_nodes)[given % len(num_nodes)].repeat_interleave(counts[given])
    wrong = (seeds.node < 0) | (seeds.node >= limit)
    if bool(wrong.any()):
        at = int(wrong.nonzero()[0])
        raise IndexError(f"seeds hold {int(seeds.node[at])}, but their type has {int(limit[at])} nodes")
    return None


def _check_length(name: str, values: Tensor, length: int) -> None:
    if values.numel() not in (0, length):
        raise ValueError(f"{name} has {values.numel()} entries for {length} edges")
