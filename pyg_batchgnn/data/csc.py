"""Edges by destination in files: mapped, read into memory, and checked in bounded memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.data.errors import DatasetError
from pyg_batchgnn.data.files.npy import as_tensor, header_of, read_elements
from pyg_batchgnn.ops import InEdges

#: The arrays of a relation; only the last one may be missing.
INDPTR, INDICES, EDGE_IDS = "indptr", "indices", "edge_ids"
_PIECE = 1 << 22  # the elements of a file that are in memory at a time


@dataclass(frozen=True, eq=False, repr=False)
class MappedEdges(InEdges):
    """In-edges that are mapped from files."""

    #: of ``indptr``, ``indices`` and, if there are explicit ids, ``edge_ids``
    files: tuple[Path, ...] = ()

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in _arrays(self))

    def read(self) -> InEdges:
        """Returns a copy in memory, read file after file, from begin to end."""
        read = [_read(file, array) for file, array in zip(self.files, _arrays(self), strict=True)]
        return InEdges(*read)


def _arrays(edges: InEdges) -> list[Tensor]:
    return [one for one in (edges.indptr, edges.indices, edges.edge_ids) if one is not None]


def _read(file: Path, like: Tensor) -> Tensor:
    found = torch.empty_like(like)
    ops.advise_huge_pages(found)
    at = 0
    for piece in file_pieces(file):
        found[at : at + len(piece)] = piece
        at += len(piece)
    return found


def file_pieces(file: Path) -> Iterator[Tensor]:
    """Yields the elements of a .npy file in order, flat, some at a time, read and not mapped."""
    header = header_of(file, file.stem)
    count = math.prod(header.shape)
    for first in range(0, count, _PIECE):
        piece = read_elements(file, file.stem, header, first, min(_PIECE, count - first))
        yield as_tensor(piece, file, file.stem)


#: Makes an error from an array's name, the fact and the remedy.
Complain = Callable[[str, str, str], DatasetError]


def check_outline_of_csc(edges: InEdges, num_targets: int, complain: Complain) -> None:
    """Raises an error of ``complain`` unless dtypes and sizes fit together."""
    for name, array in zip((INDPTR, INDICES, EDGE_IDS), _arrays(edges), strict=False):
        wide = (torch.int64,) if name == INDPTR else (torch.int32, torch.int64)
        if array.dtype not in wide or array.dim() != 1:
            seen = f"is {str(array.dtype).removeprefix('torch.')} {list(array.shape)}"
            names = " or ".join(str(one).removeprefix("torch.") for one in wide)
            raise complain(name, seen, f"store {names} of one dimension")
    if len(edges.indptr) != num_targets + 1:
        fact = f"has {len(edges.indptr)} entries for {num_targets} nodes"
        raise complain(INDPTR, fact, "store one more than there are nodes")
    first, last = int(edges.indptr[0]), int(edges.indptr[-1])
    if (first, last) != (0, edges.num_edges):
        fact = f"goes from {first} to {last}, but there are {edges.num_edges} indices"
        raise complain(INDPTR, fact, "store where the in-edges of each node begin, from 0 on")
    if edges.edge_ids is not None and len(edges.edge_ids) != edges.num_edges:
        fact = f"has {len(edges.edge_ids)} entries for {edges.num_edges} edges"
        raise complain(EDGE_IDS, fact, "store the id of each edge")


def check_entries_of_csc(edges: InEdges, num_sources: int, complain: Complain) -> None:
    """Raises an error of ``complain`` unless all entries are in range and in canonical order. Files
    are read, not mapped. A sampler does not check the edges again."""
    before = 0
    for at, piece in _pieces(edges, INDPTR):
        values = torch.cat([torch.tensor([before]), piece])
        if not ops.is_ascending(values):
            place = int((values.diff() < 0).nonzero()[0])
            fact = f"descends to {int(piece[place])} at position {at + place}"
            raise complain(INDPTR, fact, "store where the in-edges of each node begin, ascending")
        before = int(piece[-1])
    for at, piece in _pieces(edges, INDICES):
        _check_span(INDICES, at, piece, num_sources, "node id", complain)
    _check_edge_ids(edges, complain)
    edges.note_checked(num_sources)


def _check_edge_ids(edges: InEdges, complain: Complain) -> None:
    if edges.edge_ids is None:
        return
    before = -1
    for at, piece in _pieces(edges, EDGE_IDS):
        _check_span(EDGE_IDS, at, piece, edges.num_edges, "edge id", complain)
        values = torch.cat([torch.tensor([before]), piece.long()])
        falls = (values.diff() <= 0).nonzero().view(-1) + at
        inside = falls[edges.indptr[torch.searchsorted(edges.indptr, falls)] != falls]
        if len(inside):
            fact = f"does not ascend at position {int(inside[0])}, among the in-edges of one node"
            raise complain(EDGE_IDS, fact, "sort the in-edges of each node by id")
        before = int(piece[-1])


def _check_span(name: str, at: int, piece: Tensor, size: int, what: str, complain: Complain) -> None:
    low, high = ops.extent(piece)
    if low < 0 or high >= size:
        value = low if low < 0 else high
        place = at + int((piece == value).nonzero()[0])
        fact = f"{what} {value} at position {place} is outside [0, {size})"
        raise complain(name, fact, "correct the value or the count it is measured against")


def _pieces(edges: InEdges, name: str) -> Iterator[tuple[int, Tensor]]:
    """Yields (position, entries) of an array, some entries at a time, from the file if mapped."""
    number = (INDPTR, INDICES, EDGE_IDS).index(name)
    if isinstance(edges, MappedEdges):
        pieces = file_pieces(edges.files[number])
    else:
        pieces = iter(_arrays(edges)[number].split(_PIECE))
    at = 0
    for piece in pieces:
        if len(piece):
            yield at, piece
        at += len(piece)
