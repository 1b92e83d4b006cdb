"""The parts of a graph that its loaders share: edges, time orders and weights.

A loader is made of the user's data alone, and does not know of others. What it makes is held here
for as long as some loader uses it. The next loader compares its own values with what is held, and
takes that if they are equal. So a change of the data between two loaders is seen.
"""

from __future__ import annotations

import weakref
from typing import Any, TypeVar

import torch
from torch import Tensor

from pyg_batchgnn.ops import InEdges
from pyg_batchgnn.store.time_order import TimeOrder, WeightSums

_Part = TypeVar("_Part")
#: Parts by what tells them apart, for as long as they are used.
_Held = weakref.WeakValueDictionary[Any, _Part]

_edges: _Held[InEdges] = weakref.WeakValueDictionary()
#: By the edges that they belong to, then by the name of the attribute.
_orders: weakref.WeakKeyDictionary[InEdges, _Held[TimeOrder]] = weakref.WeakKeyDictionary()
_sums: weakref.WeakKeyDictionary[InEdges, _Held[WeightSums]] = weakref.WeakKeyDictionary()


def shared_copy(edges: InEdges) -> InEdges:
    """Returns held edges that are equal to these, else these, to which nobody else may write."""
    indices = edges.indices
    key = (edges.num_targets, edges.num_edges, indices.dtype, int(indices.sum()))
    held = _edges.get(key)
    if held is not None and _are_equal(held, edges):
        return held
    _edges[key] = edges
    return edges


def shared_in_place(edges: InEdges) -> InEdges:
    """Returns held edges that lie in the same memory, unchanged, else these of the user's."""
    return _edges.setdefault(tuple(None if one is None else _place(one) for one in _arrays(edges)), edges)


def shared_order(name: str, edges: InEdges, time: Tensor) -> TimeOrder:
    """Returns the time order of edges by an attribute."""
    held = _orders.setdefault(edges, weakref.WeakValueDictionary())
    order = held.get(name)
    if order is None or not torch.equal(order.by_place(time), order.time):
        order = held[name] = TimeOrder.of(edges, time).advise_huge_pages()
    return order


def shared_sums(name: str, edges: InEdges, order: TimeOrder | None, weight: Tensor) -> WeightSums:
    """Returns the sums of the weights of edges."""
    held = _sums.setdefault(edges, weakref.WeakValueDictionary())
    key = name, None if order is None else id(order)
    by_place = (weight if order is None else order.by_place(weight)).to(torch.float64)
    sums = held.get(key)
    if sums is None or not torch.equal(by_place, sums.weight):
        sums = held[key] = WeightSums.of(edges, by_place).advise_huge_pages()
    return sums


def _arrays(edges: InEdges) -> tuple[Tensor, Tensor, Tensor | None]:
    return edges.indptr, edges.indices, edges.edge_ids


def _place(array: Tensor) -> tuple[int, int, int, torch.dtype]:
    version = 0 if array.is_inference() else array._version
    return array.data_ptr(), version, array.numel(), array.dtype


def _are_equal(one: InEdges, other: InEdges) -> bool:
    for a, b in zip(_arrays(one), _arrays(other), strict=True):
        if (a is None) != (b is None) or (a is not None and b is not None and not torch.equal(a, b)):
            return False
    return True
