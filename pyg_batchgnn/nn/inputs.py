"""The rows that layers read, and the arguments of a convolution in one form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.nn.layer_edges import (
    HaloGraph,
    LayerGraph,
    has_halo,
    is_sampled,
    is_typed,
    layer_graph,
    whole_graph,
)
from pyg_batchgnn.types import SampledMinibatch


@dataclass(frozen=True, eq=False)
class RowView:
    """Rows of a table that are read in place: row i is ``table[row[i]]``.

    >>> RowView(torch.arange(6.0).view(3, 2), torch.tensor([2, 0])).gather().tolist()
    [[4.0, 5.0], [0.0, 1.0]]

    Native first layers take it as input, so that the features of a minibatch are never copied. It
    has no gradient: gather rows that are trained first, ``table[row]``.

    Attributes:
        table: [M, F] float32, float64, float16 or bfloat16 on the CPU, columns contiguous, also
            memory-mapped. Or a `QuantizedTensor`, of which layers read the codes.
        row: [N] int32 or int64 rows of ``table``, checked here.
    """

    table: Tensor
    row: Tensor

    def __post_init__(self) -> None:
        if self.table.dim() != 2:
            raise ValueError(f"table must be [rows, columns], got shape {list(self.table.shape)}")
        if self.table.requires_grad:
            raise ValueError("a RowView gets no gradient; gather the rows first: table[row]")
        if self.table.numel() and self.table.stride(1) != 1:
            raise ValueError("the table's columns are not contiguous; call table.contiguous()")
        ops.check_ids("row", self.row, self.table.size(0), "rows of the table")

    @property
    def shape(self) -> torch.Size:
        """[N, F]."""
        return torch.Size((self.row.numel(), self.table.size(1)))

    def size(self, dim: int) -> int:
        return self.shape[dim]

    @property
    def dtype(self) -> torch.dtype:
        return self.table.dtype

    @property
    def requires_grad(self) -> bool:
        return False

    def head(self, rows: int) -> RowView:
        """Returns the first ``rows`` rows without checking them again."""
        view = object.__new__(RowView)
        object.__setattr__(view, "table", self.table)
        object.__setattr__(view, "row", ops.prefix(self.row, rows))
        return view

    def gather(self) -> Tensor:
        """Returns a copy of the rows, [N, F] of the dtype of the table."""
        return ops.gather_rows(self.table, self.row)


#: The rows that a layer reads.
Rows = Tensor | RowView
#: The source of the edges of a layer.
Edges = Tensor | SampledMinibatch | LayerGraph


@dataclass(eq=False)
class NodeRows:
    """The rows of one node type in a layer, which several relations read in turn. Each reader
    passes them on, so that the gradients of all are added while they are written."""

    # [>= N, F], the rows for the next reader. After the last one they may be the first ``targets``
    # alone.
    rows: Rows
    targets: int  # D, the number of rows that the layer computes of this type
    readers: int = 1  # the number of relations that have not read the rows as sources yet
    _own: tuple[Rows, Rows] | None = None

    def own(self) -> Rows:
        """Returns the rows of the targets, [D, F], one object until a relation has read them."""
        if self._own is None or self._own[0] is not self.rows:
            self._own = self.rows, head(self.rows, self.targets)
        return self._own[1]

    def aggregate(self, graph: LayerGraph, reduce: str, out_dtype: torch.dtype) -> Tensor:
        """Aggregates the rows of a relation's sources for each target, [D, F] (`ops.aggregate`)."""
        rows, edges = head(self.rows, graph.num_sources), (graph.indptr, graph.indices)
        if isinstance(rows, RowView) or not (torch.is_grad_enabled() and rows.requires_grad):
            table, row = table_and_row(rows)
            return ops.aggregate(table, *edges, row=row, reduce=reduce, out_dtype=out_dtype)
        targets = rows.size(0) if self.readers > 1 else self.targets
        out, self.rows = ops.aggregate_with_targets(
            rows, *edges, by_source=graph.by_source, reduce=reduce, out_dtype=out_dtype, targets=targets
        )
        return out


@dataclass(frozen=True, eq=False)
class ConvInput:
    """The rows and edges of a layer."""

    graph: LayerGraph
    source: NodeRows  # the rows of the sources, [>= N, F]
    # The rows of the targets, [>= D, F'], or None if there are none. The same object as ``source``
    # if the targets are the first sources.
    target: NodeRows | None

    @property
    def x(self) -> Rows:
        return head(self.source.rows, self.graph.num_sources)

    @property
    def targets_in_sources(self) -> bool:
        """True if the targets are the first sources."""
        return self.target is self.source

    def own_rows(self) -> Rows | None:
        return None if self.target is None else self.target.own()


def head(x: Rows, rows: int) -> Rows:
    if x.size(0) == rows:
        return x
    return x.head(rows) if isinstance(x, RowView) else ops.first_rows(x, rows)


def table_and_row(x: Rows) -> tuple[Tensor, Tensor | None]:
    """Returns the table that holds the rows, and their numbers in it; None for the whole table."""
    return (x.table, x.row) if isinstance(x, RowView) else (x, None)


def table_of(x: Rows, dtype: torch.dtype) -> tuple[Tensor, Tensor | None]:
    """Returns table and row numbers for an operator: columns contiguous, float64 for such a
    layer."""
    if isinstance(x, RowView):
        if dtype == torch.float64 and x.dtype != dtype:
            return x.gather().to(dtype), None
        return x.table, x.row
    x = x.to(dtype) if dtype == torch.float64 else x
    return (x if x.stride(1) == 1 else x.contiguous()), None


def conv_input(
    x: Rows | tuple[Rows, Rows | None], edges: Edges, layer: int | None, size: tuple[int, int] | None = None
) -> ConvInput:
    """Checks the arguments of a convolution, and returns them in one form.

    Args:
        x: the rows of the sources, with the targets first; or (sources, targets or None).
        edges: a minibatch (with ``layer``), a `LayerGraph`, or PyG's [2, E] edge_index.
        layer: the number of the layer in the minibatch; 1 is nearest the input. None without one.
        size: (N, D), for an edge_index if the rows do not tell.
    """
    pair = isinstance(x, (tuple, list))
    sources, own = (x[0], x[1]) if isinstance(x, (tuple, list)) else (x, None)
    given = {"x[0]" if pair else "x": sources, **({} if own is None else {"x[1]": own})}
    for name, rows in given.items():
        check_matrix(name, rows)
    graph = _graph(edges, layer, sources, own, size)
    for name, rows in given.items():
        if is_sampled(edges) and rows.size(0) > (nodes := edges.node.numel()):  # taken for other nodes'
            raise ValueError(
                f"{name} has {rows.size(0)} rows, but the minibatch has {nodes} nodes; give the rows of its "
                f"nodes: RowView({name}, minibatch.node)"
            )
    targets_in_sources = not pair or own is sources
    targets = graph.num_targets
    if sources.size(0) < graph.num_sources:
        raise ValueError(f"x has {sources.size(0)} rows, but the layer has {graph.num_sources} sources")
    if targets_in_sources and targets > sources.size(0):
        raise ValueError(f"x has {sources.size(0)} rows, but the layer has {targets} targets")
    if own is not None and own.size(0) < targets:
        raise ValueError(f"x[1] has {own.size(0)} rows, but the layer has {targets} targets")
    if targets_in_sources:
        both = NodeRows(sources, targets)
        return ConvInput(graph, both, both)
    target = None if own is None else NodeRows(own, targets, readers=0)
    return ConvInput(graph, NodeRows(sources, targets=0), target)


def check_matrix(name: str, rows: Any) -> None:
    """Raises TypeError or ValueError unless ``rows`` are a dense matrix or a `RowView`."""
    if isinstance(rows, RowView):
        return
    if not isinstance(rows, Tensor):
        kind = type(rows).__name__
        raise TypeError(f"{name} must be a dense tensor or a RowView, one row per node, got {kind}")
    if rows.layout != torch.strided:
        raise TypeError(f"{name} must be a dense tensor, got {rows.layout}; call {name}.to_dense()")
    if rows.dim() != 2:
        raise ValueError(f"{name} must be [rows, columns], got shape {list(rows.shape)}")


def _graph(
    edges: Edges, layer: int | None, sources: Rows, own: Rows | None, size: tuple[int, int] | None
) -> LayerGraph:
    if is_typed(edges):
        if layer is None:
            raise ValueError("give the number of the layer with a minibatch: conv(x, minibatch, layer)")
        return layer_graph(edges, layer)
    if layer is not None:
        raise ValueError(f"layer={layer} belongs to a minibatch, got edges of {type(edges).__name__}")
    if isinstance(edges, LayerGraph):
        return edges
    targets = sources.size(0) if own is None else own.size(0)
    if size is not None:
        if size[0] != sources.size(0) or (own is not None and size[1] != own.size(0)):
            raise ValueError(f"size {tuple(size)} does not fit the rows given")
        targets = size[1]
    return whole_graph(cast(Tensor, edges), sources.size(0), targets)


def features_of(minibatch: SampledMinibatch) -> RowView:
    """Returns the features ``x`` of a minibatch of one node type, to be read in place."""
    row: Tensor | None = getattr(minibatch, "row", None)
    block: Mapping[str, Tensor] = getattr(minibatch, "block", {})
    if row is not None and "x" in block:
        return RowView(block["x"], row)
    raise ValueError(
        "the minibatch carries no features 'x'; give them to the loader's data, or to the model: "
        "model(minibatch, x=features_of_its_nodes)"
    )


def features_by_type(minibatch: SampledMinibatch) -> dict[str, Rows]:
    """Returns a minibatch's features ``x`` by node type that has some, to be read in place."""
    found: dict[str, Rows] = {}
    for name, group in zip(minibatch.schema.node_types, minibatch.schema.node_groups, strict=True):
        rows: Any = getattr(minibatch, "attributes", {}).get(group)
        if rows is not None and "x" in rows.tables:
            table = rows.tables["x"]
            found[name] = table if rows.row is None else RowView(table, rows.row)
    return found


def check_input(x: Tensor | RowView, columns: int, dtype: torch.dtype, name: str = "x") -> None:
    """Raises TypeError or ValueError unless a layer [columns, ...] in ``dtype`` can read ``x``."""
    if len(x.shape) != 2 or x.shape[1] != columns:
        raise ValueError(f"{name} must be [rows, {columns}], got {list(x.shape)}")
    if not x.dtype.is_floating_point or (x.dtype == torch.float64 and dtype != torch.float64):
        raise TypeError(
            f"{name} is {x.dtype}, but the layer computes in {dtype}; convert it with .to({dtype})"
        )


class HaloPass:
    """One forward pass of a minibatch with historical embeddings: rows of halo nodes are read from
    caches, without a gradient, and stand behind the own rows. Edges from halo nodes that are not in
    a cache are left out. For each layer::

        halo = HaloPass(minibatch)
        x = conv1(halo.inputs(1, features), halo.graph(1)).relu()
        x = conv2(halo.inputs(2, x), halo.graph(2))
        halo.finish()
    """

    def __init__(self, minibatch: SampledMinibatch) -> None:
        if not has_halo(minibatch):
            raise TypeError(
                f"a {type(minibatch).__name__} has no halo nodes; loaders with historical embeddings make "
                f"minibatches that do"
            )
        batch: Any = minibatch
        # A `pyg_batchgnn.history.HistoricalPass`: own rows are noted, cached ones returned.
        self._minibatch, self._rows = minibatch, batch.begin_pass()

    def graph(self, layer: int) -> HaloGraph:
        """Returns the edges of a layer, without those from halo nodes that have no row."""
        batch, rows = self._minibatch, self._rows
        in_edges = rows.in_edges(layer)
        return HaloGraph(
            in_edges,
            num_sources=rows.own_rows(layer) + rows.num_cached(layer),
            node=batch.node[: in_edges.num_targets],
            key=ops.dropout_key(batch.seed, batch.epoch, batch.key, layer),
        )

    def inputs(self, layer: int, x: Rows) -> Rows:
        """Returns the input of a layer: the own rows ``x``, then cached rows of halo nodes; int8
        codes stay. ``x``: the result of the layer before, or features for layer 1 (`RowView`)."""
        rows = self._rows
        if x.size(0) != rows.own_rows(layer):
            raise ValueError(
                f"layer {layer} reads {rows.own_rows(layer)} own rows, but {x.size(0)} were given; call the "
                f"layers in order, each with the result of the one before"
            )
        table, row = table_and_row(x)
        rows.note(layer, table, row)
        cached = rows.cached(layer)
        if cached is None:
            return x
        own = ops.as_stored(table)
        own = own if row is None else ops.gather_rows(own, row)
        return ops.rows_like(table, torch.cat([own, ops.as_stored(cached).to(own.dtype)]))

    def finish(self) -> None:
        """Ends the pass: sends the rows that other ranks cache."""
        self._rows.push()
