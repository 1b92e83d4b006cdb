"""The input-feature aggregation cache (BatchGNN, section 3)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor
from torch_geometric.data import Data

from pyg_batchgnn import ops
from pyg_batchgnn.cache.build import SCALE, aggregator, own_scale, result_dtype, wide_dtype
from pyg_batchgnn.cache.fingerprint import Fingerprint, digest_edges, digest_features
from pyg_batchgnn.cache.folder import load_rows, save_rows
from pyg_batchgnn.cache.folder_meta import CacheMeta
from pyg_batchgnn.cache.kinds import Aggregation
from pyg_batchgnn.cache.neighbourhood import Piece, Sources
from pyg_batchgnn.cache.places import HeldPlace, Place, RankPlace
from pyg_batchgnn.cache.progress import shown
from pyg_batchgnn.store import CscGraph, DistFeatureStore, DistGraphStore, graph_from_pyg


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
        held: such rows by rank, of those that can be read without asking.
        fingerprint: of graph and features, whatever the partition.
        store: over ranks, the features that it was made of; None in one process.
    """

    kind: Aggregation
    rows: Tensor
    held: dict[int, Tensor]
    fingerprint: Fingerprint
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
        kind, place = Aggregation.parse(kind), place_of(data, threads)
        dtype = result_dtype(place.table)
        place.agree({"aggregation": kind.value})
        scale = own_scale(place.own, wide_dtype(dtype)) if kind is Aggregation.SYMMETRIC else None
        sources = place.sources({} if scale is None else {SCALE: scale}, features=True)
        held = place.allocate(tuple(place.table.shape), dtype)
        rows, reduce = held[place.rank], aggregator(kind, place.own, place.table, scale, threads)
        edges = 0
        for piece in _bounded(
            place, sources, memory_budget, f"aggregating features ({kind.value})", progress
        ):
            rows[piece.rows.start : piece.rows.stop] = reduce(piece)
            edges += digest_edges(place.own, piece, place.original(piece))
            del piece
        fingerprint = _fingerprint(place, edges)  # collective, after which all ranks have written theirs
        return cls(kind, rows, held, fingerprint, place.store)

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
        place, path = place_of(data, threads), Path(folder).expanduser()
        wanted = None if kind is None else Aggregation.parse(kind)
        result_dtype(place.table)
        meta = place.together(lambda: CacheMeta.read(path))
        place.agree({"aggregation cache": meta.digest})
        meta.check_kind(path, wanted)
        edges = 0
        sources = place.sources({}, features=False)
        for piece in _bounded(
            place, sources, memory_budget, "comparing with the aggregation cache", progress
        ):
            edges += digest_edges(place.own, piece, place.original(piece))
            del piece
        fingerprint = _fingerprint(place, edges)
        meta.check_fingerprint(path, fingerprint)
        held = place.allocate(tuple(place.table.shape), meta.dtype)
        place.together(lambda: load_rows(path, meta, place.own.node, held[place.rank]))
        return cls(meta.kind, held[place.rank], held, fingerprint, place.store)

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

    def beside(self, features: DistFeatureStore) -> DistFeatureStore:
        """The store that it was made of, with the aggregates as one more attribute."""
        return features.beside(self.attribute, self.held)

    def tables(self) -> Mapping[str, Tensor]:
        """The aggregates as an attribute of all nodes, in one process."""
        return {self.attribute: self.rows}

    def __repr__(self) -> str:
        nodes, columns = self.rows.shape
        return f"AggregationCache({self.kind.value}, {nodes:,} nodes, {columns} columns of {self.rows.dtype})"


def place_of(data: Any, threads: int | None) -> Place:
    """Where graph and features are.

    Raises:
        TypeError, ValueError: no graph with features that could be read here.
    """
    if isinstance(data, Data):
        return HeldPlace(graph_from_pyg(data), data.x)
    pair = tuple(data) if isinstance(data, (tuple, list)) else ()
    if len(pair) == 2 and isinstance(pair[0], CscGraph):
        return HeldPlace(*pair)
    if len(pair) == 2 and isinstance(pair[0], DistFeatureStore) and isinstance(pair[1], DistGraphStore):
        return RankPlace(pair[0], threads)
    raise TypeError(
        f"an aggregation cache is made of a Data, of (CscGraph, features) or of (DistFeatureStore, "
        f"DistGraphStore), got {type(data).__name__}; of other stores take the features as a tensor"
    )


def _bounded(
    place: Place, sources: Sources, wanted: int | None, title: str, progress: bool
) -> Iterator[Piece]:
    """The pieces of a place, with a bar. ``wanted``: bytes of a piece."""
    if wanted is not None and wanted < 1:
        raise ValueError(f"memory_budget must be a number of bytes, at least 1, got {wanted}")
    pieces: Iterable[Piece] = sources.pieces(place.own, place.limits(sources, wanted))
    with shown(title, place.own.node.numel(), progress and place.rank == 0) as advance:
        for piece in pieces:
            done = len(piece.rows)
            yield piece
            del piece  # nobody holds its rows while the next one's are fetched
            advance(done)
    ops.empty_cache()  # of sizes that are not needed again


def _fingerprint(place: Place, edges: int) -> Fingerprint:
    """With the sums of all ranks. ``edges``: this rank's."""
    own, table = place.own, place.table
    total_edges, total_features = place.sums([edges, digest_features(own.node, table)])
    dtype = str(table.dtype).removeprefix("torch.")
    digests = ops.digest_text(total_edges), ops.digest_text(total_features)
    return Fingerprint(own.num_nodes, own.num_edges, table.size(1), dtype, *digests)
