"""The order of a relation's edges by time, and the sums of their weights."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.ops import InEdges


@dataclass(frozen=True, eq=False)
class TimeOrder:
    """The in-edges of each target in ascending order of (time, input edge id)."""

    # [E] int32 or int64, the place in ``indices`` of each edge in this order; empty where every
    # list lies in this order there.
    position: Tensor
    time: Tensor  # [E] int64, the times in this order

    @classmethod
    def of(cls, edges: InEdges, time: Tensor) -> TimeOrder:
        """Orders the edges of a relation by ``time`` [E] int64, in the order of ``edges.indices``.
        If nodes have times, it is the time of the source."""
        ops.check_vector("times", time, (torch.int64,))
        if time.numel() != edges.num_edges:
            raise ValueError(f"{time.numel()} times came for {edges.num_edges} edges; give one for each")
        if first_fall(edges, time) is None:
            return cls(torch.empty(0, dtype=torch.int64), time.clone())
        # Two stable sorts: by time, then by target. Ties stay in ascending input edge id.
        by_time = torch.argsort(time, stable=True)
        position = by_time[torch.argsort(edges.targets()[by_time], stable=True)]
        return cls(position.to(ops.id_dtype(edges.num_edges)), time[position])

    def by_place(self, values: Tensor) -> Tensor:
        """Returns values of edges [E], given in the order of ``indices``, in this order."""
        return values if self.position.numel() == 0 else values[self.position]

    @property
    def arrays(self) -> tuple[Tensor, Tensor]:
        """The times and the positions, as the kernel takes them."""
        return self.time, self.position


def first_fall(edges: InEdges, time: Tensor) -> int | None:
    """Returns the first position of an edge that is older than the one before it at the same
    target; None if times ascend. ``time``: [E] int64, by position in ``edges``."""
    falls = time[1:] < time[:-1]
    starts = edges.indptr[1:-1]
    falls[starts[(starts > 0) & (starts < time.numel())] - 1] = False  # between two lists
    found = falls.nonzero()
    return int(found[0]) + 1 if found.numel() else None


@dataclass(frozen=True, eq=False)
class WeightSums:
    """The prefix sums of the weights of every target's in-edges, in CSC order, or in time order if
    there is one. They begin anew at every target: their bits do not depend on the partition."""

    sums: Tensor  # [E] float64, the sum of the weights of a list up to and including each place
    weight: Tensor  # [E] float64, the weight at each place
    # [E + 1] int64, the number of positive weights before each place; empty if all are positive.
    positive: Tensor

    @classmethod
    def of(cls, edges: InEdges, weight: Tensor) -> WeightSums:
        """Sums weights [E], finite and not negative. Raises ValueError if a target's sum
        overflows."""
        weight = weight.to(torch.float64, copy=True)
        sums = ops.sum_lists(edges.indptr, weight)
        if not bool(torch.isfinite(sums).all()):
            raise ValueError("the weights of a node are too large to be added up; divide all by a constant")
        positive = torch.empty(0, dtype=torch.int64)
        if not bool((weight > 0).all()):
            positive = torch.cat([torch.zeros(1, dtype=torch.int64), (weight > 0).cumsum(0)])
        return cls(sums, weight, positive)

    @property
    def arrays(self) -> tuple[Tensor, Tensor, Tensor]:
        """The sums, the weights and the numbers of positive ones, as the kernel takes them."""
        return self.sums, self.weight, self.positive

    @property
    def nbytes(self) -> int:
        """The bytes of the arrays."""
        return sum(array.nbytes for array in self.arrays)


# A loader is made of the user's data alone, and does not know of others. What it makes is held here
# for as long as some loader uses it. The next loader compares its own values with what is held, and
# takes that if they are equal. So a change of the data between two loaders is seen.

Made = TypeVar("Made", TimeOrder, WeightSums)
#: By the edges that they belong to, then by the name of the attribute. Nothing is kept alive.
_orders: weakref.WeakKeyDictionary[InEdges, weakref.WeakValueDictionary[str, TimeOrder]] = (
    weakref.WeakKeyDictionary()
)
_sums: weakref.WeakKeyDictionary[InEdges, weakref.WeakValueDictionary[tuple[str, int | None], WeightSums]] = (
    weakref.WeakKeyDictionary()
)


def _advised(made: Made) -> Made:
    """Asks for huge pages for the arrays, as sampling reads them at random."""
    for array in made.arrays:
        ops.advise_huge_pages(array)
    return made


def shared_order(name: str, edges: InEdges, time: Tensor) -> TimeOrder:
    """Returns the time order of edges by an attribute, the same object for the same tensors."""
    held = _orders.setdefault(edges, weakref.WeakValueDictionary())
    order = held.get(name)
    if order is None or not torch.equal(order.by_place(time), order.time):
        order = held[name] = _advised(TimeOrder.of(edges, time))
    return order


def shared_sums(name: str, edges: InEdges, order: TimeOrder | None, weight: Tensor) -> WeightSums:
    """Returns the sums of edge weights, the same object for the same tensors."""
    held = _sums.setdefault(edges, weakref.WeakValueDictionary())
    key = name, None if order is None else id(order)
    by_place = (weight if order is None else order.by_place(weight)).to(torch.float64)
    sums = held.get(key)
    if sums is None or not torch.equal(by_place, sums.weight):
        sums = held[key] = _advised(WeightSums.of(edges, by_place))
    return sums
