"""Assigns owners in a stream, like CuSP: ranks stream their nodes side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.comm import Communicator, MessageKind
from pyg_batchgnn.data import Dataset
from pyg_batchgnn.ops import InEdges, fold_key, names_key, to_signed
from pyg_batchgnn.partition.limits import read_limits, read_split, warn_of_unmet
from pyg_batchgnn.partition.move import add_rows, pull, rows_per_round
from pyg_batchgnn.partition.policy import Neighbours, Policy, Score, Streaming, StreamState
from pyg_batchgnn.partition.reading import ReadingSlice, along_edges

MENDS = 3  # the most passes that move nodes out of parts that exceed a limit


class OwnerStream:
    """Assigns the nodes that this rank has read, type after type. Neighbours of all types count.
    ``owner``: [n] int32, the part of each node."""

    def __init__(
        self, comm: Communicator, part: ReadingSlice, dataset: Dataset, parts: int, seed: int
    ) -> None:
        self.comm, self.part, self.dataset = comm, part, dataset
        self.parts, self.seed = parts, seed
        self.owner = torch.full((part.num_nodes,), ops.UNASSIGNED, dtype=torch.int32)

    def by_score(self, policy: Streaming) -> Tensor:
        """Returns [n] int32, the part of each node, by LDG or Fennel. Collective. Last passes move
        nodes out of parts that exceed a limit, to parts that have room."""
        limits = read_limits(self.comm, self.part, self.dataset, policy, self.parts)
        shape = len(limits.names), self.parts
        for _ in range(policy.passes):
            load = torch.zeros(*shape, dtype=torch.float64)
            for one in self._types(limits.weight):
                one.run(one.by_score(policy, limits.balance.limit), load)
        for _ in range(MENDS):
            if not bool((load > limits.balance.limit[:, None]).any()):
                break
            for one in self._types(limits.weight):
                one.run(one.by_score(policy, limits.balance.limit, mend=True), load, counted=True)
        warn_of_unmet(self.comm, limits, self.owner)
        return self.owner

    def by_function(self, policy: Policy) -> Tensor:
        """Returns [n] int32, the part of each node, by a user's policy. Collective."""
        part, types = self.part, range(self.part.schema.num_types)
        train = torch.cat([read_split(self.comm, part, self.dataset, "train", one) for one in types])
        degree = torch.cat([part.degrees(one) for one in types])
        weight = torch.stack([torch.ones_like(degree), degree, train.to(degree.dtype)], dim=1)
        for one in self._types(weight.to(torch.int32)):
            load = torch.zeros(3, self.parts, dtype=torch.float64)
            one.run(one.by_function(policy), load)
        return self.owner

    def _types(self, weight: Tensor) -> Iterator[TypeStream]:
        for number in range(self.part.schema.num_types):
            yield TypeStream(self, number, weight)


#: Loads are summed over ranks at least ROUNDS times in a pass, but not for fewer than NODES nodes
#: per rank.
ROUNDS, NODES = 64, 32

#: Assigns some rows, given the rows, the owners of neighbours that other ranks have read, and
#: loads.
_Assign = Callable[[range, Tensor, Tensor], None]


class TypeStream:
    """Assigns the nodes of one type. ``weight``: [n, k] int32, what each node that this rank has
    read adds to the k loads of its part."""

    def __init__(self, stream: OwnerStream, node_type: int, weight: Tensor) -> None:
        self.comm, self.part, self.parts, self.seed = stream.comm, stream.part, stream.parts, stream.seed
        self.owner, self.weight, self.node_type = stream.owner, weight, node_type
        self.in_edges = neighbours_of(self.part, node_type)
        self._first = self.part.book.nodes_of(self.part.rank).start
        into = zip(stream.dataset.edge_sets, self.part.schema.target_types, strict=True)
        edges = sum(one.num_edges for one, target in into if target == node_type)
        #: the nodes of the type in the whole graph, and their in-edges
        self._count = stream.dataset.node_sets[node_type].num_nodes, edges

    def run(self, assign: _Assign, load: Tensor, *, counted: bool = False) -> None:
        """Assigns all nodes of the type once. Collective. ``load``: [k, parts], updated.
        ``counted``: True if the nodes are in it already."""
        remote = self.part.remote(self.owner)
        for rows in self._rounds():
            source = self.in_edges.sources(rows)
            found = pull(self.comm, remote, source[self._is_outside(source)])
            before = self._load_of(rows) if counted else 0
            assign(rows, found, load)
            load += self.comm.all_reduce(self._load_of(rows) - before, MessageKind.PARTITION)

    def by_score(self, policy: Streaming, limit: Tensor, *, mend: bool = False) -> _Assign:
        """Returns the function that assigns rows by LDG or Fennel. ``limit``: [k] int64, the
        largest loads of a part. ``mend``: True only moves nodes out of parts that exceed it."""
        nodes, edges = self._count
        rules = ops.StreamRules(
            limit=limit.to(torch.float64),
            fennel=policy.score is Score.FENNEL,
            # The paper's alpha * gamma * load ** (gamma - 1) for gamma = 1.5 and a part that is
            # full; an undirected edge is there twice.
            alpha=1.5 * max(policy.balance.values()) ** 0.5 * edges / 2 / max(nodes, 1),
            step=self.comm.size,
            key=ops.to_signed(self.seed),  # decides between equally good parts
            mend=mend,
        )

        def assign(rows: range, found: Tensor, load: Tensor) -> None:
            csc = (self.in_edges.indptr, self.in_edges.indices, self._first, self.weight)
            ops.assign_nodes(*csc, self.owner, found, rows, load.clone(), rules)

        return assign

    def by_function(self, policy: Policy) -> _Assign:
        """Returns the function that assigns rows by a user's policy; loads as in `StreamState`."""
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
            ids, types = self.part.nodes.apart(source)
            neighbours = Neighbours(indptr - int(indptr[0]), ids, owner, types)
            state = StreamState(
                *(self.parts, self.seed, load.clone(), total.clone(), self.weight[at, 2] > 0),
                *(schema, schema.node_types[self.node_type]),
            )
            self.owner[at] = _checked(policy(node, neighbours, state), len(rows), self.parts)

        return assign

    def _rounds(self) -> Iterator[range]:
        """Yields the type's rows in ranges, as many on every rank, of nearly as many edges."""
        own = self.part.rows_of(self.node_type)
        nodes, edges = own.stop - own.start, self.in_edges.indices.numel()
        most = rows_per_round(16, self.comm.size)
        enough = min(ROUNDS, self._count[0] // (NODES * self.comm.size))
        rounds = self.comm.max(max(1, enough, -(-edges // most), -(-nodes // most)))
        weight = self.in_edges.indptr[own.start : own.stop + 1] + torch.arange(nodes + 1)
        marks = int(weight[-1]) * torch.arange(rounds + 1) // rounds
        at = (torch.searchsorted(weight, marks) + own.start).tolist()
        at[0], at[-1] = own.start, own.stop
        return (range(begin, end) for begin, end in pairwise(at))

    def _is_outside(self, source: Tensor) -> Tensor:
        return (source < self._first) | (source >= self._first + self.part.num_nodes)

    def _load_of(self, rows: range) -> Tensor:
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


_EDGES = 1 << 17  # edges that are copied at a time


def neighbours_of(part: ReadingSlice, node_type: int) -> InEdges:
    """Returns the in-neighbours of this rank's nodes of a type, over all relations, as joint ids,
    relation by relation. It has a row for every node that this rank has read; rows of other types
    are empty. With one type and relation it is that relation itself."""
    into = [part.relations[number] for number in part.schema.relations_into[node_type]]
    if part.schema.num_types == 1 and len(into) == 1:
        return into[0]
    own, ends = part.rows_of(node_type), torch.zeros(len(part.nodes_of(node_type)) + 1, dtype=torch.int64)
    for edges in into:
        ends += edges.indptr
    sources, place = torch.empty(int(ends[-1]), dtype=part.in_edges.indices.dtype), ends[:-1].clone()
    for number in part.schema.relations_into[node_type]:
        edges = part.relations[number]
        shift = place - edges.indptr[:-1]
        for begin in range(0, edges.num_edges, _EDGES):
            piece = range(begin, min(begin + _EDGES, edges.num_edges))
            at = along_edges(edges, shift, piece) + torch.arange(piece.start, piece.stop)
            sources[at] = edges.indices[piece.start : piece.stop]
        place += edges.degrees
    indptr = torch.full((part.num_nodes + 1,), int(ends[-1]))
    indptr[: own.start] = 0
    indptr[own.start : own.stop + 1] = ends
    return InEdges(indptr, sources)


_NODES = 1 << 20  # nodes that are hashed at a time


def random_owners(part: ReadingSlice, parts: int, seed: int) -> Tensor:
    owner = torch.empty(part.num_nodes, dtype=torch.int32)
    for number, name in enumerate(part.schema.node_types):
        own, kind = part.nodes_of(number), None if part.schema.num_types == 1 else name
        pieces = owner[part.rows_of(number)].split(_NODES), torch.arange(own.start, own.stop).split(_NODES)
        for piece, node in zip(*pieces, strict=True):
            piece.copy_(random_owner(node, parts, seed, kind))
    return owner


def contiguous_owners(comm: Communicator, part: ReadingSlice, parts: int) -> Tensor:
    """Returns [n] int32, owners by ranges of the original ids of each type. Collective."""
    types = range(part.schema.num_types)
    return torch.cat([_even_ranges(comm, part.degrees(number) + 1, parts) for number in types])


def _even_ranges(comm: Communicator, weight: Tensor, parts: int) -> Tensor:
    """Cuts one type's nodes into ranges with nearly equal sums of nodes and in-edges. Collective.
    With all nodes in a row, by id, a node goes to the part where the middle of its weight lies."""
    end = weight.cumsum(0)
    mine = end[-1:] if end.numel() else torch.zeros(1, dtype=torch.int64)
    sums = comm.all_gather(mine, MessageKind.PARTITION).rows
    middle_twice = 2 * (end + sums[: comm.rank].sum()) - weight
    # floor(parts * middle / total) without products beyond 64 bits
    total_twice = 2 * int(sums.sum())
    bounds = torch.tensor([part * total_twice // parts for part in range(1, parts)], dtype=torch.int64)
    return torch.bucketize(middle_twice, bounds, right=True).to(torch.int32)


def random_owner(node: Tensor, parts: int, seed: int, node_type: str | None = None) -> Tensor:
    """Returns [n] int32, the part of each node, floor(h * parts), where h in [0, 1) is the upper
    half of a hash of seed, node type and original id. ``node``: [n] original ids. ``parts``: below
    2^31. ``node_type``: None, not hashed, in a graph of one type."""
    key = fold_key(torch.zeros(1, dtype=torch.int64), torch.tensor(to_signed(seed)))
    if node_type is not None:
        key = fold_key(key, torch.tensor(to_signed(names_key([node_type]))))
    upper = (fold_key(key, node.to(torch.int64)) >> 32) & ((1 << 32) - 1)
    return ((upper * parts) >> 32).to(torch.int32)
