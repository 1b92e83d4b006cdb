"""All nodes of a graph, layer by layer: what the inference of all nodes reads and writes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.cache.build import check_features, in_degrees
from pyg_batchgnn.cache.contexts import context_of
from pyg_batchgnn.cache.pieces import PassReads, Piece, progress_bar
from pyg_batchgnn.comm import MessageKind
from pyg_batchgnn.ops import InEdges, check_budget
from pyg_batchgnn.types import NewRows, NodePiece, NodePieceRows, ReadableRows, Relation, Schema, SourceValues

_ROWS = "rows"


class AllNodes:
    """All nodes that a process owns, for inference: in pieces that fit memory, with their
    in-neighbours. ``loader.all_nodes()`` makes it. Every method is collective over ranks. In a
    graph without type names the type is "node", the relation ("node", "to", "node").

    Args:
        data: a ``Data`` or a ``HeteroData``; a pair (`CscGraph`, features) or (`TypedGraph`,
            features by node type); or over ranks (`DistFeatureStore`, `DistGraphStore`).
        threads: at most this many threads; None for torch's number.
        memory_budget: about how many bytes (or a text like "2GiB") pieces and the rows of layers
            take. Rows and mapped features that do not fit half of it lie in files. Over ranks it is
            for pieces alone; see `AggregationCache.build`.
        progress: True shows a progress bar for each layer on the standard error of the first rank.
        scratch: the folder of these files, which have no name. None: the folder of the features'
            file, or the system's folder for temporary files.

    Raises:
        TypeError, ValueError: ``data`` is no graph with readable features, the budget is not
            positive, or ``scratch`` is no folder or given over ranks.
    """

    def __init__(
        self,
        data: Any,
        threads: int | None = None,
        memory_budget: int | str | None = None,
        progress: bool = False,
        scratch: str | Path | None = None,
    ) -> None:
        self._context = context_of(data, threads, check_budget(memory_budget), scratch)
        found = {name: self._context.features(number) for number, name in enumerate(self.schema.node_types)}
        self._features = {name: rows for name, rows in found.items() if rows is not None}
        if not self._features:
            raise ValueError(self._context.no_features(0))
        for rows in self._features.values():
            check_features(rows[self.rank])
        self._progress = progress
        self._degrees: dict[tuple[Relation, bool, str | None, float], SourceValues] = {}

    @property
    def rank(self) -> int:
        return self._context.rank

    @property
    def schema(self) -> Schema:
        return self._context.schema

    @property
    def node(self) -> Tensor:
        """[n] int64, the original id of each owned node, of the only type."""
        if self.schema.num_types > 1:
            raise AttributeError(
                f"the graph has the node types {list(self.schema.node_types)}; call node_of(node_type)"
            )
        return self._context.original_ids(0)

    def node_of(self, node_type: str) -> Tensor:
        """Returns [n] int64, the original ids of the owned nodes of a type, in row order."""
        return self._context.original_ids(self.schema.type_number(node_type))

    @property
    def features(self) -> Mapping[str, ReadableRows]:
        """The features by node type that has some, and by rank, of the ranks of this host."""
        return self._features

    def pieces(
        self,
        rows: Mapping[str, ReadableRows],
        relations: Sequence[Relation],
        result_bytes: Mapping[str, int],
        title: str,
        edge_bytes: int = 0,
        edge_values: Sequence[str] = (),
    ) -> Iterator[NodePiece]:
        """Yields the owned targets of some relations in pieces: equally many on every rank, at
        least one; the last ones may be empty.

        Args:
            rows: [n, F] of the layer before, by node type and rank. Other types are not read.
            result_bytes: bytes that the caller takes for each target, by node type.
            title: of the progress bar.
            edge_bytes: bytes that the caller takes for each edge, if rows lie in files.
            edge_values: the names of edge attributes that a piece shall carry.
        """
        number = self.schema.type_number
        tables = [one for name in edge_values for one in self.edge_tables(name).values()]
        reads = PassReads(
            sorted(map(self.schema.relation_number, relations)),
            {number(name): {_ROWS: readable} for name, readable in rows.items()},
            targets_first=True,
            result_bytes={number(name): size for name, size in result_bytes.items()},
            kind=MessageKind.INFERENCE,
            edge_bytes=edge_bytes,
            value_bytes=sum(one.nbytes // max(1, len(one)) for one in tables),
        )
        targets = {self.schema.target_types[relation] for relation in reads.relations}
        count = sum(map(self._context.count, targets))
        with progress_bar(title, count, self._progress and self.rank == 0) as advance:
            for piece in self._context.pieces(reads):
                done = sum(map(len, piece.targets.values()))
                yield self._by_name(piece, edge_values)
                del piece  # its memory is free while the next one's rows are fetched
                advance(done)
        self.finish()

    def finish(self) -> None:
        """Waits until all ranks have written their rows, so that others may read them."""
        self._context.wait_for_all()
        ops.empty_cache()  # its blocks have sizes that are not needed again

    def count(self, node_type: str) -> int:
        return self._context.count(self.schema.type_number(node_type))

    def allocate(self, node_type: str, row_shape: tuple[int, ...], dtype: torch.dtype) -> NewRows:
        """Makes a table for a type's owned nodes that other ranks may read. Raises OSError if it
        fits neither memory nor the disk."""
        return self._context.allocate((self.count(node_type), *row_shape), dtype)

    def keep(self, node_type: str, row_shape: tuple[int, ...], dtype: torch.dtype) -> NewRows:
        """As `allocate`, for a table that no other rank reads."""
        return self._context.keep((self.count(node_type), *row_shape), dtype)

    def read(self, table: Tensor, rows: range) -> Tensor:
        """Returns consecutive rows of a table of owned nodes: a view, or a copy from its file."""
        return self._context.read(table, rows)

    def gather(self, table: Tensor, row: Tensor) -> Tensor:
        """Returns a copy of rows ``row`` [k] int64 of a table of owned nodes."""
        return self._context.gather(table, row)

    def edge_tables(self, name: str) -> Mapping[Relation, Tensor]:
        """Returns this process's rows of an edge attribute by relation, in no certain order. Raises
        ValueError if no relation has it, or it has another length than the edges."""
        found = {self.schema.relations[at]: one for at, one in self._context.edge_tables(name).items()}
        if not found:
            raise ValueError(f"the edges have no attribute {name!r} to read; put it into the data")
        return found

    def degrees(
        self, relation: Relation, with_loops: bool, weight: str | None = None, fill: float = 1.0
    ) -> SourceValues:
        """Returns the in-degrees in the whole graph of the owned nodes and of the sources of their
        in-edges, for a relation within one node type.

        Args:
            with_loops: True counts self loops, too.
            weight: the name of edge weights to add up instead; None counts edges.
            fill: added for each node without a weighted self loop, unless ``with_loops``.
        """
        key = relation, with_loops, weight, fill
        if key not in self._degrees:
            number = self.schema.relation_number(relation)
            edges = self._context.owned_edges(number)
            read = None if weight is None else partial(self._context.edge_values, number, weight)
            own = in_degrees(edges, with_loops, read, fill)
            own = own if own.is_floating_point() else own.to(torch.int32)
            self._degrees[key] = self._context.values_of_sources(number, own, MessageKind.INFERENCE)
        return self._degrees[key]

    def _by_name(self, piece: Piece, edge_values: Sequence[str]) -> NodePiece:
        names, edges, context = self.schema.node_types, {}, self._context
        values: dict[str, dict[Relation, Tensor]] = {name: {} for name in edge_values}
        for number, indices in piece.indices.items():
            relation, rows = self.schema.relations[number], piece.targets[self.schema.target_types[number]]
            indptr = context.owned_edges(number).in_edges.indptr[rows.start : rows.stop + 1]
            edges[relation] = InEdges(indptr - indptr[0], indices)
            for name, of_name in values.items():
                if number in context.edge_tables(name):
                    of_name[relation] = context.edge_values(number, name, rows)
        nodes = {
            names[kind]: NodePieceRows(one.tables[_ROWS], one.order, one.ids)
            for kind, one in piece.nodes.items()
            if _ROWS in one.tables
        }
        return NodePiece({names[kind]: rows for kind, rows in piece.targets.items()}, nodes, edges, values)
