"""The input-feature aggregation cache (BatchGNN, section 3)."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData

from pyg_batchgnn import ops
from pyg_batchgnn.cache.build import (
    ONLY,
    SCALE,
    Aggregation,
    GraphFingerprint,
    aggregate_piece,
    check_features,
    digest_edges,
    digest_features,
    in_degrees,
)
from pyg_batchgnn.cache.contexts import GraphContext, context_of, features_of
from pyg_batchgnn.cache.folder import CacheMeta, load_rows, save_rows
from pyg_batchgnn.cache.pass_memory import PassMemory
from pyg_batchgnn.cache.pieces import PassReads, Piece, progress_bar
from pyg_batchgnn.ops import OwnedEdges, check_budget, digest_text
from pyg_batchgnn.store import CscGraph, DistFeatureStore, TypedGraph
from pyg_batchgnn.types import FEATURES, ReadableRows, Schema


@dataclass(frozen=True, eq=False, repr=False)
class AggregationCache:
    """The input features aggregated over all in-neighbours, for every node that a process owns.

    A loader with a cache does not sample the last hop. Native minibatches carry each node's
    aggregate beside its own features, and native models compute their first layer from it, with all
    in-neighbours. `build` or `load` makes a cache of a graph of one type and one relation.

    >>> cache = AggregationCache.build(data, "mean")
    >>> loader = MacrobatchNeighborLoader(data, [10, 5], export="native", aggregation_cache=cache)
    >>> minibatch = next(iter(loader))  # of one hop
    >>> SAGE(data.num_features, 16, num_layers=2, out_channels=3)(minibatch).shape
    torch.Size([1, 3])
    """

    kind: Aggregation  # the aggregation
    #: [n, F] aggregates of all nodes, or of the rank's own nodes in the order of its part, in the
    #: dtype of the features (float32 for float16)
    rows: Tensor
    readable: Mapping[int, Tensor]  # by rank, the ``rows`` of ranks of this host, which this process can read
    fingerprint: GraphFingerprint  # digests of edges and features, the same for any partition
    #: over ranks, the feature store that the cache was made of; else None
    store: DistFeatureStore | None = None
    origin: Origin | None = None  # in one process, the ``Data`` that the cache was made of, or None

    @classmethod
    def build(
        cls,
        data: Any,
        kind: str | Aggregation,
        *,
        memory_budget: int | str | None = None,
        threads: int | None = None,
        progress: bool = False,
        scratch: str | Path | None = None,
    ) -> AggregationCache:
        """Aggregates ``x`` over all in-neighbours. Collective over ranks.

        Nodes are aggregated in pieces that fit the memory budget. Over ranks, a piece fetches each
        remote row that it needs once, so larger pieces fetch less. In one process, features in a
        mapped file that do not fit half of the budget are read from the file, and the aggregates
        written to one.

        Args:
            data: a ``Data``, or a ``HeteroData`` of one type; a pair (`CscGraph`, features); or
                over ranks (`DistFeatureStore`, `DistGraphStore`).
            kind: "mean" for SAGE, "sum" for GIN, "symmetric" for GCN.
            memory_budget: about how many bytes (or a text like "2GiB") a piece takes, at least what
                one node needs. None: an eighth of the free memory of the host with the least,
                divided by its ranks. The result does not depend on it.
            threads: at most this many threads; None for torch's number.
            progress: True shows a progress bar on the standard error of the first rank.
            scratch: the folder of the file of aggregates, which lives as long as ``rows``; see
                `AllNodes`.

        Raises:
            ValueError, TypeError: there is no such aggregation or no ``x``, ``x`` cannot be
                aggregated before training, or the graph has several types or relations.
            AgreementError: ranks were given different aggregations.
        """
        budget, wanted = check_budget(memory_budget), Aggregation.parse(kind)
        graph = context_of(data, threads, budget, scratch)
        check_plain(graph.schema)
        graph.agree({"aggregation": wanted.value})
        return _Pass(graph, threads, progress).build(wanted, Origin.of(data))

    @classmethod
    def load(
        cls,
        folder: str | Path,
        data: Any,
        *,
        kind: str | Aggregation | None = None,
        memory_budget: int | str | None = None,
        threads: int | None = None,
        progress: bool = False,
        scratch: str | Path | None = None,
    ) -> AggregationCache:
        """Reads a cache that `save` wrote, with any number of ranks and partition. Collective.

        Args:
            folder: the same on every rank.
            data: the graph and the features that the cache was made of; see `build`.
            kind: the aggregation that is expected, as in `build`; None: any.
            memory_budget, threads, progress, scratch: see `build`.

        Raises:
            DatasetError: on every rank: the folder is of another graph, of other features or of
                another aggregation, or a file is damaged or missing on a rank.
            AgreementError: ranks were given different folders or aggregations.
        """
        budget, wanted = check_budget(memory_budget), None if kind is None else Aggregation.parse(kind)
        graph, path = context_of(data, threads, budget, scratch), Path(folder).expanduser()
        check_plain(graph.schema)
        meta = graph.run_together(lambda: CacheMeta.read(path))
        graph.agree({"aggregation cache": meta.digest, "kind": wanted and wanted.value})
        meta.check_kind(path, wanted)
        return _Pass(graph, threads, progress).load(path, meta, Origin.of(data))

    def save(self, folder: str | Path) -> Path:
        """Writes META.json and the aggregates by original id to a new folder that all ranks see.
        Collective over ranks.

        Raises:
            DatasetError: on every rank, if the folder exists or a rank cannot write.
        """
        comm = None if self.store is None else self.store.comm
        node = None if self.store is None else self.store.part.original_ids(ONLY)
        return save_rows(Path(folder).expanduser(), self.kind, self.fingerprint, node, self.rows, comm)

    @property
    def attribute(self) -> str:
        """The name of the aggregates among a minibatch's attributes."""
        return self.kind.attribute

    @property
    def nbytes(self) -> int:
        """The bytes of this process's aggregates."""
        return self.rows.nbytes

    def __repr__(self) -> str:
        nodes, columns = self.rows.shape
        what = f"{self.kind.value}, {nodes:,} nodes, {columns} columns of {self.rows.dtype}"
        return f"{type(self).__name__}({what})"

    def add_to(self, features: DistFeatureStore) -> DistFeatureStore:
        """Returns the feature store with the aggregates as one more attribute of nodes."""
        return features.with_attribute(features.part.schema.node_groups[ONLY], self.attribute, self.readable)

    def check_data(self, data: Data | HeteroData, graph: TypedGraph) -> None:
        """Raises ValueError unless the cache was made of this graph and these features, in one
        process. Fingerprints are compared unless the tensors are the same ones, or ``data`` has no
        features."""
        if self.origin is not None and self.origin.is_of(data, graph):
            return
        x = features_of(data, graph.schema.node_types[ONLY])
        if x is not None and (found := _differences(self.fingerprint, graph, x)):
            fact = f"is of another graph: data has {', '.join(found)}"
            anew = f"make one of this data: AggregationCache.build(data, {self.kind.value!r})"
            raise ValueError(f"the aggregation cache {fact}; {anew}")


def check_plain(schema: Schema) -> None:
    if not schema.is_plain:
        has = f"{len(schema.node_types)} node types and {schema.num_relations} relations"
        text = f"is for graphs of one node type and one relation, but this one has {has}"
        raise ValueError(f"an aggregation cache {text}: train without a cache")


@dataclass(frozen=True)
class Origin:
    """Weak references to the tensors that a cache was made of, by which the data is recognised."""

    edges: weakref.ref[Tensor]  # the ``edge_index`` of a ``Data``, or the sources of a `CscGraph`
    x: weakref.ref[Tensor]  # the features
    versions: tuple[int, int]  # the version counters of both

    @classmethod
    def of(cls, data: Any) -> Origin | None:
        if isinstance(data, HeteroData):
            return None
        if isinstance(data, Data):
            edges, x = data.edge_index, data.x
        elif isinstance(data[0], CscGraph):
            edges, x = data[0].indices, data[1]
        else:
            return None
        if not all(isinstance(one, Tensor) and not one.is_inference() for one in (edges, x)):
            return None
        return cls(weakref.ref(edges), weakref.ref(x), (edges._version, ops.as_stored(x)._version))

    def is_of(self, data: Data | HeteroData, graph: TypedGraph) -> bool:
        """Returns whether ``data`` or ``graph`` has these tensors, not written to since."""
        if isinstance(data, HeteroData):
            return False
        edges, x = self.edges(), self.x()
        if edges is None or x is None or x is not data.x:
            return False
        known = edges is graph.relations[ONLY].indices or edges is data.edge_index
        return known and self.versions == (edges._version, ops.as_stored(x)._version)


def _differences(known: GraphFingerprint, graph: TypedGraph, x: Any) -> list[str]:
    found = _Pass(GraphContext(graph, {ONLY: x}, PassMemory(None, None)), None, False)
    wrong = known.differences(GraphFingerprint(*found.counts, known.edges, known.features))
    return wrong or known.differences(found.fingerprint(found.sum_of_edges("")))


class _Pass:
    """Passes over all nodes that a process owns, piece by piece. Methods are collective over ranks.
    Raises TypeError or ValueError if there are no features that can be read here."""

    def __init__(self, graph: GraphContext, threads: int | None, progress: bool) -> None:
        self._graph, self._threads = graph, threads
        self._shows = progress and graph.rank == 0
        readable = graph.features(ONLY)
        if readable is None:
            raise ValueError(graph.no_features(ONLY))
        self.own: OwnedEdges = graph.owned_edges(ONLY)
        self._readable, self.features = readable, readable[graph.rank]

    @property
    def counts(self) -> tuple[int, int, int, str]:
        columns, dtype = self.features.size(1), str(self.features.dtype).removeprefix("torch.")
        return self._graph.num_nodes(ONLY), self.own.num_edges, columns, dtype

    def build(self, kind: Aggregation, origin: Origin | None) -> AggregationCache:
        own, features = self.own, self.features
        check_features(features)
        dtype = torch.float32 if features.dtype == torch.float16 else features.dtype
        wide, scale, tables = ops.wide_dtype(dtype), None, {FEATURES: self._readable}
        made = self._graph.allocate((own.node.numel(), features.size(1)), dtype)
        if kind is Aggregation.SYMMETRIC:  # by (1 + in-edges but self loops)^-1/2 of both ends
            scale = (in_degrees(own, with_loops=False) + 1).to(torch.float64).rsqrt().to(wide)
            tables[SCALE] = self._graph.shared(scale)
        edges = 0
        for piece in self._pieces(tables, f"aggregating features ({kind.value})"):
            with ops.thread_limit(self._threads):
                found = aggregate_piece(kind, own, piece, self._read, scale, wide)
                made.write(piece.targets[ONLY].start, found.to(dtype))
            edges += digest_edges(own, piece)
            del piece
        out, fingerprint = made.finish(), self.fingerprint(edges)
        # The fingerprint is collective: all ranks have written their rows now.
        return AggregationCache(kind, out[self._graph.rank], out, fingerprint, self._graph.store, origin)

    def _read(self, rows: range) -> Tensor:
        return self._graph.read(self.features, rows)

    def load(self, path: Path, meta: CacheMeta, origin: Origin | None) -> AggregationCache:
        check_features(self.features)
        fingerprint = self.fingerprint(self.sum_of_edges("comparing with the aggregation cache"))
        meta.check_fingerprint(path, fingerprint)
        made = self._graph.allocate(
            (self.own.node.numel(), self.features.size(1)), getattr(torch, meta.promise.dtype)
        )
        self._graph.run_together(lambda: load_rows(path, meta, self.own.node, made))
        out = made.finish()
        return AggregationCache(meta.kind, out[self._graph.rank], out, fingerprint, self._graph.store, origin)

    def sum_of_edges(self, title: str) -> int:
        edges = 0
        for piece in self._pieces({}, title):
            edges += digest_edges(self.own, piece)
            del piece
        return edges

    def fingerprint(self, edges: int) -> GraphFingerprint:
        """Adds up the fingerprint over ranks. ``edges``: the digest of this rank's edges."""
        features = digest_features(self._graph.original_ids(ONLY), self.features, self._read)
        return GraphFingerprint(*self.counts, *map(digest_text, self._graph.sums([edges, features])))

    def _pieces(self, tables: Mapping[str, ReadableRows], title: str) -> Iterator[Piece]:
        with progress_bar(title, self.own.node.numel(), self._shows) as advance:
            for piece in self._graph.pieces(PassReads([ONLY], {ONLY: tables})):
                done = len(piece.targets[ONLY])
                yield piece
                del piece  # its memory is free while the next one's rows are fetched
                advance(done)
        ops.empty_cache()  # its blocks have sizes that are not needed again
