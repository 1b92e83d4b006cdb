"""A bounded number of edges, the heaviest, so that coarse graphs fit where finer ones did.

DistDGL reduces coarse graphs in this way too (Zheng et al. 2020).
"""

from __future__ import annotations

import torch
from torch import Tensor

from pyg_batchgnn.comm import Communicator
from pyg_batchgnn.ops import MergedLists, fold_key
from pyg_batchgnn.partition.release import release_memory

#: Edges are told apart by their weights, up to _HEAVY, and by _SHADES shades that a hash of the two
#: ends gives. The two ends of an edge find the same class for it.
_HEAVY, _SHADES = 256, 256
#: Classes are looked up for this many edges at a time.
_EDGES = 1 << 16
#: Free memory goes back to the system after this many pieces that were thinned.
_OFTEN = 8


class HeaviestEdges:
    """The lists of consecutive nodes, which come in pieces.

    Where there are more edges than a limit, the lightest are dropped. An edge is dropped from the
    lists of both ends.

    Attributes:
        limit: the number of entries that are kept at most. None keeps all, on every rank.
        least: the lowest class that is kept so far. All pieces lack the classes below it.
    """

    def __init__(self, first: int, limit: int | None) -> None:
        self.limit, self.least = limit, 0
        self._next = first
        self._firsts, self._pieces = list[int](), list[MergedLists]()
        self._counts = torch.zeros(_HEAVY * _SHADES, dtype=torch.int64)

    def add(self, lists: MergedLists) -> None:
        """Adds the lists of the next nodes."""
        if lists.uniform:
            lists = lists._replace(weight=torch.full_like(lists.ids, lists.uniform, dtype=torch.int32))
        first, self._next = self._next, self._next + lists.indptr.numel() - 1
        if self.limit is None:
            self._pieces.append(lists)
            return
        if self.least > 0:
            lists = _from_class(lists, first, self.least)
        for edges in _pieces_of(lists):
            self._counts += torch.bincount(_classes(lists, first, edges), minlength=self._counts.numel())
        self._firsts.append(first)
        self._pieces.append(lists)
        if sum(piece.ids.numel() for piece in self._pieces) > self.limit + self.limit // 8:
            self._drop(self._needed(self.limit))

    def finish(self, comm: Communicator) -> MergedLists:
        """Returns all lists, without the edges that any rank had to drop. Collective."""
        if self.limit is not None:
            self._drop(comm.max(max(self.least, self._needed(self.limit))))
        pieces, self._pieces = self._pieces, []
        degrees = [piece.indptr.diff() for piece in pieces]
        indptr = torch.cat([torch.zeros(1, dtype=torch.int64), *degrees]).cumsum(0)
        ids, weights = [piece.ids for piece in pieces], [piece.weight for piece in pieces]
        del pieces
        joined = torch.cat(ids)
        del ids
        release_memory()
        weight = torch.cat(weights)
        del weights
        release_memory()
        uniform = int(weight[0]) if len(weight) and bool((weight == weight[0]).all()) else 0
        return MergedLists(indptr, joined, weight, uniform)

    def _needed(self, limit: int) -> int:
        """Returns the lowest class from which on no more than the limit are left."""
        above = self._counts.flip(0).cumsum(0).flip(0)
        return int((above > limit).sum())

    def _drop(self, least: int) -> None:
        if least > self.least:
            self.least = least
            self._counts[:least] = 0
            for at, piece in enumerate(self._pieces):
                self._pieces[at] = _from_class(piece, self._firsts[at], least)
                if at % _OFTEN == 0:
                    release_memory()  # or the old pieces would stay beside the new ones


def _pieces_of(lists: MergedLists) -> list[range]:
    edges = lists.ids.numel()
    return [range(begin, min(begin + _EDGES, edges)) for begin in range(0, edges, _EDGES)]


def _classes(lists: MergedLists, first: int, edges: range) -> Tensor:
    """Returns the classes of some edges, [x] int64: the heavier the higher."""
    at = torch.arange(edges.start, edges.stop)
    node = torch.searchsorted(lists.indptr, at, right=True) - 1 + first
    other = lists.ids[edges.start : edges.stop].to(torch.int64)
    shade = fold_key(torch.minimum(node, other), torch.maximum(node, other)) & (_SHADES - 1)
    return (lists.weight[edges.start : edges.stop].to(torch.int64).clamp(max=_HEAVY) - 1) * _SHADES + shade


def _from_class(lists: MergedLists, first: int, least: int) -> MergedLists:
    """Returns the lists without the edges of lower classes."""
    if not lists.ids.numel():
        return lists
    kept = torch.cat([_classes(lists, first, edges) >= least for edges in _pieces_of(lists)])
    before = torch.cat([torch.zeros(1, dtype=torch.int64), kept.cumsum(0)])
    return MergedLists(before[lists.indptr], lists.ids[kept], lists.weight[kept], 0)
