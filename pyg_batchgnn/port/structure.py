"""The nodes and edges that a call of a captured model is about, and the prefixes of them.

A graph of one type has one type and one relation, whose names are None.
"""

from __future__ import annotations

import copy
import math
import os
import tempfile
from collections import Counter as Counted
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Protocol, TypeAlias
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from pyg_batchgnn import nn, ops
from pyg_batchgnn.nn import LayerGraph
from pyg_batchgnn.port.recording import Counter, Recording
from pyg_batchgnn.sample import HandedOut, handed_out
from pyg_batchgnn.types import LayerHops, Relation, SampledMinibatch

_WORD = (1 << 64) - 1
FLOATS = (torch.float32, torch.float64, torch.bfloat16)  # the dtypes that native operators compute in
#: The name of a node type, or of a relation; None for the only one.
TypeName: TypeAlias = str | None
RelationName: TypeAlias = Relation | None


@dataclass(frozen=True, eq=False)
class NodesByHop:
    per_hop: list[int]  # the number of nodes of each hop, seeds first
    node: Tensor | None = None  # [N] int64, their ids for dropout; row numbers where None

    def ids(self, rows: int) -> Tensor | None:
        return None if self.node is None else self.node[:rows]


@dataclass(frozen=True)
class SampleKeys:
    """The numbers from which the dropout keys of a sample's layers are made."""

    seed: int
    epoch: int
    minibatch: int  # the key of the minibatch
    #: the name of a type, or the names of a relation, where there are several
    names: tuple[str, ...] | None = None

    def of_layer(self, layer: int) -> int:
        key = ops.dropout_key(self.seed, self.epoch, self.minibatch, layer)
        return key if self.names is None else nn.named_key(key, self.names)


@dataclass(eq=False)
class PrefixEdges:
    """The edges of one relation in a batch, by destination. Each layer takes a prefix (design,
    section 3)."""

    in_edges: ops.InEdges
    of_sources: NodesByHop
    of_targets: NodesByHop
    edges_per_hop: list[int]
    keys: SampleKeys | None = None  # for dropout, if a loader of this process made the sample
    _graphs: dict[tuple[int, int, bool, int | None], LayerGraph] = field(default_factory=dict)

    @property
    def hops(self) -> int:
        return len(self.edges_per_hop)

    def edges(self, hops: int) -> int:
        return LayerHops(hops).edges(self.edges_per_hop, self.in_edges.num_edges)

    def targets(self, hops: int) -> int:
        return LayerHops(hops).targets(self.of_targets.per_hop)

    def sources(self, hops: int) -> int:
        return LayerHops(hops).sources(self.of_sources.per_hop)

    def graph(self, layer: int, hops: int, *, padded: bool, normalised_by: int | None = None) -> LayerGraph:
        """Returns the edges of a layer: the same object for the same arguments. ``layer``: its
        number in the keys of dropout, from 1; 0 draws a key at each call. ``padded``: True for a
        row of each node up to ``hops``, not only of targets. ``normalised_by``: the hops of the
        edges that GCN normalises by; None for ``hops``."""
        place = (layer, hops, padded, normalised_by)
        if place not in self._graphs:
            self._graphs[place] = self._graph(*place)
        return self._graphs[place]

    def _graph(self, layer: int, hops: int, padded: bool, normalised_by: int | None) -> LayerGraph:
        edges = self.edges(hops)
        indptr = self.in_edges.indptr[: self.targets(hops) + 1]
        targets = LayerHops(hops).sources(self.of_targets.per_hop) if padded else self.targets(hops)
        if targets >= indptr.numel():
            rest = indptr.new_full((targets + 1 - indptr.numel(),), edges)
            indptr = torch.cat([indptr, rest])
        keyed = layer > 0 and self.keys is not None
        in_edges = ops.InEdges(indptr, self.in_edges.indices[:edges])
        in_edges.check(num_sources=self.sources(hops))
        in_edges.note_checked(self.sources(hops), of_graph=False)  # operators need not read them again
        return LayerGraph(
            in_edges,
            num_sources=self.sources(hops),
            node=self.of_targets.ids(targets) if keyed else None,
            key=self.keys.of_layer(layer) if keyed and self.keys is not None else None,
            whole=None if normalised_by is None else self.graph(layer, normalised_by, padded=True),
        )


_prefixes: WeakKeyDictionary[HandedOut, PrefixEdges] = WeakKeyDictionary()


def known_prefixes(edge_index: Tensor) -> PrefixEdges | None:
    """Returns the edges of a batch, if a loader here made it and nobody has changed it, or None."""
    sample = handed_out(edge_index)
    if sample is None:
        return None
    found = _prefixes.get(sample)
    if found is None:
        in_edges = ops.InEdges(sample.indptr, sample.indices)
        keys = SampleKeys(sample.seed, sample.epoch, sample.key)
        nodes = NodesByHop(sample.nodes_per_hop, sample.node)
        found = _prefixes[sample] = PrefixEdges(in_edges, nodes, nodes, sample.edges_per_hop, keys)
    return found


def sorted_prefixes(
    edge_index: Tensor, sources: NodesByHop, targets: NodesByHop, edges_per_hop: Sequence[int]
) -> PrefixEdges | None:
    """Returns other edges that have a sample's counts by hop. None if they are not sorted by
    destination, or do not fit the counts."""
    counts = {len(sources.per_hop), len(targets.per_hop)}
    if counts != {len(edges_per_hop) + 1} or sum(edges_per_hop) != edge_index.size(1):
        return None
    whole = nn.whole_graph(edge_index, sum(sources.per_hop), sum(targets.per_hop))
    if whole.edge is not None:
        return None
    found = PrefixEdges(whole.in_edges, sources, targets, list(edges_per_hop))
    for hops in range(1, found.hops + 1):
        edges, expanded = found.edges(hops), found.targets(hops)
        if int(whole.indptr[expanded]) != edges:
            return None
        if edges and ops.extent(whole.indices[:edges])[1] >= found.sources(hops):
            return None
    return found


def layer_edges(edge_index: Tensor, rows: int) -> LayerGraph | None:
    """Returns the edges of one convolution that computes all ``rows`` rows, if they are a loader's,
    or its first hops as PyG's ``trim_to_layer`` takes them; else None."""
    base = edge_index if edge_index._base is None else edge_index._base
    found = known_prefixes(base)
    if found is None or edge_index.data_ptr() != base.data_ptr() or edge_index.stride() != base.stride():
        return None
    if edge_index.dim() != 2 or edge_index.size(0) != 2:
        return None
    for hops in range(found.hops, -1, -1):
        sources = found.sources(hops)
        if found.edges(hops) == edge_index.size(1) and sources <= rows:
            return found.graph(0, hops, padded=True) if rows == sources else None
    return None


class Structure(Protocol):
    """The numbers of nodes of hops 0 to H and of edges of hops 1 to H. If hops are unknown, H is 0
    and all nodes and edges are of hop 0."""

    @property
    def hops(self) -> int: ...

    def counter(self, counter: Counter) -> int:
        """Returns the number of nodes or edges of one hop."""

    def graph(self, relation: RelationName, layer: int, targets: int, edges: int, drops: bool) -> LayerGraph:
        """Returns the edges of a convolution. ``layer``: its number in the keys of dropout, from 1.
        ``targets``: the hops of the nodes to compute. ``edges``: the hops of the edges given to it.
        ``drops``: whether it drops elements in this call."""

    def dropout(self, name: TypeName, layer: int, place: int, rows: int) -> tuple[int, Tensor | None]:
        """Returns the key of a dropout, and the ids of its rows (None: row numbers). ``layer``: the
        number of convolutions before it. ``place``: the number of dropouts since then."""


def prefix(structure: Structure, kind: str, name: Any, hops: int) -> int:
    return sum(structure.counter((kind, name, hop)) for hop in range(hops + 1))


class DrawnKey:
    """A number that is drawn from torch's generator once per training pass, if something drops. It
    is folded into the keys of a sample, so that each pass drops other elements."""

    def __init__(self) -> None:
        self._drawn: int | None = None

    def fold(self, key: int) -> int:
        if self._drawn is None:
            self._drawn = ops.drawn_key()
        return ops.to_signed(ops.fold_key(key & _WORD, self._drawn & _WORD))


@dataclass(frozen=True)
class UnsampledGraph:
    """A graph without known hops. Keys of dropout are drawn from torch's generator."""

    edge_index: Mapping[RelationName, Tensor]  # [2, E] by relation
    nodes: Mapping[TypeName, int]  # the number of nodes of each type
    hops: ClassVar[int] = 0

    def counter(self, counter: Counter) -> int:
        kind, name, _ = counter
        return self.nodes[name] if kind == "nodes" else self.edge_index[name].size(1)

    def graph(self, relation: RelationName, layer: int, targets: int, edges: int, drops: bool) -> LayerGraph:
        del layer, targets, edges, drops
        source, _, target = relation or (None, None, None)
        return nn.whole_graph(self.edge_index[relation], self.nodes[source], self.nodes[target])

    def dropout(self, name: TypeName, layer: int, place: int, rows: int) -> tuple[int, Tensor | None]:
        del name, layer, place, rows
        return ops.drawn_key(), None


@dataclass(frozen=True)
class SampledBatch:
    relations: Mapping[RelationName, PrefixEdges]  # the edges of each relation
    nodes: Mapping[TypeName, NodesByHop]  # the nodes of each type
    hops: int
    keys: SampleKeys | None  # what dropout is keyed by, if a loader of this process made the sample
    drawn: DrawnKey  # is added to the keys

    @classmethod
    def of_one_type(cls, edges: PrefixEdges) -> SampledBatch:
        return cls({None: edges}, {None: edges.of_targets}, edges.hops, edges.keys, DrawnKey())

    def counter(self, counter: Counter) -> int:
        kind, name, hop = counter
        if kind == "nodes":
            return self.nodes[name].per_hop[hop]
        return 0 if hop == 0 else self.relations[name].edges_per_hop[hop - 1]

    def graph(self, relation: RelationName, layer: int, targets: int, edges: int, drops: bool) -> LayerGraph:
        padded = targets >= edges
        hops = edges if padded else targets + 1
        of_all = None if padded else edges
        graph = self.relations[relation].graph(layer, hops, padded=padded, normalised_by=of_all)
        return replace(graph, key=self.drawn.fold(graph.key)) if drops and graph.key is not None else graph

    def dropout(self, name: TypeName, layer: int, place: int, rows: int) -> tuple[int, Tensor | None]:
        if self.keys is None:
            return ops.drawn_key(), None
        keys = self.keys if name is None else replace(self.keys, names=(name,))
        key = self.drawn.fold(keys.of_layer(layer))
        key = key if place == 0 else ops.to_signed(ops.fold_key(key & _WORD, place))
        return key, self.nodes[name].ids(rows)


@dataclass(frozen=True)
class InducedBatch:
    """A native minibatch that is an induced subgraph, whose edges have no hops."""

    minibatch: SampledMinibatch
    drawn: DrawnKey
    hops: ClassVar[int] = 0

    def counter(self, counter: Counter) -> int:
        kind, name, _ = counter
        if kind == "nodes":
            return (self.minibatch.nodes[0] if name is None else self.minibatch.nodes_of(name)).node.numel()
        return (self.minibatch.edges[0] if name is None else self.minibatch.edges_of(name)).num_edges

    def graph(self, relation: RelationName, layer: int, targets: int, edges: int, drops: bool) -> LayerGraph:
        del targets, edges
        graph = nn.layer_graph(self.minibatch, layer, relation)
        return replace(graph, key=self.drawn.fold(graph.dropout_key())) if drops else graph

    def dropout(self, name: TypeName, layer: int, place: int, rows: int) -> tuple[int, Tensor | None]:
        del rows
        own = self.minibatch.schema.node_types[0] if name is None else name
        of_layer = nn.layer_rows(self.minibatch, max(1, layer), own)
        key = self.drawn.fold(of_layer.dropout_key())
        place = place if layer else -1 - place
        return key if place == 0 else ops.to_signed(ops.fold_key(key & _WORD, place & _WORD)), of_layer.node


def sampled_batch(
    edges: Mapping[Any, Tensor],
    num_nodes: Mapping[Any, int],
    nodes_per_hop: Mapping[Any, Any],
    edges_per_hop: Mapping[Any, Any],
) -> SampledBatch | None:
    """Returns a batch from its counts by hop, of nodes and edges; None if they do not fit."""
    counts = (*nodes_per_hop.values(), *edges_per_hop.values())
    if not all(isinstance(one, list) and {*map(type, one)} <= {int} for one in counts):
        return None
    if any(sum(counts) != num_nodes[name] for name, counts in nodes_per_hop.items()):
        return None
    by_hop = {name: NodesByHop(counts) for name, counts in nodes_per_hop.items()}
    found: dict[RelationName, PrefixEdges] = {}
    for relation, counts in edges_per_hop.items():
        source, _, target = relation or (None, None, None)
        made = known_prefixes(edges[relation]) if relation is None else None
        if made is None or made.of_targets.per_hop != nodes_per_hop[None] or made.edges_per_hop != counts:
            made = sorted_prefixes(edges[relation], by_hop[source], by_hop[target], counts)
        if made is None:
            return None
        found[relation] = made
    if None in found:
        return SampledBatch.of_one_type(found[None])
    hops = {one.hops for one in found.values()}
    return SampledBatch(found, by_hop, hops.pop(), None, DrawnKey()) if len(hops) == 1 else None


# Nodes that a batch holds several times. Disjoint samples copy a node for each seed that reaches
# it. What a model computes row by row from attributes of the node alone is the same for all copies.
# It is computed for each distinct node once, and spread where copies begin to differ.

#: Fewer copies for each distinct node do not pay for finding and spreading them.
LEAST_COPIES = 1.2
_CHUNK = 1 << 18  # bytes of rows that are compared at a time, so that they stay in a cache
_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}  # by the bytes of an element


@dataclass(frozen=True, eq=False)
class CopiedNodes:
    """The distinct nodes of one type in a batch, in the order of their first copies."""

    first: Tensor  # [D] int64, the place of the first copy of each, ascending
    row: Tensor  # [N] int64, which of them each node of the batch is
    per_hop: list[int]  # how many are first met at each hop

    @classmethod
    def of(cls, node: Tensor, per_hop: list[int], least: float) -> CopiedNodes | None:
        """Finds the distinct nodes of [N] ids, or the distinct numbers of another vector; None for
        less than ``least`` copies on average."""
        node = node.contiguous()
        low, high = ops.extent(node)
        if not node.numel():
            return None
        if low >= 0 and high < 64 * node.numel():  # a bit for each
            distinct, (place,) = ops.unique_nodes([node], high + 1)
        else:
            distinct, place = node.unique(return_inverse=True)
        if node.numel() < least * distinct.numel():
            return None
        first = torch.full_like(distinct, node.numel())
        first.scatter_reduce_(0, place, torch.arange(node.numel()), "amin")
        first, order = first.sort()
        ends = torch.searchsorted(first, torch.tensor([0, *per_hop]).cumsum(0))
        rank = torch.empty_like(order).scatter_(0, order, torch.arange(order.numel()))
        return cls(first, rank[place], ends.diff().tolist())

    def rows_of(self, value: Any) -> Any:
        """Returns an attribute's rows of the distinct nodes. None if the rows of two copies differ,
        or the attribute takes a gradient."""
        if isinstance(value, nn.RowView):
            row = self.rows_of(value.row)
            return None if row is None else nn.RowView(value.table, row)
        if type(value) is not Tensor or value.requires_grad or value.dtype.itemsize not in _BITS:
            return None
        rows = ops.gather_rows(value, self.first)
        bits, of_rows = _bits(value), _bits(rows)
        chunk = max(1, _CHUNK // max(1, bits[:1].nbytes))
        for begin in range(0, value.size(0), chunk):
            part = bits[begin : begin + chunk]
            if not torch.equal(part, ops.gather_rows(of_rows, self.row[begin : begin + len(part)])):
                return None
        return rows

    def spread(self, rows: Any, count: int) -> Any:
        """Returns the rows of the batch's first ``count`` nodes from rows of distinct nodes: a
        view, or a copy if they have a gradient."""
        row = ops.prefix(self.row, count)
        if isinstance(rows, nn.RowView):
            return nn.RowView(rows.table, rows.row[row])
        takes_gradient = torch.is_grad_enabled() and rows.requires_grad
        view = rows.dtype in FLOATS and rows.dim() == 2 and not takes_gradient
        return nn.RowView(rows, row) if view else looked_up(rows, row)


def _bits(value: Tensor) -> Tensor:
    return value.contiguous().view(_BITS[value.dtype.itemsize])


def looked_up(table: Tensor, row: Tensor) -> Tensor:
    """Returns ``table[row]``. With a gradient each row is a sum over one in-edge, as in layers."""
    takes_gradient = torch.is_grad_enabled() and table.requires_grad
    if table.dtype not in FLOATS or row.dtype is not torch.int64 or not takes_gradient:
        return table.index_select(0, row)
    flat = table.flatten(1) if table.dim() > 1 else table[:, None]
    return ops.aggregate(flat, torch.arange(row.numel() + 1), row).view(row.numel(), *table.shape[1:])


class Copies:
    """The nodes that a batch holds several times. ``ids``: original ids by type, if known.
    ``least``: copies per distinct node, on average, from which on rows are computed once."""

    def __init__(self, batch: Structure, ids: Mapping[TypeName, Any], least: float) -> None:
        self._batch, self._ids, self._least = batch, ids, least
        self._nodes: dict[TypeName, CopiedNodes | None] = {}
        self._rows: dict[tuple[int, TypeName], Any] = {}

    def nodes(self, name: TypeName) -> CopiedNodes | None:
        if name not in self._nodes:
            ids: Any = self._ids.get(name)
            per_hop = self._per_hop(name)
            fits = isinstance(ids, Tensor) and ids.dtype is torch.int64 and ids.shape == (sum(per_hop),)
            fits = fits and not isinstance(self._batch, InducedBatch) and not (ids < 0).any()
            self._nodes[name] = CopiedNodes.of(ids, per_hop, self._least) if fits else None
        return self._nodes[name]

    def rows(self, recording: Recording, shared: frozenset[int], inputs: Any) -> dict[int, Any]:
        """Returns by number the distinct nodes' rows of inputs with copies, None if they differ."""
        found: dict[int, Any] = {}
        for number, value in zip(recording.inputs, inputs, strict=True):
            axis: Any = recording.axes[number]
            if number not in shared or (nodes := self.nodes(axis.name)) is None:
                continue
            place = id(value), axis.name
            if place not in self._rows:
                whole = value.size(0) == nodes.row.size(0)
                self._rows[place] = nodes.rows_of(value) if whole else None
            found[number] = self._rows[place]
        return found

    def distinct(self, nodes: Mapping[TypeName, CopiedNodes | None] | None = None) -> Structure:
        """Returns the batch in which types with copies have their distinct nodes alone."""
        batch: Any = self._batch

        def of_type(name: TypeName, known: Any) -> Any:
            one = (self._nodes if nodes is None else nodes).get(name)
            if one is None or isinstance(known, int):
                return known if one is None else len(one.first)
            return NodesByHop(one.per_hop, None if known.node is None else known.node[one.first])

        return replace(batch, nodes={name: of_type(name, known) for name, known in batch.nodes.items()})

    def of_values(self, name: TypeName, value: Any) -> CopiedNodes | None:
        """Returns the distinct numbers of a vector over the nodes of the first hops, if few."""
        fits = value.dim() == 1 and value.dtype is torch.int64 and not isinstance(self._batch, InducedBatch)
        return CopiedNodes.of(value, self._per_hop(name), self._least) if fits else None

    def _per_hop(self, name: TypeName) -> list[int]:
        return [self._batch.counter(("nodes", name, hop)) for hop in range(self._batch.hops + 1)]

    def renewed(self, rows: Mapping[int, Any], known: Known) -> tuple[Copies, dict[int, Any]]:
        """Returns the copies as if the nodes that are not known were the distinct ones, and their
        attributes. ``rows``: the attributes of all distinct nodes."""
        made, new, axes = copy.copy(self), dict[int, Any](), known.program.axes
        made._nodes = dict(self._nodes)
        for name in {axes[number].name for number in rows}:
            own = {number: one for number, one in rows.items() if axes[number].name == name}
            nodes: Any = self._nodes[name]
            made._nodes[name], of_type = known.of(name).renew(self._ids[name], nodes, own)
            new |= of_type
        return made, new


# Rows of nodes that later batches need, too. They lie in tables beside the attributes of which they
# were made, so that bits tell there as well whether a node is the same.


@dataclass
class KnownNodes:
    """The nodes of a type whose rows were computed in earlier batches."""

    memo: Memo
    name: TypeName
    #: by id, the row of a node in the tables; -1 of others
    place: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.int64))
    count: int = 0  # the rows in use
    tables: dict[int, Tensor] = field(default_factory=dict)  # by value
    new: Tensor | None = None  # the rows that the batch of now computes; without any no step runs

    def renew(
        self, ids: Tensor, nodes: CopiedNodes, inputs: Mapping[int, Any]
    ) -> tuple[CopiedNodes, dict[int, Tensor]]:
        """Finds the nodes that are not known with these attributes. Returns them in the place of
        the distinct nodes, each copy with its row of the tables, and their attributes."""
        views = {number: one for number, one in inputs.items() if isinstance(one, nn.RowView)}
        values = {**inputs, **{number: one.gather() for number, one in views.items()}}
        distinct = ids[nodes.first]
        if (more := int(distinct.max()) + 1) > len(self.place):
            more = max(more, 2 * len(self.place)) - len(self.place)
            self.place = torch.cat([self.place, self.place.new_full((more,), -1)])
        row = self.place[distinct]
        is_new = row < 0
        old = (~is_new).nonzero().view(-1)
        for number, value in values.items() if len(old) else ():
            both = (self.tables[number], row[old]), (value, old)
            known, now = (_bits(ops.gather_rows(*one)) for one in both)
            if not torch.equal(known, now):
                is_new[old] |= (known != now).view(len(old), -1).any(dim=1)
        unplaced = row < 0
        count = self.count + int(unplaced.sum())
        row[unplaced] = torch.arange(self.count, count)
        self.place[distinct], self.count = row, count
        self.memo.computed[self.name] += int(is_new.sum())
        new = is_new.nonzero().view(-1)
        self.new = row[new]
        rows = {number: one[new] for number, one in values.items()}
        for number, one in rows.items():
            self.keep(number, one)
        per_hop = [len(new), *[0] * (len(nodes.per_hop) - 1)]
        return CopiedNodes(nodes.first[new], row[nodes.row], per_hop), rows

    def keep(self, number: int, rows: Tensor) -> Tensor:
        """Writes the new rows of a value, and returns its table."""
        table = self.tables.get(number, rows[:0])
        if len(table) < self.count:
            table = self.tables[number] = self.memo.grown(table, max(self.count, 2 * len(table)))
        table[self.new] = rows
        return table


@dataclass
class Known:
    """The rows that a program computed in earlier batches, as long as ``state`` is the same."""

    memo: Memo
    program: Any
    state: Any  # of the model, and of what else the program reads
    alive: Any  # the objects whose numbers are in it
    types: dict[TypeName, KnownNodes] = field(default_factory=dict)

    def of(self, name: TypeName) -> KnownNodes:
        return self.types.setdefault(name, KnownNodes(self.memo, name))

    def has(self, axis: Any) -> bool:
        """Returns whether earlier batches have computed the rows of all nodes of a type."""
        new = self.of(axis.name).new
        return new is not None and not len(new)


class Memo:
    """The rows that programs computed: up to ``budget`` bytes of tables in memory, the others in
    files of the folder ``scratch``, which have no name."""

    def __init__(self, budget: int, scratch: Any) -> None:
        self._budget, self._scratch = budget, scratch
        self._held = WeakTensorKeyDictionary()  # the bytes of each table in memory
        self.known: dict[Any, Known] = {}  # by program
        self.computed = Counted[TypeName]()  # how many rows there were to compute

    def of(self, program: Any, state: Any, alive: Any) -> Known:
        """Returns what is known in this state; a batch that fails takes it away."""
        found = self.known.pop(program, None)
        return found if found and found.state == state else Known(self, program, state, alive)

    def grown(self, table: Tensor, rows: int) -> Tensor:
        """Returns a table [rows, ...] that begins with the rows of another one. Raises OSError if
        it fits neither memory nor the disk."""
        shape, dtype = (rows, *table.shape[1:]), table.dtype
        size = math.prod(shape) * dtype.itemsize
        if sum(self._held.values()) + size <= self._budget:
            made = torch.empty(shape, dtype=dtype)
            self._held[made] = size
        else:
            with tempfile.NamedTemporaryFile(dir=self._scratch) as file:
                os.posix_fallocate(file.fileno(), 0, max(1, size))  # else a full disk is a signal
                made = torch.from_file(file.name, True, math.prod(shape), dtype=dtype).view(shape)
        made[: len(table)] = table
        return made
