"""The memory that minibatches take, measured on a few of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from pyg_batchgnn.loader.order import Order
from pyg_batchgnn.loader.stats import count_distinct
from pyg_batchgnn.sample import SampledMinibatch

#: Minibatches sampled to measure with.
PROBES = 4


@dataclass(frozen=True)
class LoaderProbe:
    """The memory that one minibatch takes, in bytes, and the way distinct nodes add up.

    Attributes:
        sampled: bytes of a minibatch's topology, as it is handed out.
        attributes: bytes of a PyG batch's attributes; 0 for native batches.
        scratch: bytes of one thread's scratch memory.
        shared: bytes of scratch memory of all threads together.
        row: bytes of one node of a fetch group's block; 0 if there is no block.
        unique: distinct nodes of the minibatch.
        growth: distinct nodes that a second minibatch adds; each further one adds fewer.
    """

    sampled: int
    attributes: int
    scratch: int
    shared: int
    row: int
    unique: int
    growth: int


@dataclass(frozen=True)
class AttributeCost:
    """The memory that the attributes of a minibatch take.

    Attributes:
        row: bytes of one node of a fetch group's block; 0 if there is no block.
        batch: bytes of the attributes that a batch has for itself.
        minibatch: bytes that fetching adds to a minibatch's own tensors.
    """

    row: int = 0
    batch: int = 0
    minibatch: int = 0


#: Returns what the attributes of sampled minibatches, at least one, take.
MeasureCost: TypeAlias = Callable[[Sequence[SampledMinibatch]], AttributeCost]


def probe_batches(
    num_seeds: int, batch_size: int | None, num_batches: int | None, order: Order
) -> list[list[int]]:
    """Chooses a few minibatches to measure with, as positions in range(num_seeds).

    Nothing is drawn for them.

    They are runs of neighbouring positions if that is how seeds are visited, else positions spread
    over the whole range.
    """
    size = batch_size or -(-num_seeds // (num_batches or PROBES))
    size = min(size, num_seeds)
    number = min(PROBES, -(-num_seeds // max(1, size)))
    if order is Order.SEQUENTIAL:
        starts = [(num_seeds - size) * i // max(1, number - 1) for i in range(number)]
        return [list(range(start, start + size)) for start in starts]
    total = number * size
    spread = [position * num_seeds // total for position in range(total)]
    return [spread[i::number] for i in range(number)]


def probe_of(
    sampled: Sequence[SampledMinibatch], num_nodes: Sequence[int], cost: AttributeCost
) -> LoaderProbe:
    """Returns what sampled minibatches, at least one, say of those to come.

    Args:
        sampled: minibatches, with ids below ``num_nodes``.
        num_nodes: the number of nodes of each type.
        cost: what their attributes take.
    """
    biggest = biggest_of(sampled)
    unique = count_distinct([biggest], num_nodes)
    pairs = [count_distinct([biggest, one], num_nodes) for one in sampled if one is not biggest]
    return LoaderProbe(
        sampled=biggest.nbytes + cost.minibatch,
        attributes=cost.batch,
        scratch=_scratch_bytes(biggest.num_nodes, biggest.num_edges),
        shared=sum(num_nodes) // 4,  # a bit and a share of a count per node, to find distinct ones
        row=cost.row,
        unique=unique,
        # Without a second minibatch to compare with there is no second one to fetch together with
        # it.
        growth=max(pairs, default=unique) - unique,
    )


def biggest_of(sampled: Sequence[SampledMinibatch]) -> SampledMinibatch:
    """Returns the minibatch that takes most bytes."""
    return max(sampled, key=lambda minibatch: minibatch.nbytes)


def candidate_positions(
    num_seeds: int, batch_size: int | None, num_batches: int | None, order: Order
) -> list[Tensor]:
    """Returns `probe_batches` as vectors."""
    return [torch.tensor(batch) for batch in probe_batches(num_seeds, batch_size, num_batches, order)]


def _scratch_bytes(nodes: int, edges: int) -> int:
    """Returns the bytes of scratch memory of one thread.

    It has the id map (a power of two, at most two thirds full, at most 16 bytes per entry), the
    places where adjacencies begin, and the earlier hops' arrays before they move.
    """
    return 16 * 3 * nodes + 16 * nodes + 8 * edges
