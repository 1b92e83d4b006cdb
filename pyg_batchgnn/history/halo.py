"""The halo of a part, and the peers that have its nodes in theirs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.comm import CommError, Communicator, Header, MessageKind
from pyg_batchgnn.history.embedding_cache import FoundRows
from pyg_batchgnn.ops import HaloPeers, InEdges, RelayAnswers
from pyg_batchgnn.partition import Part, PartitionBook
from pyg_batchgnn.sample import Layout, MacrobatchSeeds, RelayPart, SampledMinibatch, SamplingPlan, Seeds
from pyg_batchgnn.store import Columns, DistFeatureStore, RowRequest
from pyg_batchgnn.types import HOMOGENEOUS, NODES

_HEADER = Header(MessageKind.LOOKUP)


@dataclass(frozen=True, eq=False)
class Halo:
    """The halo nodes of a part: sources of its in-edges that other ranks own. Local ids number the
    part's rows first, then the halo nodes."""

    in_edges: InEdges  # the in-edges of the part's nodes. Sources are local ids.
    original: Tensor  # [n + h] int64, the original ids of the part's nodes and of the halo nodes
    internal: Tensor  # [h] int64, the internal ids of the halo nodes, ascending
    edges: Tensor  # [h] int64, the number of edges from each halo node into the part
    num_own: int  # the number of the part's nodes, n
    # For each node of the part, the ranks that have it in their halo (db_halo in the paper).
    peers: HaloPeers

    @property
    def num_halo(self) -> int:
        """The number of halo nodes, h."""
        return self.internal.numel()

    def most_needed(self, number: int | None) -> Tensor:
        """Returns [<= number] int64, ascending, positions of the halo nodes with the most edges
        into the part; None: of all halo nodes."""
        if number is None or number >= self.num_halo:
            return torch.arange(self.num_halo)
        return self.edges.argsort(descending=True, stable=True)[:number].sort().values

    @classmethod
    def of(cls, part: Part, comm: Communicator) -> Halo:
        """Finds the halo of each rank's part. Collective, two rounds."""
        edges, own = part.in_edges, part.nodes_of(0)
        is_halo = (edges.indices < own.start) | (edges.indices >= own.stop)
        remote = edges.indices[is_halo].to(torch.int64)
        node, (place,) = ops.unique_nodes([remote], part.book.num_nodes)
        degree = torch.bincount(place, minlength=node.numel())
        counts = torch.searchsorted(node, part.book.part_offsets).diff().tolist()
        asked = comm.exchange(torch.stack([node, degree], dim=1), counts, _HEADER)
        rows = asked.rows[:, 0] - own.start
        if rows.numel() and not 0 <= int(rows.min()) <= int(rows.max()) < len(own):
            text = f"a rank asked for the halo of nodes that rank {comm.rank} does not own"
            raise comm.fail(CommError(f"{text}; every rank must have the same partition book", []))
        answered = comm.exchange(part.node[rows], asked.counts, _HEADER)
        local = edges.indices
        if remote.numel() or own.start:
            wide = torch.where(is_halo, 0, edges.indices - own.start).to(torch.int64)
            wide[is_halo] = place + len(own)
            local = wide.to(ops.id_dtype(len(own) + node.numel()))
        return cls(
            InEdges(edges.indptr, local, edges.explicit_edge_ids()),
            torch.cat([part.node, answered.rows]),
            node,
            degree,
            len(own),
            _peers(rows, asked.rows[:, 1], asked.counts, len(own)),
        )


def _peers(rows: Tensor, degree: Tensor, counts: list[int], nodes: int) -> HaloPeers:
    """Returns the peers that have each row in their halo, from the rows and degrees that each asked
    for."""
    peer = torch.arange(len(counts), dtype=torch.int32).repeat_interleave(torch.tensor(counts))
    order = rows.argsort(stable=True)
    ptr = torch.zeros(nodes + 1, dtype=torch.int64)
    torch.cumsum(torch.bincount(rows, minlength=nodes), 0, out=ptr[1:])
    return HaloPeers(ptr, peer[order], degree[order].to(torch.int32), len(counts))


#: The attribute that layer 1 reads.
FEATURES = "x"
#: The bytes of rows that are received at once.
_PIECE = 16 << 20


class HaloFeatures:
    """The features of halo nodes, fetched once from their owners. ``lines``: at most this many
    nodes have a row, those with the most edges into the part; None: all. ``fetched``: the rows that
    came from other hosts, ``fetched_bytes`` with ids."""

    def __init__(self, halo: Halo, lines: int | None) -> None:
        chosen = halo.most_needed(lines)
        self._node = halo.internal[chosen]
        self._line = torch.full((halo.num_halo,), ops.NO_LINE, dtype=torch.int32)
        self._line[chosen] = torch.arange(chosen.numel(), dtype=torch.int32)
        self._rows: Tensor | None = None
        self._store: DistFeatureStore | None = None
        self._version = -1
        self.fetched = self.fetched_bytes = 0

    @property
    def nbytes(self) -> int:
        """The bytes of rows and of their index."""
        rows = 0 if self._rows is None else self._rows.nbytes
        return self._node.nbytes + self._line.nbytes + rows

    def fetch(self, store: DistFeatureStore) -> None:
        """Fetches the rows in bounded pieces, unless the store has not changed since. Collective.
        Raises ValueError if they came from another store before."""
        if self._store is not None and store is not self._store:
            raise ValueError(
                "history: these caches have the features of halo nodes from another feature store; give "
                "all loaders that share caches the same feature store, or make other HistoricalCaches"
            )
        if store is self._store and store.version == self._version:
            return
        self._store, self._version = store, store.version
        own = store.own.attributes[NODES].get(FEATURES)
        if own is None:
            self._rows = None
            return
        reader = store.reader({NODES: Columns([FEATURES])})
        wire = reader.format(NODES).wire_bytes
        rows = torch.empty((self._node.numel(), *own.shape[1:]), dtype=ops.as_stored(own).dtype)
        self._rows = ops.rows_like(own, rows)
        size = max(1, _PIECE // max(1, wire))
        for number in range(int(store.comm.max(-(-self._node.numel() // size)))):
            at = slice(number * size, (number + 1) * size)
            read = reader.read({NODES: RowRequest(self._node[at])}, Header(MessageKind.FEATURES))
            rows[at] = ops.as_stored(read.blocks[NODES].attributes[FEATURES])
            self.fetched += read.fetched[NODES]
            self.fetched_bytes += read.fetched[NODES] * (wire + self._node.element_size())

    def search(self, number: Tensor) -> FoundRows:
        """Finds rows of halo nodes. ``number``: [n] int64, their positions among the part's halo
        nodes."""
        line = ops.gather_rows(self._line, number)
        return FoundRows(line)

    def load(self, found: FoundRows) -> Tensor:
        """Returns [f, F], a copy of the rows that a search found; int8 codes stay codes."""
        if self._rows is None:
            raise ValueError(f"the graph has no node attribute {FEATURES!r}, which layer 1 reads")
        return ops.rows_like(self._rows, ops.gather_rows(ops.as_stored(self._rows), found.line))

    def check(self, table: Tensor) -> None:
        """Raises ValueError unless ``table`` is the store's own features."""
        store = self._store
        own = None if store is None else store.own.attributes[NODES].get(FEATURES)
        is_own = own is not None and ops.as_stored(own).data_ptr() == ops.as_stored(table).data_ptr()
        if own is None or not is_own or own.shape[1:] != table.shape[1:]:
            raise ValueError(
                f"layer 1 reads the attribute {FEATURES!r} as the store has it, because that of halo nodes "
                f"was fetched from there, but it got other rows [{', '.join(map(str, table.shape))}]; "
                f"change the rows of the store with put_tensor, or add a layer"
            )


class HaloSampler:
    """Samples the minibatches of a rank within its part and halo, without asking other ranks.
    ``plan``, ``seed`` and ``threads`` are as in `MacrobatchSampler`. Neighbours of own nodes are
    drawn as by `PartitionedSampler`; halo nodes get no in-edges. Without halo nodes the minibatches
    are bitwise identical to those of the whole graph."""

    def __init__(
        self, part: Part, halo: Halo, plan: SamplingPlan, seed: int = 0, threads: int | None = None
    ) -> None:
        self.plan, self.seed, self.threads = plan, seed, threads
        self._own = part.nodes_of(0)
        book = PartitionBook([0, halo.num_own, halo.original.numel()])
        node, outside = halo.original.split([halo.num_own, halo.num_halo])
        nothing = torch.empty(0, dtype=book.id_dtype)
        no_edges = InEdges(torch.zeros(halo.num_halo + 1, dtype=torch.int64), nothing, nothing)
        self._sides = [
            RelayPart(
                Part(HOMOGENEOUS, book, number, node_of, (edges,), part.edge_counts, nothing),
                plan,
                Layout.CSC,
            )
            for number, (node_of, edges) in enumerate([(node, halo.in_edges), (outside, no_edges)])
        ]

    def sample_macrobatch(self, seeds: MacrobatchSeeds) -> list[SampledMinibatch]:
        """Samples one minibatch for each list of seeds, with local ids in ``node``."""
        if seeds.internal is None:
            raise ValueError("a partitioned graph is sampled by internal ids; give the seeds' internal ids")
        named = [_seeds(nodes, ops.minibatch_key(nodes)) for nodes in seeds.nodes]
        local = [
            _seeds(self._local(number, internal), one.key)
            for number, (internal, one) in enumerate(zip(seeds.internal, named, strict=True))
        ]
        own, _ = self._sides
        relay = own.begin(local, self.seed, seeds.epoch)
        with ops.thread_limit(self.threads):
            for hop in range(own.relays):
                asked = relay.ask()
                words, counts = self._answer(1, asked.words, [asked.words.numel(), 0], hop)
                answer, _ = self._answer(0, asked.own, [asked.own.numel()], hop)
                fault = relay.merge(answer, words, counts[::-1])
                assert fault is None, fault
        return own.finish(relay, named, self.seed, seeds.epoch)

    def _answer(self, side: int, words: Tensor, counts: Sequence[int], hop: int) -> tuple[Tensor, list[int]]:
        answers = self._sides[side].answer(words, counts, hop)
        assert isinstance(answers, RelayAnswers), answers
        return answers.words, answers.counts

    def _local(self, number: int, internal: Tensor) -> Tensor:
        low, high = ops.extent(internal)
        if internal.numel() and (low not in self._own or high not in self._own):
            raise ValueError(
                f"seeds of minibatch {number} hold {high if low in self._own else low}, but this rank owns "
                f"{self._own.start} to {self._own.stop - 1}; sampling within a part takes own seeds only"
            )
        return internal - self._own.start


def _seeds(nodes: Tensor, key: int) -> Seeds:
    return Seeds((nodes.contiguous(),), (0,), key)
