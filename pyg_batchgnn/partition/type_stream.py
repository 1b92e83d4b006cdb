"""Assigns the nodes of one type in a stream, in synchronised rounds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.comm import Communicator, MessageKind
from pyg_batchgnn.ops import InEdges
from pyg_batchgnn.partition.add_rows import add_rows
from pyg_batchgnn.partition.balanced import Score, Streaming
from pyg_batchgnn.partition.bounded import rows_per_round
from pyg_batchgnn.partition.move import pull
from pyg_batchgnn.partition.policy import Neighbours, Policy, StreamState
from pyg_batchgnn.partition.reading import ReadingSlice

#: Loads are summed over ranks at least ROUNDS times in a pass, but not for fewer than NODES nodes
#: per rank.
ROUNDS, NODES = 64, 32

#: A function that assigns the rows of a slice. It is given the rows, the owners of the neighbours
#: outside the slice, and the loads.
_Assign = Callable[[range, Tensor, Tensor], None]


class TypeCount(NamedTuple):
    """The nodes of a type in the whole graph, and their in-edges."""

    nodes: int
    edges: int


@dataclass(frozen=True)
class TypeStream:
    """The stream of the nodes of one type.

    Attributes:
        comm: the communicator of all ranks.
        part: the nodes that this rank has read.
        node_type: the number of the type.
        in_edges: their in-neighbours by joint ids, one row per node of the slice.
        owner: [n] int32, the part of every node of the slice, written to.
        weight: [n, k] int32, what every node of the slice adds to the k loads of its part.
        count: the nodes of the type in the whole graph, and their in-edges.
        parts: the number of parts.
        key: signed 64 bits, decides between equally good parts.
    """

    comm: Communicator
    part: ReadingSlice
    node_type: int
    in_edges: InEdges
    owner: Tensor
    weight: Tensor
    count: TypeCount
    parts: int
    key: int

    @property
    def _first(self) -> int:
        """The joint id of the slice's first node."""
        return self.part.book.nodes_of(self.part.rank).start

    def run(self, assign: _Assign, load: Tensor, *, counted: bool = False) -> None:
        """Gives all nodes of the type parts once. Collective.

        Args:
            assign: gives some of them parts.
            load: [k, parts] float64, the loads of the parts, written to.
            counted: True if the nodes are in ``load`` already.
        """
        remote = self.part.remote(self.owner)
        for rows in self._rounds():
            found = pull(self.comm, remote, self._outside(rows))
            before = self._load_of(rows) if counted else 0
            assign(rows, found, load)
            load += self.comm.all_reduce(self._load_of(rows) - before, MessageKind.PARTITION)

    def by_score(self, policy: Streaming, limit: Tensor, *, mend: bool = False) -> _Assign:
        """Returns the assignment of the built-in policies.

        Args:
            policy: the policy.
            limit: [k] int64, the largest loads of a part.
            mend: moves nodes out of parts that have more, and leaves the others where they are.
        """
        nodes, edges = self.count
        rules = ops.StreamRules(
            limit=limit.to(torch.float64),
            fennel=policy.score is Score.FENNEL,
            # The paper's alpha * gamma * load ** (gamma - 1) for gamma = 1.5 and a part that is
            # full; an undirected edge is there twice.
            alpha=1.5 * max(policy.balance.values()) ** 0.5 * edges / 2 / max(nodes, 1),
            step=self.comm.size,
            key=self.key,
            mend=mend,
        )

        def assign(rows: range, found: Tensor, load: Tensor) -> None:
            csc = (self.in_edges.indptr, self.in_edges.indices, self._first, self.weight)
            ops.assign_nodes(*csc, self.owner, found, rows, load.clone(), rules)

        return assign

    def by_function(self, policy: Policy, seed: int) -> _Assign:
        """Returns the assignment of a user's own policy, whose loads are nodes, in-edges and
        training nodes."""
        schema = self.part.schema
        total = self.comm.all_reduce(
            self.weight[self.part.rows_of(self.node_type)].sum(0, dtype=torch.float64), MessageKind.PARTITION
        )

        def assign(rows: range, found: Tensor, load: Tensor) -> None:
            at = slice(rows.start, rows.stop)
            source = self.in_edges.sources(rows)
            owner = torch.empty(source.numel(), dtype=torch.int32)
            outside = self._is_outside(source)
            owner[outside] = found
            owner[~outside] = self.owner[(source[~outside] - self._first).to(torch.int64)]
            begin = self.part.nodes_of(self.node_type).start - self.part.rows_of(self.node_type).start
            node = torch.arange(begin + rows.start, begin + rows.stop)
            indptr = self.in_edges.indptr[rows.start : rows.stop + 1]
            ids = self.part.nodes.apart(source)
            neighbours = Neighbours(indptr - int(indptr[0]), ids.id, owner, ids.group)
            state = StreamState(
                *(self.parts, seed, load.clone(), total.clone(), self.weight[at, 2] > 0),
                *(schema, schema.node_types[self.node_type]),
            )
            self.owner[at] = _checked(policy(node, neighbours, state), len(rows), self.parts)

        return assign

    def _rounds(self) -> Iterator[range]:
        """Returns the type's rows of the slice in pieces of nearly as many edges, as many pieces on
        every rank."""
        own = self.part.rows_of(self.node_type)
        nodes, edges = own.stop - own.start, self.in_edges.indices.numel()
        most = rows_per_round(16, self.comm.size)
        enough = min(ROUNDS, self.count.nodes // (NODES * self.comm.size))
        rounds = self.comm.max(max(1, enough, -(-edges // most), -(-nodes // most)))
        weight = self.in_edges.indptr[own.start : own.stop + 1] + torch.arange(nodes + 1)
        marks = int(weight[-1]) * torch.arange(rounds + 1) // rounds
        at = (torch.searchsorted(weight, marks) + own.start).tolist()
        at[0], at[-1] = own.start, own.stop
        return (range(begin, end) for begin, end in pairwise(at))

    def _outside(self, rows: range) -> Tensor:
        """Returns the sources of the rows that other ranks have read."""
        source = self.in_edges.sources(rows)
        return source[self._is_outside(source)]

    def _is_outside(self, source: Tensor) -> Tensor:
        return (source < self._first) | (source >= self._first + self.part.num_nodes)

    def _load_of(self, rows: range) -> Tensor:
        """Returns what the rows add to each part, [k, parts]."""
        at = slice(rows.start, rows.stop)
        load = torch.zeros(self.parts, self.weight.size(1), dtype=torch.float64)
        return add_rows(load, self.owner[at], self.weight[at].double()).t().contiguous()


def _checked(owner: Tensor, nodes: int, parts: int) -> Tensor:
    if not isinstance(owner, Tensor) or owner.shape != (nodes,) or owner.dtype.is_floating_point:
        seen = f"{owner.dtype} {list(owner.shape)}" if isinstance(owner, Tensor) else type(owner).__name__
        raise TypeError(f"the policy must return [{nodes}] integers, one part per node, not {seen}")
    if nodes and not 0 <= int(owner.min()) <= int(owner.max()) < parts:
        raise ValueError(
            f"the policy returned parts {int(owner.min())} to {int(owner.max())}; there are {parts}"
        )
    return owner.to(torch.int32)
