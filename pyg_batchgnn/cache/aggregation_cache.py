"""The input-feature aggregation cache (BatchGNN, section 3)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor
from torch_geometric.data import Data

from pyg_batchgnn import ops
from pyg_batchgnn.cache.build import SCALE, aggregator, own_scale, result_dtype, wide_dtype
from pyg_batchgnn.cache.bytes import check_budget
from pyg_batchgnn.cache.contexts import BuildContext, context_of
from pyg_batchgnn.cache.fingerprint import GraphFingerprint, digest_edges, digest_features
from pyg_batchgnn.cache.folder import load_rows, save_rows
from pyg_batchgnn.cache.folder_meta import CacheMeta
from pyg_batchgnn.cache.kinds import Aggregation
from pyg_batchgnn.cache.origin import Origin, differences
from pyg_batchgnn.cache.pieces import Piece, SourceColumns
from pyg_batchgnn.cache.progress import progress_bar
from pyg_batchgnn.data import FEATURES, NODES
from pyg_batchgnn.store import CscGraph, DistFeatureStore


@dataclass(frozen=True, eq=False)
class AggregationCache:
    """The input features aggregated over all in-neighbours, for every node that a process owns.

    A loader with a cache does not sample the last hop. Native minibatches carry the aggregate of
    each node beside the node's own features, and native models begin with the aggregates. So the
    first layer sees all in-neighbours of a node, the same in every epoch.

    `build` or `load` makes a cache.

    Attributes:
        kind: the aggregation.
        rows: [n, F] aggregates of this process's nodes: of all nodes, or of the rank's own in the
            order of its part. Their type is that of the features, but float32 for float16.
        readable: such rows of the ranks whose memory this one can read, by rank.
        fingerprint: of the graph and the features; it does not depend on the partition.
        store: the store of the features that the cache was made of, over ranks; None in one
            process.
        origin: the ``Data`` that the cache was made of, in one process; None if it was none.
    """

    kind: Aggregation
    rows: Tensor
    readable: dict[int, Tensor]
    fingerprint: GraphFingerprint
    store: DistFeatureStore | None = None
    origin: Origin | None = None

    @classmethod
    def build(
        cls,
        data: Any,
        kind: str | Aggregation,
        *,
        memory_budget: int | str | None = None,
        threads: int | None = None,
        progress: bool = False,
    ) -> AggregationCache:
        """Aggregates ``x`` over all in-neighbours. Collective over ranks.

        Nodes are aggregated in pieces. Over ranks, each remote row that a piece needs is fetched
        once per piece, so fewer and larger pieces fetch less.

        Args:
            data: a ``Data``; a pair (`CscGraph`, features); or over ranks (`DistFeatureStore`,
                `DistGraphStore`).
            kind: "mean" for SAGE, "sum" for GIN, "symmetric" for GCN.
            memory_budget: bytes (or a text like "2GiB") that a piece takes, about, but at least
                what one node needs. None: an eighth of the free memory of the host that has least,
                divided by its ranks. The result does not depend on it.
            threads: at most this many threads; torch's own number where None.
            progress: True shows a progress bar on the standard error of the first rank.

        Raises:
            ValueError, TypeError: there is no such aggregation or no ``x``, or ``x`` cannot be
                aggregated before training.
        """
        kind, budget = Aggregation.parse(kind), check_budget(memory_budget)
        context = context_of(data, threads)
        own, features = context.own, context.features
        dtype = result_dtype(features)
        context.agree({"aggregation": kind.value})
        scale = own_scale(own, wide_dtype(dtype)) if kind is Aggregation.SYMMETRIC else None
        readable = context.allocate(tuple(features.shape), dtype)
        rows, reduce = readable[context.rank], aggregator(kind, own, features, scale, threads)
        edges = 0
        title = f"aggregating features ({kind.value})"
        tables = {FEATURES: context.readable}
        if scale is not None:
            tables[SCALE] = context.shared(scale)
        columns = SourceColumns(tables)
        for piece in _pieces(context, columns, budget, title, progress):
            rows[piece.rows.start : piece.rows.stop] = reduce(piece)
            edges += digest_edges(own, piece)
            del piece
        fingerprint = _fingerprint(context, edges)  # collective: all ranks have written their rows then
        return cls(kind, rows, readable, fingerprint, context.store, Origin.of(data))

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
    ) -> AggregationCache:
        """Reads what `save` wrote. Collective over ranks.

        The number of ranks and the partition may be others than when the cache was saved.

        Args:
            folder: the same on every rank.
            data: the graph and the features that the cache was made of; see `build`.
            kind: the aggregation that is expected; None: any.
            memory_budget, threads, progress: see `build`; the edges are compared in pieces.

        Raises:
            DatasetError: on every rank, where the folder is of another graph, of other features or
                of another aggregation, or where a file is damaged or missing on any rank.
        """
        budget = check_budget(memory_budget)
        context, path = context_of(data, threads), Path(folder).expanduser()
        wanted = None if kind is None else Aggregation.parse(kind)
        result_dtype(context.features)
        meta = context.run_together(lambda: CacheMeta.read(path))
        context.agree({"aggregation cache": meta.digest})
        meta.check_kind(path, wanted)
        edges = 0
        title = "comparing with the aggregation cache"
        for piece in _pieces(context, SourceColumns(), budget, title, progress):
            edges += digest_edges(context.own, piece)
            del piece
        fingerprint = _fingerprint(context, edges)
        meta.check_fingerprint(path, fingerprint)
        readable = context.allocate(tuple(context.features.shape), meta.dtype)
        rows = readable[context.rank]
        context.run_together(lambda: load_rows(path, meta, context.own.node, rows))
        return cls(meta.kind, rows, readable, fingerprint, context.store, Origin.of(data))

    def save(self, folder: str | Path) -> Path:
        """Writes a new folder. Collective over ranks.

        The folder holds META.json and the aggregates by original id. All ranks must see the same
        file system.

        Raises:
            DatasetError: on every rank, if the folder exists or a rank cannot write.
        """
        node = None if self.store is None else self.store.part.node
        comm = None if self.store is None else self.store.comm
        return save_rows(Path(folder).expanduser(), self.kind, self.fingerprint, node, self.rows, comm)

    @property
    def attribute(self) -> str:
        """The name of the aggregates in minibatches."""
        return self.kind.attribute

    @property
    def nbytes(self) -> int:
        """The bytes of this process's aggregates."""
        return self.rows.nbytes

    def check_data(self, data: Data, graph: CscGraph) -> None:
        """Raises ValueError unless the cache is of this graph and its features, in one process.

        They are compared by fingerprint, unless they are the very tensors that the cache was made
        of.

        Args:
            data: the user's data, with ``x``.
            graph: its graph.
        """
        if self.origin is not None and self.origin.is_of(data, graph):
            return
        if found := differences(self.fingerprint, graph, data.x):
            raise ValueError(
                f"the aggregation cache is of another graph: data has {', '.join(found)}; make one of this "
                f"data: AggregationCache.build(data, {self.kind.value!r})"
            )

    def add_to(self, features: DistFeatureStore) -> DistFeatureStore:
        """Returns the features' store with the aggregates as one more node attribute."""
        return features.with_attribute(NODES, self.attribute, self.readable)

    def tables(self) -> Mapping[str, Tensor]:
        """Returns the aggregates as an attribute of all nodes, in one process."""
        return {self.attribute: self.rows}

    def __repr__(self) -> str:
        nodes, columns = self.rows.shape
        return f"AggregationCache({self.kind.value}, {nodes:,} nodes, {columns} columns of {self.rows.dtype})"


def _pieces(
    context: BuildContext, columns: SourceColumns, budget: int | None, title: str, progress: bool
) -> Iterator[Piece]:
    """Yields a context's pieces of ``budget`` bytes and shows a progress bar."""
    with progress_bar(title, context.own.node.numel(), progress and context.rank == 0) as advance:
        for piece in context.pieces(columns, budget):
            done = len(piece.rows)
            yield piece
            del piece  # its memory is free while the next one's rows are fetched
            advance(done)
    ops.empty_cache()  # its blocks have sizes that are not needed again


def _fingerprint(context: BuildContext, edges: int) -> GraphFingerprint:
    """Makes the fingerprint from the sums of all ranks. ``edges``: this rank's."""
    own, features = context.own, context.features
    total_edges, total_features = context.sums([edges, digest_features(own.node, features)])
    dtype = str(features.dtype).removeprefix("torch.")
    counts = own.num_nodes, own.num_edges, features.size(1), dtype
    return GraphFingerprint.of(*counts, total_edges, total_features)
