"""Assigns owners in a stream, as CuSP does: ranks stream their slices side by side, in synchronised
rounds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.comm import Communicator, MessageKind
from pyg_batchgnn.data import Dataset
from pyg_batchgnn.ops import InEdges
from pyg_batchgnn.partition.bounded import rows_per_round
from pyg_batchgnn.partition.move import Remote, group_by_range, pull
from pyg_batchgnn.partition.neighbours import neighbours_of, original_ids
from pyg_batchgnn.partition.policy import Neighbours, Policy, Score, Streaming, StreamState
from pyg_batchgnn.partition.reading import ReadingSlice
from pyg_batchgnn.partition.splits import read_split

#: Loads are summed over ranks at least ROUNDS times in a pass, but not for fewer than NODES nodes
#: per rank.
ROUNDS, NODES = 64, 32

#: A function that assigns the rows of a slice. It is given the rows, the owners of the neighbours
#: outside the slice, and the loads.
_Assign = Callable[[range, Tensor, Tensor], None]


class OwnerStream:
    """One rank's view of the stream, which assigns the nodes of one type after the other.

    The loads of each type are balanced apart, and neighbours of all types count.

    Attributes:
        owner: [n] int32, the part of every node of the slice.
    """

    def __init__(
        self, comm: Communicator, part: ReadingSlice, dataset: Dataset, parts: int, seed: int
    ) -> None:
        self._comm, self._part, self._parts, self._seed = comm, part, parts, seed
        types = range(part.schema.num_types)
        self._train = torch.cat([read_split(comm, part, dataset, "train", number) for number in types])
        self.owner = torch.full((part.num_nodes,), ops.UNASSIGNED, dtype=torch.int32)
        own = [
            [
                len(part.nodes_of(number)),
                int(part.degrees(number).sum()),
                int(self._train[part.rows_of(number)].sum()),
            ]
            for number in types
        ]
        self._totals = comm.all_reduce(torch.tensor(own, dtype=torch.float64), MessageKind.PARTITION)

    def by_score(self, policy: Streaming) -> None:
        """Assigns all nodes by a built-in policy. Collective."""
        for _ in range(policy.passes):
            for number in range(self._part.schema.num_types):
                one = self._of_type(number)
                one.run(one.by_score(policy))

    def by_function(self, policy: Policy) -> None:
        """Assigns all nodes by a user's own policy. Collective."""
        for number in range(self._part.schema.num_types):
            one = self._of_type(number)
            one.run(one.by_function(policy))

    def _of_type(self, number: int) -> TypeStream:
        return TypeStream(
            self._comm,
            self._part,
            number,
            neighbours_of(self._part, number),
            self.owner,
            self._train,
            self._totals[number],
            self._parts,
            self._seed,
        )


@dataclass(frozen=True)
class TypeStream:
    """The stream of the nodes of one type.

    Attributes:
        comm: the communicator of all ranks.
        part: the nodes that this rank has read.
        node_type: the number of the type.
        in_edges: their in-neighbours by `reading_ids`, one row per node of the slice.
        owner: [n] int32, the part of every node of the slice, written to.
        train: [n] bool, True for training nodes.
        total: [3] float64, the nodes of the type in the whole graph, their in-edges, and the
            training nodes among them.
        parts: the number of parts.
        seed: the seed of the run.
    """

    comm: Communicator
    part: ReadingSlice
    node_type: int
    in_edges: InEdges
    owner: Tensor
    train: Tensor
    total: Tensor
    parts: int
    seed: int

    @property
    def _first(self) -> int:
        """The reading id of the slice's first node."""
        return self.part.book.nodes_of(self.part.rank).start

    def run(self, assign: _Assign) -> None:
        """Assigns all nodes of the type once. Collective."""
        load = torch.zeros(3, self.parts, dtype=torch.float64)
        bounds = self.part.book.part_offsets
        remote = Remote(lambda node: group_by_range(node, bounds), self._owners, (), torch.int32)
        for rows in self._rounds():
            found = pull(self.comm, remote, self._outside(rows))
            assign(rows, found, load)
            load += self.comm.all_reduce(self._load_of(rows), MessageKind.PARTITION)

    def by_score(self, policy: Streaming) -> _Assign:
        """Returns the assignment of the built-in policies."""
        nodes, edges, _ = self.total.tolist()
        rules = ops.StreamRules(
            limit=policy.slack * self.total / self.parts,
            fennel=policy.score is Score.FENNEL,
            # The paper's alpha * gamma * load ** (gamma - 1) for gamma = 1.5 and a part that is
            # full; an undirected edge is there twice.
            alpha=1.5 * policy.slack**0.5 * edges / 2 / max(nodes, 1),
            step=self.comm.size,
            key=ops.to_signed(self.seed),
        )

        def assign(rows: range, found: Tensor, load: Tensor) -> None:
            csc = (self.in_edges.indptr, self.in_edges.indices, self._first, self.train)
            ops.assign_nodes(*csc, self.owner, found, rows, load.clone(), rules)

        return assign

    def by_function(self, policy: Policy) -> _Assign:
        """Returns the assignment of a user's own policy."""
        schema = self.part.schema

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
            ids = original_ids(self.part, source)
            neighbours = Neighbours(indptr - int(indptr[0]), ids.node, owner, ids.type)
            state = StreamState(
                *(self.parts, self.seed, load.clone(), self.total.clone(), self.train[at]),
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
        enough = min(ROUNDS, int(self.total[0]) // (NODES * self.comm.size))
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

    def _owners(self, node: Tensor) -> Tensor:
        return self.owner.index_select(0, node.sub_(self._first))

    def _load_of(self, rows: range) -> Tensor:
        """Returns what the rows add to each part, [3, parts]."""
        at = slice(rows.start, rows.stop)
        owner, degree = self.owner[at], self.in_edges.indptr[rows.start : rows.stop + 1].diff()
        weights = (None, degree.double(), self.train[at].double())
        counts = [torch.bincount(owner, weight, self.parts).double() for weight in weights]
        return torch.stack(counts)


def _checked(owner: Tensor, nodes: int, parts: int) -> Tensor:
    if not isinstance(owner, Tensor) or owner.shape != (nodes,) or owner.dtype.is_floating_point:
        seen = f"{owner.dtype} {list(owner.shape)}" if isinstance(owner, Tensor) else type(owner).__name__
        raise TypeError(f"the policy must return [{nodes}] integers, one part per node, not {seen}")
    if nodes and not 0 <= int(owner.min()) <= int(owner.max()) < parts:
        raise ValueError(
            f"the policy returned parts {int(owner.min())} to {int(owner.max())}; there are {parts}"
        )
    return owner.to(torch.int32)
