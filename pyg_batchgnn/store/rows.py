"""Rows of nodes and edges: read in place where memory can be read, else asked of their owners.

Two rounds: what is wanted goes to its owners, rows come back, all attributes of a node as one row of bytes.
Where edge attributes are wanted too they share both messages with the nodes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.comm import Communicator, Field, Header, RowLayout
from pyg_batchgnn.partition import PartitionBook
from pyg_batchgnn.store.holding import Holding

#: The column of original ids among a node's attributes; no user can have an attribute of that name.
NODE_ID = "\0node"


@dataclass(frozen=True)
class Wanted:
    """Whose rows a rank wants.

    Attributes:
        node: [n] int64 internal ids, ascending.
        edge: [w] int64 input ids of edges, in any order that keeps ``target`` ascending.
        target: [w] int64 internal ids of the edges' destinations, ascending.
    """

    node: Tensor
    edge: Tensor
    target: Tensor

    @classmethod
    def nodes(cls, node: Tensor) -> Wanted:
        empty = torch.empty(0, dtype=torch.int64)
        return cls(node, empty, empty)

    @classmethod
    def edges(cls, edge: Tensor, target: Tensor) -> Wanted:
        return cls(torch.empty(0, dtype=torch.int64), edge, target)


@dataclass(frozen=True)
class Rows:
    """What was wanted, in its order.

    Attributes:
        node: attributes by name, [n + room, ...] each; original ids are ``NODE_ID``.
        edge: attributes by name, [w, ...] each.
        fetched: how many nodes' rows came from other hosts.
    """

    node: dict[str, Tensor]
    edge: dict[str, Tensor]
    fetched: int


@dataclass(frozen=True)
class _Request:
    """What one rank wants of another, as rows of the owner's part."""

    node: Tensor
    target: Tensor
    edge: Tensor

    def __len__(self) -> int:
        """Rows that answer it."""
        return len(self.node) + len(self.edge)


class RowReader:
    """Reads attributes of nodes and edges.

    Args:
        book: who owns which node.
        num_edges: of the graph.
        comm: of all ranks.
        held: what can be read here without asking, by rank.
        node_names: node attributes that are read, `NODE_ID` among them where it is wanted.
        edge_names: edge attributes that are read.
        threads: at most so many threads copy.

    All ranks read the same attributes.
    """

    def __init__(
        self,
        book: PartitionBook,
        num_edges: int,
        comm: Communicator,
        held: Mapping[int, Holding],
        node_names: Sequence[str],
        edge_names: Sequence[str] = (),
        threads: int | None = None,
    ) -> None:
        self.book, self.comm, self.threads = book, comm, threads
        self._first: list[int] = book.offsets.tolist()
        self._held = {rank: _tables(holding, node_names, edge_names) for rank, holding in held.items()}
        self._holdings = held
        own_nodes, own_edges = self._held[comm.rank]
        self.node_layout = RowLayout.of(own_nodes) if own_nodes else None
        self.edge_layout = RowLayout.of(own_edges) if own_edges else None
        largest = max(after - first for first, after in zip(self._first, self._first[1:], strict=False))
        self.wire = ops.id_dtype(max(largest, num_edges if edge_names else 0))

    def read(self, wanted: Wanted, header: Header, room: int = 0) -> Rows:
        """The rows of what is wanted; collective, two rounds. Behind the nodes' rows there is ``room`` for so
        many more in every block, for the caller to fill."""
        requests = self._requests(wanted)
        away = [request if rank not in self._held else _NOTHING for rank, request in enumerate(requests)]
        messages = [self._encode(request) for request in away]
        got = self.comm.exchange(messages, None, header, ops.empty, [len(request) for request in away])
        asked = [self._decode(message, items) for message, items in zip(got.split(), got.items, strict=True)]
        answers = self._exchange_rows(asked, away, header)
        fetched = sum(len(request.node) for request in away)
        nodes = _blocks(self.node_layout, len(wanted.node) + room)
        edges = _blocks(self.edge_layout, len(wanted.edge))
        self._fill(nodes, edges, requests, answers)
        return Rows(nodes, edges, fetched)

    # What is asked #################################################################################

    def _requests(self, wanted: Wanted) -> list[_Request]:
        """What is wanted of every rank."""
        nodes, targets = self._by_owner(wanted.node), self._by_owner(wanted.target)
        edges = wanted.edge.split([len(part) for part in targets])
        return [
            _Request(node - first, target - first, edge)
            for node, target, edge, first in zip(nodes, targets, edges, self._first, strict=False)
        ]

    def _by_owner(self, ids: Tensor) -> list[Tensor]:
        """Ascending internal ids, cut where the owner changes."""
        ends = torch.searchsorted(ids, self.book.offsets[1:]).tolist()
        return [ids[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]

    def _encode(self, request: _Request) -> Tensor:
        if self.edge_layout is None:
            return request.node.to(self.wire)
        return torch.cat([request.node, request.target, request.edge]).to(self.wire)

    def _decode(self, message: Tensor, items: int) -> _Request:
        edges = len(message) - items  # of which each has two numbers
        node, target, edge = message.split([items - edges, edges, edges])
        return _Request(node, target, edge)

    # What is answered ##############################################################################

    def _exchange_rows(
        self, asked: Sequence[_Request], away: Sequence[_Request], header: Header
    ) -> list[Tensor]:
        """Serves the others; returns the bytes that came from every rank."""
        counts = [self._bytes(request) for request in asked]
        packed = ops.empty((sum(counts),), torch.uint8)
        for request, out in zip(asked, packed.split(counts), strict=True):
            self._pack(request, out)
        items = [len(request) for request in asked]
        received = self.comm.exchange(packed, counts, header, ops.empty, items)
        return list(received.rows.split([self._bytes(request) for request in away]))

    def _bytes(self, request: _Request) -> int:
        return self._node_bytes(request) + (
            self.edge_layout.row_bytes * len(request.edge) if self.edge_layout else 0
        )

    def _node_bytes(self, request: _Request) -> int:
        return self.node_layout.row_bytes * len(request.node) if self.node_layout else 0

    def _pack(self, request: _Request, out: Tensor) -> None:
        """Writes the own rows that another rank asked for behind each other."""
        nodes, edges = self._held[self.comm.rank]
        at = self._node_bytes(request)
        if self.node_layout is not None:
            self._put(self.node_layout, nodes, request.node, out[:at])
        if self.edge_layout is not None:
            row = self._holdings[self.comm.rank].edge_rows(request.target.long(), request.edge.long())
            self._put(self.edge_layout, edges, row, out[at:])

    def _put(self, layout: RowLayout, tables: Mapping[str, Tensor], index: Tensor, out: Tensor) -> None:
        for name, column in _columns(layout, out).items():
            ops.put_rows(column, _bytes_of(tables[name]), index, self.threads)
        end = sum(field.bytes for field in layout.fields.values())
        if end < layout.row_bytes:
            out.view(-1, layout.row_bytes)[:, end:] = 0

    # What comes of it ##############################################################################

    def _fill(
        self,
        nodes: Mapping[str, Tensor],
        edges: Mapping[str, Tensor],
        requests: Sequence[_Request],
        answers: Sequence[Tensor],
    ) -> None:
        """One block an attribute: own and shared rows gathered from their tables, others from their bytes."""
        node_at = edge_at = 0
        for rank, request in enumerate(requests):
            node_part = slice(node_at, node_at := node_at + len(request.node))
            edge_part = slice(edge_at, edge_at := edge_at + len(request.edge))
            if rank in self._held:
                tables, edge_tables = self._held[rank]
                self._gather(nodes, node_part, tables, request.node)
                if self.edge_layout is not None and len(request.edge):
                    row = self._holdings[rank].edge_rows(request.target, request.edge)
                    self._gather(edges, edge_part, edge_tables, row)
            else:
                at = self._node_bytes(request)
                self._unpack(self.node_layout, nodes, node_part, answers[rank][:at])
                self._unpack(self.edge_layout, edges, edge_part, answers[rank][at:])

    def _gather(
        self, blocks: Mapping[str, Tensor], part: slice, tables: Mapping[str, Tensor], index: Tensor
    ) -> None:
        for name, block in blocks.items():
            ops.put_rows(block[part], tables[name], index, self.threads)

    def _unpack(
        self, layout: RowLayout | None, blocks: Mapping[str, Tensor], part: slice, packed: Tensor
    ) -> None:
        if layout is None:
            return
        for name, column in _columns(layout, packed).items():
            ops.put_rows(_bytes_of(blocks[name][part]), column, None, self.threads)


_NONE = torch.empty(0, dtype=torch.int64)
_NOTHING = _Request(_NONE, _NONE, _NONE)


def _tables(
    holding: Holding, node_names: Sequence[str], edge_names: Sequence[str]
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    known = {NODE_ID: holding.node, **holding.tables}
    return {name: known[name] for name in node_names}, {
        name: holding.edge_tables[name] for name in edge_names
    }


def _blocks(layout: RowLayout | None, rows: int) -> dict[str, Tensor]:
    fields: Mapping[str, Field] = layout.fields if layout is not None else {}
    return {name: ops.empty((rows, *field.shape), field.dtype) for name, field in fields.items()}


def _columns(layout: RowLayout, packed: Tensor) -> dict[str, Tensor]:
    """The bytes of each attribute of packed rows, [n, bytes] strided, whatever their alignment.

    Args:
        layout: of the rows.
        packed: [n * row_bytes] uint8, contiguous.
    """
    rows = packed.view(-1, layout.row_bytes) if layout.row_bytes else packed.view(0, 0)
    return {
        name: rows[:, layout.offsets[name] : layout.offsets[name] + field.bytes]
        for name, field in layout.fields.items()
        if field.bytes
    }


def _bytes_of(table: Tensor) -> Tensor:
    """[n, bytes] uint8 of contiguous rows, not copied."""
    width = math.prod(table.shape[1:]) * table.element_size()
    if not len(table) or not width:
        return torch.empty(len(table), width, dtype=torch.uint8)
    return table.view(len(table), -1).view(torch.uint8)
