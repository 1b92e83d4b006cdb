"""Reading rows of nodes and edges.

Rows in memory that this rank can read are copied from there. Others take two rounds: requests go to
the owners of the rows, and the rows come back, all attributes of a node or an edge as one row of
bytes. All groups share both messages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.comm import Communicator, Header, MessageKind
from pyg_batchgnn.partition import Part
from pyg_batchgnn.store.shard import Columns, LocalShard, RowBlock, RowFormat, RowRequest
from pyg_batchgnn.types import Group


@dataclass(frozen=True, eq=False)
class Rows:
    """The rows that a request returns, in its order."""

    # By group; rows that the caller fills lie behind those that were requested.
    blocks: dict[Group, RowBlock]
    fetched: dict[Group, int]  # by group, how many rows came from other hosts


#: The requests of one rank to another: one request per group of a reader, in the reader's order.
_Requests = list[RowRequest]


class RowReader:
    """Reads rows of nodes and edges over ranks, of the same attributes on all ranks. A request has
    the ids of all groups in order, after the number of rows of each. ``shards``: by rank, the
    tables that this process can read: its own and other ranks' of its host."""

    def __init__(
        self,
        part: Part,
        comm: Communicator,
        shards: Mapping[int, LocalShard],
        columns: Mapping[Group, Columns],
    ) -> None:
        self.book, self.comm, self._shards = part.book, comm, shards
        self._types = {group: part.schema.type_of_rows(group) for group in columns}
        # The order in messages, the same on all ranks.
        every = (*part.schema.node_groups, *part.schema.edge_groups)
        self._groups = [group for group in every if group in columns]
        self._nothing = [_nothing(group) for group in self._groups]
        # A node has one id and an edge has two: that tells two groups of one kind each apart.
        self._says_sizes = len({group.kind for group in self._groups}) < len(self._groups)
        self._tables = {
            rank: [shard.block(group, columns[group]) for group in self._groups]
            for rank, shard in shards.items()
        }
        self._formats = [RowFormat(tables) for tables in self._tables[comm.rank]]
        edges = zip(part.schema.edge_groups, part.edge_counts, strict=True)
        most = max((count for group, count in edges if group in columns), default=0)
        self._wire = ops.id_dtype(max(int(self.book.sizes.max()), most))

    def format(self, group: Group) -> RowFormat:
        """Returns the layout of a group's rows in blocks and in messages."""
        return self._formats[self._groups.index(group)]

    def read(
        self, wanted: Mapping[Group, RowRequest], header: Header, room: Mapping[Group, int] | None = None
    ) -> Rows:
        """Reads rows by group, in ascending order of ``node``. Collective, two rounds. ``room``: by
        group, the number of rows that the caller will fill behind the requested ones."""
        by_group = [
            wanted.get(group, nothing).split(self.book, self._types[group])
            for group, nothing in zip(self._groups, self._nothing, strict=True)
        ]
        requests = [list(of_rank) for of_rank in zip(*by_group, strict=True)]
        away = [self._nothing if rank in self._shards else request for rank, request in enumerate(requests)]
        items = [sum(map(len, request)) for request in away]
        messages = [self._encode(request) for request in away]
        got = self.comm.exchange(messages, None, header, ops.empty, items)
        asked = [self._decode(message, items) for message, items in zip(got.split(), got.items, strict=True)]
        answers = self._exchange_rows(asked, away, header)
        blocks = []
        for at, group in enumerate(self._groups):
            size = sum(len(request[at]) for request in requests)
            blocks.append(self._formats[at].empty(size + (room or {}).get(group, 0)))
        self._fill(blocks, requests, answers)
        fetched = {group: sum(len(request[at]) for request in away) for at, group in enumerate(self._groups)}
        return Rows(dict(zip(self._groups, blocks, strict=True)), fetched)

    def _encode(self, requests: _Requests) -> Tensor:
        wanted = [request for request in requests if len(request)]
        columns = [column.to(self._wire) for request in wanted for column in request.columns]
        if not columns:
            return torch.empty(0, dtype=self._wire)
        if self._says_sizes:
            columns.insert(0, torch.tensor([len(request) for request in requests], dtype=self._wire))
        return torch.cat(columns) if len(columns) > 1 else columns[0]

    def _decode(self, message: Tensor, items: int) -> _Requests:
        sizes, at = [items], 0
        if self._says_sizes:
            at = min(len(self._groups), len(message))
            sizes = message[:at].tolist() or [0] * len(self._groups)
        elif len(self._groups) == 2:
            edges = len(message) - items
            sizes = [items - edges, edges]
        requests = []
        for group, size, nothing in zip(self._groups, sizes, self._nothing, strict=True):
            if not size:
                requests.append(nothing)
                continue
            columns = 1 if group.is_node else 2
            requests.append(RowRequest(*message[at : at + columns * size].split([size] * columns)))
            at += columns * size
        return requests

    def _exchange_rows(
        self, asked: Sequence[_Requests], away: Sequence[_Requests], header: Header
    ) -> list[Tensor]:
        """Exchanges requests and answers; returns the bytes that came from each rank."""
        shard, tables = self._shards[self.comm.rank], self._tables[self.comm.rank]
        sizes = [self._bytes(requests) for requests in asked]
        counts = list(map(sum, sizes))
        packed = ops.empty((sum(counts),), torch.uint8)
        for requests, out, each in zip(asked, packed.split(counts), sizes, strict=True):
            for at, (request, piece) in enumerate(zip(requests, out.split(each), strict=True)):
                if len(request):
                    self._formats[at].pack(tables[at], shard.find(self._groups[at], request), piece)
        items = [sum(map(len, requests)) for requests in asked]
        received = self.comm.exchange(packed, counts, header, ops.empty, items)
        return list(received.rows.split([sum(self._bytes(requests)) for requests in away]))

    def _bytes(self, requests: _Requests) -> list[int]:
        return [form.wire_bytes * len(request) for form, request in zip(self._formats, requests, strict=True)]

    def _fill(
        self, blocks: Sequence[RowBlock], requests: Sequence[_Requests], answers: Sequence[Tensor]
    ) -> None:
        """Copies rows from readable tables and from the other ranks' answers into blocks."""
        ends = [0] * len(self._groups)
        for rank, (asked, answer) in enumerate(zip(requests, answers, strict=True)):
            shard = self._shards.get(rank)
            pieces = answer.split(self._bytes(asked)) if shard is None else ()
            for at, (group, request) in enumerate(zip(self._groups, asked, strict=True)):
                if not len(request):
                    continue
                begin, ends[at] = ends[at], ends[at] + len(request)
                out = blocks[at].rows(begin, ends[at])
                if shard is None:
                    self._formats[at].unpack(pieces[at], out)
                else:
                    self._formats[at].gather(out, self._tables[rank][at], shard.find(group, request))


def _nothing(group: Group) -> RowRequest:
    none = torch.empty(0, dtype=torch.int64)
    return RowRequest(none) if group.is_node else RowRequest(none, none)


_WRITE = Header(MessageKind.FEATURES)


def write_rows(
    part: Part,
    comm: Communicator,
    own: LocalShard,
    group: Group,
    name: str,
    request: RowRequest,
    rows: Tensor,
) -> None:
    """Sends rows [k, ...] of an attribute to their owners, who write them. Collective. ``request``:
    names the k rows in any order, nodes by internal id."""
    owner = part.book.owner(request.node)
    order = torch.argsort(owner, stable=True)
    counts = torch.bincount(owner, minlength=comm.size).tolist()
    ids = torch.stack(request.take(order).columns, dim=1)
    node, *edge = comm.exchange(ids, counts, _WRITE).rows.unbind(1)
    values = comm.exchange(rows[order].contiguous(), counts, _WRITE).rows
    row = own.find(group, RowRequest(node - part.nodes_of(part.schema.type_of_rows(group)).start, *edge))
    # The last of each: the first of each, from the end.
    last = len(row) - 1 - torch.from_numpy(np.unique(row.flip(0).numpy(), return_index=True)[1])
    own.attributes[group][name][row[last]] = values[last]
    comm.barrier(_WRITE)  # ranks of this host may read the table from here on
