"""The input-feature aggregation cache (BatchGNN, section 3)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.cache.build import aggregator, own_scale, result_dtype, wide_dtype
from pyg_batchgnn.cache.contexts import BuildContext, context_of
from pyg_batchgnn.cache.fingerprint import GraphFingerprint, digest_edges, digest_features
from pyg_batchgnn.cache.folder import load_rows, save_rows
from pyg_batchgnn.cache.folder_meta import CacheMeta
from pyg_batchgnn.cache.kinds import Aggregation
from pyg_batchgnn.cache.pieces import Piece, SourceColumns
from pyg_batchgnn.cache.progress import progress_bar
from pyg_batchgnn.data import NODES
from pyg_batchgnn.store import DistFeatureStore


@dataclass(frozen=True, eq=False)
class AggregationCache:
    """The aggregation of the input features over all in-neighbours, of every node that a process owns.

    Given to a loader it stands for the last hop, which is then not sampled: native minibatches carry each
    node's aggregate beside its own features, and native models begin with those. Neighbours of that hop are
    thus all of them, the same ones in every epoch.

    Make one with `build` or `load`.

    Attributes:
        kind: which aggregation.
        rows: [n, F] of this process's nodes: all nodes, or the rank's own in the order of its part. As
            features are held, but for float16 in float32.
        readable: such rows by rank, of the ranks whose rows can be read here without asking.
        fingerprint: of graph and features, whatever the partition.
        store: over ranks, the features that it was made of; None in one process.
    """

    kind: Aggregation
    rows: Tensor
    readable: dict[int, Tensor]
    fingerprint: GraphFingerprint
    store: DistFeatureStore | None = None

    @classmethod
    def build(
        cls,
        data: Any,
        kind: str | Aggregation,
        *,
        memory_budget: int | None = None,
        threads: int | None = None,
        progress: bool = False,
    ) -> AggregationCache:
        """Aggregates ``x`` over all in-neighbours; over ranks collective.

        The graph is gone through in pieces. Over ranks, each remote row that a piece needs is fetched once
        for the piece, so fewer and larger pieces fetch less.

        Args:
            data: a ``Data``; a pair (`CscGraph`, features); or over ranks (`DistFeatureStore`,
                `DistGraphStore`).
            kind: "mean" for SAGE, "sum" for GIN, "symmetric" for GCN.
            memory_budget: bytes that a piece may take, about, but at least what one node needs; None: an
                eighth of what is free on the rank that has least, divided by its host's ranks. It changes
                no bit of the result.
            threads: at most so many threads; torch's own number where None.
            progress: whether the first rank shows a bar on the standard error.

        Raises:
            ValueError, TypeError: there is no such aggregation, no ``x``, or none that could be aggregated
                beforehand.
        """
        kind, context = Aggregation.parse(kind), context_of(data, threads)
        own, features = context.own, context.features
        dtype = result_dtype(features)
        context.agree({"aggregation": kind.value})
        scale = own_scale(own, wide_dtype(dtype)) if kind is Aggregation.SYMMETRIC else None
        readable = context.allocate(tuple(features.shape), dtype)
        rows, reduce = readable[context.rank], aggregator(kind, own, features, scale, threads)
        edges = 0
        title, columns = f"aggregating features ({kind.value})", SourceColumns(True, scale)
        for piece in _pieces(context, columns, memory_budget, title, progress):
            rows[piece.rows.start : piece.rows.stop] = reduce(piece)
            edges += digest_edges(own, piece)
            del piece
        fingerprint = _fingerprint(context, edges)  # collective, after which all ranks have written theirs
        return cls(kind, rows, readable, fingerprint, context.store)

    @classmethod
    def load(
        cls,
        folder: str | Path,
        data: Any,
        *,
        kind: str | Aggregation | None = None,
        memory_budget: int | None = None,
        threads: int | None = None,
        progress: bool = False,
    ) -> AggregationCache:
        """What `save` wrote, on any number of ranks and with any partition; over ranks collective.

        Args:
            folder: the same on every rank.
            data: what it must have been made of; see `build`, as for the others.
            kind: what it must be; None: what it is.

        Raises:
            DatasetError: on every rank, where the folder is of another graph, of other features or of another
                aggregation, or where a file is damaged or missing on one of them.
        """
        context, path = context_of(data, threads), Path(folder).expanduser()
        wanted = None if kind is None else Aggregation.parse(kind)
        result_dtype(context.features)
        meta = context.run_together(lambda: CacheMeta.read(path))
        context.agree({"aggregation cache": meta.digest})
        meta.check_kind(path, wanted)
        edges = 0
        title = "comparing with the aggregation cache"
        for piece in _pieces(context, SourceColumns(), memory_budget, title, progress):
            edges += digest_edges(context.own, piece)
            del piece
        fingerprint = _fingerprint(context, edges)
        meta.check_fingerprint(path, fingerprint)
        readable = context.allocate(tuple(context.features.shape), meta.dtype)
        rows = readable[context.rank]
        context.run_together(lambda: load_rows(path, meta, context.own.node, rows))
        return cls(meta.kind, rows, readable, fingerprint, context.store)

    def save(self, folder: str | Path) -> Path:
        """Writes a new folder, META.json and the aggregates by original id; over ranks collective, and all
        ranks must see the same file system.

        Raises:
            DatasetError: on every rank, if the folder exists or one of them cannot write.
        """
        node = None if self.store is None else self.store.part.node
        comm = None if self.store is None else self.store.comm
        return save_rows(Path(folder).expanduser(), self.kind, self.fingerprint, node, self.rows, comm)

    @property
    def attribute(self) -> str:
        """The name under which minibatches carry it."""
        return self.kind.attribute

    @property
    def nbytes(self) -> int:
        """Bytes of this process's aggregates."""
        return self.rows.nbytes

    def add_to(self, features: DistFeatureStore) -> DistFeatureStore:
        """Returns the store that the cache was made of, with the aggregates as one more node attribute."""
        return features.with_attribute(NODES, self.attribute, self.readable)

    def tables(self) -> Mapping[str, Tensor]:
        """The aggregates as an attribute of all nodes, in one process."""
        return {self.attribute: self.rows}

    def __repr__(self) -> str:
        nodes, columns = self.rows.shape
        return f"AggregationCache({self.kind.value}, {nodes:,} nodes, {columns} columns of {self.rows.dtype})"


def _pieces(
    context: BuildContext, columns: SourceColumns, budget: int | None, title: str, progress: bool
) -> Iterator[Piece]:
    """Goes through a context's pieces of ``budget`` bytes with a progress bar."""
    if budget is not None and budget < 1:
        raise ValueError(f"memory_budget must be a number of bytes, at least 1, got {budget}")
    with progress_bar(title, context.own.node.numel(), progress and context.rank == 0) as advance:
        for piece in context.pieces(columns, budget):
            done = len(piece.rows)
            yield piece
            del piece  # nobody holds its rows while the next one's are fetched
            advance(done)
    ops.empty_cache()  # of sizes that are not needed again


def _fingerprint(context: BuildContext, edges: int) -> GraphFingerprint:
    """Makes the fingerprint from the sums of all ranks. ``edges``: this rank's."""
    own, features = context.own, context.features
    total_edges, total_features = context.sums([edges, digest_features(own.node, features)])
    dtype = str(features.dtype).removeprefix("torch.")
    digests = ops.digest_text(total_edges), ops.digest_text(total_features)
    return GraphFingerprint(own.num_nodes, own.num_edges, features.size(1), dtype, *digests)
