"""Operators of historical embeddings: lines of a cache, layers with halo nodes, nodes to push.

What peers and saved states give is checked; arrays of the sampler and of the halo are not checked
again.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.autograd.graph import increment_version

from pyg_batchgnn.ops.checks import check_vector, remember
from pyg_batchgnn.ops.graph import InEdges
from pyg_batchgnn.ops.library import kernels, thread_count

#: The line of a node that has none.
NO_LINE = -1
_SMALLEST = 8


class LineTable:
    """Which line of a cache holds which node. When all are in use, the oldest node leaves."""

    def __init__(self, lines: int) -> None:
        if not 0 <= lines < 1 << 30:
            raise ValueError(f"a cache has from 0 to 2**30 - 1 lines, not {lines}")
        slots = max(_SMALLEST, 1 << (2 * lines - 1).bit_length()) if lines else _SMALLEST
        self.capacity = lines
        self._arrays = (
            torch.zeros(slots, dtype=torch.int32),
            torch.empty(2, lines, dtype=torch.int64),
            torch.empty(2, lines, dtype=torch.int32),
            torch.tensor([NO_LINE, NO_LINE, 0]),
        )

    def __len__(self) -> int:
        return int(self._arrays[3][2])

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self._arrays)

    def search(self, node: Tensor, since: int) -> Tensor:
        """Returns [n] int32, the line of each node [n] int64; `NO_LINE` if it has none, or was
        stored before step ``since``."""
        return kernels.history_search(*self._arrays, node, since, thread_count())

    def store(self, node: Tensor, step: Tensor) -> Tensor:
        """Gives lines to nodes [n] int64, in order; returns them, [n] int32, with `NO_LINE` for a
        node that the same call stores again later or removes. ``step``: [n] int64, the step of
        each, ascending, not before those of earlier calls."""
        check_vector("node", node, (torch.int64,))
        check_vector("step", step, (torch.int64,))
        if node.numel() != step.numel():
            raise ValueError(f"{node.numel()} nodes came with {step.numel()} steps")
        increment_version(self._arrays)
        return kernels.history_store_(*self._arrays, node, step)

    def in_use(self) -> Tensor:
        """Returns the lines in use, [u] int32, the oldest first."""
        return kernels.history_lines(*self._arrays)

    def node_of(self, line: Tensor) -> Tensor:
        """Returns the nodes of lines in use, [n] int64."""
        return self._arrays[1][0][line.long()]

    def step_of(self, line: Tensor) -> Tensor:
        """Returns the steps in which lines in use were stored, [n] int64."""
        return self._arrays[1][1][line.long()]


def put_lines(table: Tensor, line: Tensor, rows: Tensor) -> None:
    """Sets ``table[line[i]] = rows[i]``, contiguous [lines, F] and [n, F]; rows with `NO_LINE` are
    left out. ``line``: [n] int32; no line occurs twice."""
    if (table.dtype, table.size(1)) != (rows.dtype, rows.size(1)):
        raise ValueError(
            f"rows of {rows.dtype} [{rows.size(1)}] do not fit lines of {table.dtype} [{table.size(1)}]"
        )
    if line.numel() != rows.size(0):
        raise ValueError(f"{line.numel()} lines came with {rows.size(0)} rows")
    increment_version(table)
    row = (line != NO_LINE).nonzero().view(-1)
    kernels.move_rows(rows.detach(), row, table, line[row].long(), thread_count())


def halo_layer(edges: InEdges, targets: int, own_nodes: int, own_rows: int, cached: Tensor) -> InEdges:
    """Returns the edges of a layer, without those from halo nodes that have no cached row.

    Args:
        edges: of the minibatch; int32 sources below ``own_nodes`` are own nodes, and source
            ``own_nodes`` + h is halo node h.
        targets: the layer has the edges of the first ``targets`` targets.
        own_nodes: the own nodes of the minibatch.
        own_rows: the own nodes among the layer's inputs.
        cached: [H] int32, for each halo node among the layer's inputs the position of its row in
            the cached rows, or -1.

    Returns:
        The remaining edges. Sources are rows: own ones, then cached ones. ``edge_ids`` are the
            edges' positions before.
    """
    indptr, source, place = kernels.history_layer(
        *(edges.indptr, edges.indices, cached, targets, own_nodes, own_rows), thread_count()
    )
    if not indptr.numel():
        raise IndexError(
            f"a source of the {targets} targets is neither among {own_rows} own rows nor among "
            f"{cached.numel()} halo nodes"
        )
    remember(indptr, source.numel() + 1, ascends=True)
    remember(source, own_rows + cached.numel())
    remember(place, max(1, edges.num_edges))
    return InEdges(indptr, source, place)


@dataclass(frozen=True, eq=False)
class HaloPeers:
    """For each node of a part, the peers that have it in their halo."""

    ptr: Tensor  # [n + 1] int64, where the peers of each node begin
    peer: Tensor  # [k] int32, the peers of each node, ascending
    degree: Tensor  # [k] int32, the number of edges from the node into the peer's part
    peers: int


@dataclass(frozen=True, eq=False)
class PushedNodes:
    """The nodes whose rows a rank pushes to each peer."""

    place: Tensor  # [sum(counts)] int64, their places among the nodes, ascending for each peer
    counts: list[int]  # the number of nodes, by peer
    candidates: list[int]  # the number of nodes before the choice, by peer


def choose_pushed(halo: HaloPeers, row: Tensor, name: Tensor, most: int | None, key: int) -> PushedNodes:
    """Chooses nodes of a part that are in each peer's halo: at most ``most``, without replacement,
    in proportion to degree. The draw of a node depends on the key, the peer and the node's name
    alone.

    Args:
        halo: the peers of the nodes of the part.
        row: [n] int64 rows of the part; -1 leaves a node out.
        name: [n] int64 original ids.
        most: nodes for each peer; None for all.
    """
    place, counts, candidates = kernels.history_choose(
        *(halo.ptr, halo.peer, halo.degree, row, name, halo.peers),
        *(-1 if most is None else most, key, thread_count()),
    )
    remember(place, row.numel())
    return PushedNodes(place, list(counts), list(candidates))
