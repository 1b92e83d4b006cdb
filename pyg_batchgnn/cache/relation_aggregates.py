"""The aggregates of one relation, for every target that a process owns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.cache.build import SCALE, aggregator, own_scale, result_dtype, wide_dtype
from pyg_batchgnn.cache.fingerprint import GraphFingerprint, digest_edges, digest_features
from pyg_batchgnn.cache.folder import RelationMeta, load_rows
from pyg_batchgnn.cache.kinds import Aggregation
from pyg_batchgnn.cache.pieces import ReadableRows, RelationPiece, progress_bar
from pyg_batchgnn.cache.relation_context import RelationContext
from pyg_batchgnn.types import FEATURES


@dataclass(frozen=True)
class PassSettings:
    """The settings of a pass over all targets.

    Attributes:
        budget: bytes of a piece, about; None: an eighth of the free memory.
        threads: at most this many threads; torch's own number where None.
        progress: True shows a progress bar on the standard error of the first rank.
        of: words in the title of the progress bar that say which relation it is.
    """

    budget: int | None
    threads: int | None
    progress: bool
    of: str = ""


@dataclass(frozen=True, eq=False)
class RelationAggregates:
    """The features of the sources of one relation, aggregated for every target.

    Attributes:
        kind: the aggregation.
        rows: [n, F] aggregates of this process's targets: of all nodes of the target type, or of
            the rank's own in the order of its part. Their type is that of the features, but float32
            for float16.
        readable: such rows of the ranks whose memory this one can read, by rank.
        fingerprint: of the edges and the features; it does not depend on the partition.
    """

    kind: Aggregation
    rows: Tensor
    readable: dict[int, Tensor]
    fingerprint: GraphFingerprint

    @classmethod
    def build(cls, context: RelationContext, kind: Aggregation, settings: PassSettings) -> RelationAggregates:
        """Aggregates the features of the sources. Collective; ranks agree on the kind."""
        own, features = context.own, context.features
        dtype = result_dtype(features)
        scale = own_scale(own, wide_dtype(dtype)) if kind is Aggregation.SYMMETRIC else None
        readable = context.graph.allocate((own.node.numel(), features.size(1)), dtype)
        rows = readable[context.graph.rank]
        reduce = aggregator(kind, own, features, scale, settings.threads)
        edges = 0
        tables = {FEATURES: context.readable}
        if scale is not None:
            tables[SCALE] = context.graph.shared(scale)
        title = f"aggregating features ({kind.value}{settings.of})"
        for piece in _pieces(context, tables, title, settings):
            rows[piece.rows.start : piece.rows.stop] = reduce(piece)
            edges += digest_edges(own, piece)
            del piece
        # This is collective: all ranks have written their rows then.
        return cls(kind, rows, readable, _fingerprint(context, edges))

    @classmethod
    def load(
        cls, path: Path, context: RelationContext, meta: RelationMeta, settings: PassSettings
    ) -> RelationAggregates:
        """Reads the aggregates in a folder. Collective over ranks.

        Raises:
            DatasetError: on every rank, where the folder is of another graph or of other features,
                or where its file is damaged or missing on any rank.
        """
        edges = 0
        title = f"comparing with the aggregation cache{settings.of}"
        for piece in _pieces(context, {}, title, settings):
            edges += digest_edges(context.own, piece)
            del piece
        fingerprint = _fingerprint(context, edges)
        meta.check_fingerprint(path, fingerprint)
        shape = context.own.node.numel(), context.features.size(1)
        readable = context.graph.allocate(shape, meta.dtype)
        rows = readable[context.graph.rank]
        context.graph.run_together(lambda: load_rows(path, meta, context.own.node, rows))
        return cls(meta.kind, rows, readable, fingerprint)


def _pieces(
    context: RelationContext, tables: Mapping[str, ReadableRows], title: str, settings: PassSettings
) -> Iterator[RelationPiece]:
    """Yields a context's pieces and shows a progress bar."""
    shows = settings.progress and context.graph.rank == 0
    with progress_bar(title, context.own.node.numel(), shows) as advance:
        for piece in context.pieces(tables, settings.budget):
            done = len(piece.rows)
            yield piece
            del piece  # its memory is free while the next one's rows are fetched
            advance(done)
    ops.empty_cache()  # its blocks have sizes that are not needed again


def _fingerprint(context: RelationContext, edges: int) -> GraphFingerprint:
    """Makes the fingerprint from the sums of all ranks. ``edges``: this rank's."""
    own, features = context.own, context.features
    sums = context.graph.sums([edges, digest_features(context.source_node, features)])
    dtype = str(features.dtype).removeprefix("torch.")
    return GraphFingerprint.of(context.num_targets, own.num_edges, features.size(1), dtype, *sums)
