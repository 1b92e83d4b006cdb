"""What layers read: the rows and edges of one layer, and a convolution's arguments in one form.

One CSC by destination holds every layer of a minibatch. Layer l of L, counted from 1 nearest the
input, takes a prefix of its rows and edges (`LayerHops`). In an induced subgraph every layer
takes all.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias, TypeGuard, cast
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from pyg_batchgnn import ops
from pyg_batchgnn.types import LayerHops, Relation, SampledMinibatch


@dataclass(frozen=True, eq=False)
class LayerRows:
    """The nodes of one type that a layer reads and computes."""

    num_targets: int  # D, the number of rows that the layer computes
    num_sources: int  # N >= D, the number of rows that it reads
    node: Tensor | None = None  # [D] int64, the ids of the rows for dropout; None: 0 to D - 1
    key: int | None = None  # the key of the dropout after the layer; None if each call draws one

    def dropout_key(self) -> int:
        return ops.drawn_key() if self.key is None else self.key


@dataclass(frozen=True, eq=False)
class LayerGraph:
    """The in-edges of the targets of a layer. The targets are also its first sources."""

    # The in-edges of the D targets. ``edge_ids`` are places in the user's order, None if the same.
    in_edges: ops.InEdges
    num_sources: int  # N; N >= D except where sources and targets are nodes of two types
    node: Tensor | None = None  # [D] int64, the ids of the targets for dropout; None: 0 to D - 1
    key: int | None = None  # the key of the dropout of the layer; None if each call draws one
    # [N] the in-edges of each source in the whole graph, for GCN: loops are counted unless the
    # layer replaces them. None if these edges are all that count.
    degree: Tensor | None = None
    # The graph whose degrees normalise the layer; None if it is the layer's own.
    whole: LayerGraph | None = None

    @property
    def indptr(self) -> Tensor:
        """[D + 1] int64, where each target's in-edges begin."""
        return self.in_edges.indptr

    @property
    def indices(self) -> Tensor:
        """[E] int32 or int64, the sources."""
        return self.in_edges.indices

    @property
    def edge(self) -> Tensor | None:
        """[E], the place of each edge in the user's order; None if the same."""
        return self.in_edges.edge_ids

    @property
    def num_targets(self) -> int:
        return self.in_edges.num_targets

    @property
    def num_edges(self) -> int:
        return self.in_edges.num_edges

    @cached_property
    def by_source(self) -> ops.BySource:
        """The edges sorted by source, for the gradient of the layer's input."""
        if self.whole is not None and self.whole.in_edges is self.in_edges:
            return self.whole.by_source
        return ops.transpose(self.indptr, self.indices, self.num_sources)

    def by_source_for(self, x: Tensor) -> ops.BySource | tuple[()]:
        """Returns `by_source` if the gradient of ``x`` needs it, else ()."""
        return self.by_source if x.requires_grad and torch.is_grad_enabled() else ()

    @cached_property
    def targets(self) -> Tensor:
        """[E] int64, the target of each edge."""
        return self.in_edges.targets()

    def dropout_key(self) -> int:
        """Returns the key of the layer's dropout: fixed for a layer of a minibatch, drawn from
        torch's default generator for a whole graph."""
        return ops.drawn_key() if self.key is None else self.key

    def edge_rows(self, attr: Tensor | None, columns: int | None, dtype: torch.dtype) -> Tensor:
        """Returns [E, columns], the features of the layer's edges in its order. ``attr``: of all
        edges of the minibatch, or in the user's order. ``columns``: None for any number."""
        edges = self.num_edges
        if attr is None:
            raise ValueError("the layer reads edge_attr, the features of edges, but it is not given")
        if attr.dim() != 2 or columns not in (None, attr.size(1)):
            raise ValueError(f"edge_attr must be [E, {columns or 'columns'}], got {list(attr.shape)}")
        if attr.size(0) < edges:
            raise ValueError(f"edge_attr has {attr.size(0)} entries, but the layer has {edges} edges")
        return self._in_order(attr).to(dtype)

    def edge_weights(self, weight: Tensor, dtype: torch.dtype) -> Tensor:
        """Returns [E], the weights of the layer's edges in its order. ``weight``: of all edges."""
        edges = (self.whole or self).num_edges
        if weight.dim() != 1 or weight.numel() != edges:
            raise ValueError(f"edge_weight must be [{edges}], one entry per edge, got {list(weight.shape)}")
        return self._in_order(weight).to(dtype)

    def _in_order(self, values: Tensor) -> Tensor:
        return values[: self.num_edges] if self.edge is None else values.index_select(0, self.edge)


@dataclass(frozen=True, eq=False)
class HaloGraph(LayerGraph):
    """The in-edges of a layer that reads rows of halo nodes from caches. Halo nodes have no
    in-edges in the minibatch, so that their degrees are unknown."""


#: The rows that a layer computes, with the ids and the key of their dropout.
Targets: TypeAlias = LayerRows | LayerGraph

# Layers of minibatches ############################################################################


def is_sampled(edges: Any) -> TypeGuard[SampledMinibatch]:
    """Returns whether ``edges`` are a minibatch of one node type and one relation."""
    return isinstance(edges, SampledMinibatch) and edges.has_one_type


def is_typed(edges: Any) -> TypeGuard[SampledMinibatch]:
    """Returns whether ``edges`` are a minibatch, whose types and relations can be named."""
    return isinstance(edges, SampledMinibatch)


def has_halo(minibatch: Any) -> bool:
    """Returns whether a minibatch is one with historical embeddings."""
    return hasattr(minibatch, "begin_pass")


_Stamp: TypeAlias = tuple[tuple[int, int], tuple[int, int]]
#: The layers of each minibatch by relation, with the stamp of the edges that they were made of.
_layers: WeakKeyDictionary[SampledMinibatch, dict[Relation | None, tuple[_Stamp, dict[int, LayerGraph]]]] = (
    WeakKeyDictionary()
)


def layer_graph(minibatch: SampledMinibatch, layer: int, relation: Relation | None = None) -> LayerGraph:
    """Returns the edges of a layer of a minibatch: the same object until the minibatch is changed.

    Args:
        layer: 1 is nearest the input.
        relation: the relation of the edges; None if there is only one.
    """
    if not isinstance(minibatch, SampledMinibatch):
        raise TypeError(
            f"expected a minibatch, got {type(minibatch).__name__}; a loader with export='native' yields "
            "minibatches"
        )
    if relation is None and not minibatch.has_one_type:
        raise TypeError(
            f"the minibatch has the relations {list(minibatch.schema.relations)}, but the layer takes "
            "one; use pyg_batchgnn.nn.HeteroConv"
        )
    number = 0 if relation is None else minibatch.schema.relation_number(relation)
    edges = minibatch.edges[number]
    stamp = _stamp(edges.indptr), _stamp(edges.indices)
    of_minibatch = _layers.setdefault(minibatch, {})
    known, made = of_minibatch.get(relation, (None, {}))
    if known != stamp:
        made = {}
        of_minibatch[relation] = (stamp, made)
    if layer not in made:
        made[layer] = _layer_graph(minibatch, number, layer, relation)
    return made[layer]


def _stamp(values: Tensor) -> tuple[int, int]:
    """Returns a pair that changes when a tensor is replaced or torch writes to it."""
    return id(values), 0 if values.is_inference() else values._version


def _layer_graph(
    minibatch: SampledMinibatch, number: int, layer: int, relation: Relation | None
) -> LayerGraph:
    if has_halo(minibatch):
        raise ValueError(
            "what this minibatch's layers read of halo nodes depends on caches: take their edges and inputs "
            "from HaloPass(minibatch), or call a native model, which does"
        )
    schema, edges = minibatch.schema, minibatch.edges[number]
    sources, targets = (minibatch.nodes[ends[number]] for ends in (schema.source_types, schema.target_types))
    key = _dropout_key(minibatch, layer, relation)
    whole = None if layer == 1 else layer_graph(minibatch, 1, relation)
    prefix = LayerHops.of(minibatch.num_layers, layer)
    if prefix.hops is None and whole is not None:
        return replace(whole, key=key, whole=whole)
    num_targets = prefix.targets(targets.nodes_per_hop)
    num_edges = prefix.edges(edges.edges_per_hop, edges.num_edges)
    if edges.indptr.numel() <= num_targets or edges.num_edges < num_edges:
        raise ValueError(
            f"layer {layer} has {num_targets} targets and {num_edges} edges by the minibatch's counts, but "
            f"indptr has {edges.indptr.numel()} entries and indices {edges.num_edges}"
        )
    num_sources = prefix.sources(sources.nodes_per_hop)
    in_edges = ops.InEdges(ops.prefix(edges.indptr, num_targets + 1), ops.prefix(edges.indices, num_edges))
    in_edges.check(num_sources=num_sources)
    in_edges.note_checked(num_sources, of_graph=False)
    return LayerGraph(
        in_edges,
        num_sources=num_sources,
        node=dropout_node(targets.node, targets.example, num_targets),
        key=key,
        whole=whole,
    )


def layer_rows(minibatch: SampledMinibatch, layer: int, name: str) -> LayerRows:
    """Returns the nodes of a type that a layer reads and computes. ``layer``: from 1 on, or 0 for a
    layer below the first, which computes all nodes."""
    nodes = minibatch.nodes_of(name)
    count = sources = nodes.node.numel()
    if layer != 0:
        prefix = LayerHops.of(minibatch.num_layers, layer)
        count, sources = prefix.targets(nodes.nodes_per_hop), prefix.sources(nodes.nodes_per_hop)
    node = dropout_node(nodes.node, nodes.example, count)
    return LayerRows(count, sources, node, _dropout_key(minibatch, layer, (name,)))


def all_nodes(minibatch: SampledMinibatch) -> LayerGraph:
    """Returns a layer below the first: all nodes are its targets, and it has no edges."""
    nodes = minibatch.node.numel()
    return LayerGraph(
        ops.InEdges(torch.zeros(nodes + 1, dtype=torch.int64), minibatch.indices[:0]),
        num_sources=nodes,
        node=dropout_node(minibatch.node, minibatch.example, nodes),
        key=_dropout_key(minibatch, 0, None),
    )


def dropout_node(node: Tensor, example: Tensor | None, rows: int | None = None) -> Tensor:
    """Returns [rows] int64, the ids by which dropout of rows is keyed: original node ids, in
    disjoint sampling folded with ``example``, so that copies of a node drop other elements."""
    return node[:rows] if example is None else ops.fold_key(node[:rows], example[:rows])


def _dropout_key(minibatch: SampledMinibatch, layer: int, names: tuple[str, ...] | None) -> int:
    """Returns the key of a layer's dropout. ``names``: of the node type or relation that it is for;
    ignored in a graph of one type and one relation."""
    key = ops.dropout_key(minibatch.seed, minibatch.epoch, minibatch.key, layer)
    return key if names is None or minibatch.schema.is_plain else named_key(key, names)


def named_key(key: int, names: tuple[str, ...]) -> int:
    """Folds the names of a node type or a relation into a key of dropout."""
    return ops.to_signed(ops.fold_key(key & _WORD, _digest(names)))


_WORD = (1 << 64) - 1
_digest = functools.lru_cache(maxsize=4096)(ops.names_key)


# Whole graphs #####################################################################################

#: By edge_index: its version and sizes when it was sorted, the sums of its contents, the graph.
_whole: WeakTensorKeyDictionary = WeakTensorKeyDictionary()


def whole_graph(edge_index: Tensor, num_sources: int, num_targets: int) -> LayerGraph:
    """Returns a whole graph from edges in any order. They are sorted once, until the tensor is
    modified: writes of torch change its version, other writes (``.data``, NumPy, DLPack) the sums
    of its contents.

    Args:
        edge_index: [2, E] int64 (or int32), sources above targets, checked here.

    Raises:
        TypeError: ``edge_index`` is not a dense integer tensor.
        ValueError, IndexError: it has another shape, or it names nodes that do not exist.
    """
    if not isinstance(edge_index, Tensor) or edge_index.layout != torch.strided:
        kind = edge_index.layout if isinstance(edge_index, Tensor) else type(edge_index).__name__
        raise TypeError(
            f"edges must be a [2, E] tensor or a minibatch, got {kind}; for a sparse matrix use "
            f"torch_geometric.utils.to_edge_index(adj_t), for a SparseTensor torch.stack(adj_t.t().coo()[:2])"
        )
    if type(edge_index) is not Tensor:  # PyG's EdgeIndex
        edge_index = edge_index.as_subclass(Tensor)
    if edge_index.dim() != 2 or edge_index.size(0) != 2:
        raise ValueError(f"edge_index must have shape [2, num_edges], got {list(edge_index.shape)}")
    stamp = (None if edge_index.is_inference() else edge_index._version, num_sources, num_targets)
    if stamp[0] is not None and edge_index in _whole:
        known, sums, graph = _whole[edge_index]
        if known == stamp and torch.equal(sums, ops.content_sums(edge_index)):
            return graph
    if edge_index.size(1):
        ops.check_range("edge_index[0]", edge_index[0].contiguous(), num_sources, "sources")
        ops.check_range("edge_index[1]", edge_index[1].contiguous(), num_targets, "targets")
    found = ops.build_csc(edge_index, max(num_sources, num_targets))
    graph = LayerGraph(
        ops.InEdges(ops.prefix(found.indptr, num_targets + 1), found.indices, found.edge_ids), num_sources
    )
    if stamp[0] is not None:
        _whole[edge_index] = (stamp, ops.content_sums(edge_index), graph)
    return graph


@dataclass(frozen=True, eq=False)
class RowView:
    """Rows of a table that are read in place: row i is ``table[row[i]]``.

    >>> RowView(torch.arange(6.0).view(3, 2), torch.tensor([2, 0])).gather().tolist()
    [[4.0, 5.0], [0.0, 1.0]]

    Native first layers take it as input, so that the features of a minibatch are never copied. It
    has no gradient: gather rows that are trained first, ``table[row]``.
    """

    #: [M, F] float32, float64, float16 or bfloat16 on the CPU, columns contiguous, also memory-
    #: mapped. Or a `QuantizedTensor`, of which layers read the codes.
    table: Tensor
    row: Tensor  # [N] int32 or int64 rows of ``table``, checked here

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
    """Returns features ``x`` [N_t, F] by node type that has some; `RowView`s are read in place."""
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
        """Returns ``x``, then cached rows of halo nodes; int8 codes stay. ``x``: [own rows, F]
        of the layer before, or features in layer 1. Raises ValueError for another row count."""
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
