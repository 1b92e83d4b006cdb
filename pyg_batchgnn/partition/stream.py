"""Assigns owners in a stream, as CuSP does: ranks stream their slices side by side, in synchronised
rounds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.comm import Communicator, MessageKind
from pyg_batchgnn.partition.bounded import own_rounds, rows_per_round
from pyg_batchgnn.partition.checks import own_share
from pyg_batchgnn.partition.move import Remote, pull, send
from pyg_batchgnn.partition.policy import Neighbours, Policy, Score, Streaming, StreamState
from pyg_batchgnn.partition.reading import ReadingSlice

#: Loads are summed over ranks at least ROUNDS times in a pass, but not for fewer than NODES nodes
#: per rank.
ROUNDS, NODES = 64, 32

#: A function that assigns the rows of a slice. It is given the rows, the owners of the neighbours
#: outside the slice, and the loads.
_Assign = Callable[[range, Tensor, Tensor], None]


def read_train(comm: Communicator, part: ReadingSlice, train_idx: Tensor) -> Tensor:
    """Returns which nodes of the slice are training nodes, [n] bool. Collective."""
    train = torch.zeros(part.num_nodes, dtype=torch.bool)
    mine = own_share(comm, train_idx)
    for rows in own_rounds(comm, mine.numel(), 8):
        piece = mine[rows.start : rows.stop]
        found = send(comm, piece, part.group(piece)).rows
        train[found - part.first] = True
    return train


class OwnerStream:
    """One rank's view of the stream.

    Attributes:
        owner: [n] int32, the part of every node of the slice.
    """

    def __init__(
        self, comm: Communicator, part: ReadingSlice, train_idx: Tensor, parts: int, seed: int
    ) -> None:
        self._comm, self._part, self._parts, self._seed = comm, part, parts, seed
        self._train = read_train(comm, part, train_idx)
        self._degree = part.in_edges.degrees
        self.owner = torch.full((part.num_nodes,), ops.UNASSIGNED, dtype=torch.int32)
        own = [part.num_nodes, part.in_edges.indices.numel(), int(self._train.sum())]
        self._total = comm.all_reduce(torch.tensor(own, dtype=torch.float64), MessageKind.PARTITION)

    def run(self, assign: _Assign) -> None:
        """Assigns all nodes once. Collective."""
        load = torch.zeros(3, self._parts, dtype=torch.float64)
        remote = Remote(self._part.group, self._owners, (), torch.int32)
        for rows in self._rounds():
            found = pull(self._comm, remote, self._outside(rows))
            assign(rows, found, load)
            load += self._comm.all_reduce(self._load_of(rows), MessageKind.PARTITION)

    def by_score(self, policy: Streaming) -> _Assign:
        """Returns the assignment of the built-in policies."""
        nodes, edges, _ = self._total.tolist()
        rules = ops.StreamRules(
            limit=policy.slack * self._total / self._parts,
            fennel=policy.score is Score.FENNEL,
            # The paper's alpha * gamma * load ** (gamma - 1) for gamma = 1.5 and a part that is
            # full; an undirected edge is there twice.
            alpha=1.5 * policy.slack**0.5 * edges / 2 / max(nodes, 1),
            step=self._comm.size,
            key=ops.to_signed(self._seed),
        )
        part = self._part

        def assign(rows: range, found: Tensor, load: Tensor) -> None:
            csc = (part.in_edges.indptr, part.in_edges.indices, part.first, self._train)
            ops.assign_nodes(*csc, self.owner, found, rows, load.clone(), rules)

        return assign

    def by_function(self, policy: Policy) -> _Assign:
        """Returns the assignment of a user's own policy."""

        def assign(rows: range, found: Tensor, load: Tensor) -> None:
            at, part = slice(rows.start, rows.stop), self._part
            first, last = int(part.in_edges.indptr[rows.start]), int(part.in_edges.indptr[rows.stop])
            source = part.in_edges.indices[first:last]
            owner = torch.empty(source.numel(), dtype=torch.int32)
            outside = self._is_outside(source)
            owner[outside] = found
            owner[~outside] = self.owner[(source[~outside] - part.first).to(torch.int64)]
            node = torch.arange(part.first + rows.start, part.first + rows.stop)
            neighbours = Neighbours(part.in_edges.indptr[rows.start : rows.stop + 1] - first, source, owner)
            state = StreamState(self._parts, self._seed, load.clone(), self._total.clone(), self._train[at])
            self.owner[at] = _checked(policy(node, neighbours, state), len(rows), self._parts)

        return assign

    def _rounds(self) -> Iterator[range]:
        """Returns rows of the slice in pieces of nearly as many edges, as many pieces on every
        rank."""
        edges = self._part.in_edges.indices.numel()
        most = rows_per_round(16, self._comm.size)
        enough = min(ROUNDS, int(self._total[0]) // (NODES * self._comm.size))
        rounds = self._comm.max(max(1, enough, -(-edges // most), -(-self._part.num_nodes // most)))
        weight = self._part.in_edges.indptr + torch.arange(self._part.num_nodes + 1)
        marks = int(weight[-1]) * torch.arange(rounds + 1) // rounds
        at = torch.searchsorted(weight, marks).tolist()
        at[0], at[-1] = 0, self._part.num_nodes
        return (range(begin, end) for begin, end in pairwise(at))

    def _outside(self, rows: range) -> Tensor:
        """Returns the sources of the rows that other ranks have read."""
        source = self._part.in_edges.sources(rows)
        return source[self._is_outside(source)]

    def _is_outside(self, source: Tensor) -> Tensor:
        return (source < self._part.first) | (source >= self._part.first + self._part.num_nodes)

    def _owners(self, node: Tensor) -> Tensor:
        return self.owner.index_select(0, node.sub_(self._part.first))

    def _load_of(self, rows: range) -> Tensor:
        """Returns what the rows add to each part, [3, parts]."""
        at = slice(rows.start, rows.stop)
        owner = self.owner[at]
        weights = (None, self._degree[at].double(), self._train[at].double())
        counts = [torch.bincount(owner, weight, self._parts).double() for weight in weights]
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
