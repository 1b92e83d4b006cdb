"""A minibatch with the attributes of its nodes and edges."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData
from torch_geometric.sampler.base import SubgraphType

from pyg_batchgnn import ops
from pyg_batchgnn.sample.negatives import NegativeMode
from pyg_batchgnn.sample.pyg_output import LinkInfo, Names, PygForm, SampleInfo, SeedInfo
from pyg_batchgnn.types import (
    EDGE_FEATURES,
    FEATURES,
    LABELS,
    Group,
    LayerHops,
    Relation,
    SampledEdges,
    SampledMinibatch,
    TripletLinks,
)

if TYPE_CHECKING:
    from pyg_batchgnn.sample.tokens import TokenTimes


class Placement(enum.Enum):
    """What a row of a minibatch's attribute tables belongs to."""

    IN_PLACE = "in_place"  # a node of the graph: the tables are the user's own
    BLOCK = "block"  # a distinct node of the fetch group: its minibatches share the tables
    MINIBATCH = "minibatch"  # a node or an edge of this minibatch alone


@dataclass(frozen=True, eq=False)
class AttributeRows:
    """The attributes of a minibatch's nodes or edges: row ``row[i]`` of each table is node i's."""

    tables: Mapping[str, Tensor]  # attributes by name, [rows, ...] each
    # [n] int64, the row of each node or edge in every table; None if they are the rows in order.
    row: Tensor | None
    placement: Placement  # what one row belongs to

    @classmethod
    def in_place(cls, tables: Mapping[str, Tensor], ids: Tensor) -> AttributeRows:
        """Returns attributes that are read at ``ids`` [n] int64 from the graph's whole tables."""
        return cls(tables, ids, Placement.IN_PLACE)

    def gather(self, name: str, rows: int | None = None) -> Tensor:
        """Copies attribute ``name`` of the first ``rows`` nodes or edges, of all by default. int8
        codes are decoded. Raises ValueError if the table lacks one of the rows."""
        table = self.tables[name]
        on_cpu = "cpu" in {one.device.type for one in (table, self.row) if one is not None}
        if on_cpu:
            ops.check_dense(f"attribute {name!r}", table)
        if on_cpu and table.dim() == 0:
            raise ValueError(f"attribute {name!r} is one number; give a table with a row per node or edge")
        if self.row is None:
            own = table[:rows]
            return own.dequantize() if isinstance(own, ops.QuantizedTensor) else own.clone()
        if not on_cpu:
            return table.index_select(0, self.row[:rows])
        ops.check_dense("row", self.row)
        sizes = {one: list(other.shape[:1]) for one, other in self.tables.items()}
        if self.placement is Placement.BLOCK and any(size != [len(table)] for size in sizes.values()):
            raise ValueError(f"the tables of one block have different numbers of rows, {sizes}")
        index = self.row[:rows]
        try:
            return ops.gather_rows(table, index) if _is_plain(table, index) else table.index_select(0, index)
        except (IndexError, RuntimeError) as error:
            raise ValueError(
                f"attribute {name!r} has {len(table)} rows, but rows are read that it has not ({error}); "
                "give a table with as many rows as the others"
            ) from error

    @property
    def nbytes(self) -> int:
        """The bytes of the minibatch's own tensors, without tables that it shares with others."""
        if self.placement is Placement.IN_PLACE:
            return 0
        if self.placement is Placement.BLOCK:
            return 0 if self.row is None else self.row.nbytes
        return sum(table.nbytes for table in self.tables.values())


def _is_plain(table: Tensor, index: Tensor) -> bool:
    """Returns whether the package's kernel, which reuses memory, should copy the rows. For rows of
    several numbers it is 2 to 7 times as fast as torch's. For single numbers it is half as fast on
    one thread, but torch has only one there, and no wide unsigned integers."""
    stored = ops.as_stored(table)
    is_wide = stored.itemsize > 1 and not stored.dtype.is_signed
    return (
        type(table) in (Tensor, ops.QuantizedTensor)
        and (table.dim() > 1 or torch.get_num_threads() >= 4 or is_wide)
        and len(table) > 0
        and stored[0].is_contiguous()
        and index.is_contiguous()
        and index.dtype in ops.INTEGERS
        and not (table.requires_grad or table.is_conj() or table.is_neg() or table.is_quantized)
    )


#: Rows of all types, or of the only type that is meant.
TypedRows = Tensor | Mapping[str, Tensor]


@dataclass(frozen=True, eq=False)
class MinibatchLayer:
    """One layer of a minibatch with the edges of one relation, for convolutions that are not
    native.

    ``conv(layer.rows(x), layer.edge_index)`` computes the layer's targets, the sources of the next
    layer.
    """

    relation: Relation  # the names of the relation
    num_sources: int  # N, the number of rows that the layer reads
    num_targets: int  # D, the number of rows that it computes
    edge_index: Tensor  # [2, E] int64, local sources above local targets, by target
    # sources, targets, edges: the attributes of nodes and edges; None if the minibatch has none.
    sources: AttributeRows | None
    targets: AttributeRows | None
    edges: AttributeRows | None

    def rows(self, x: TypedRows | None = None) -> tuple[Tensor, Tensor]:
        """Returns the rows of the sources, [N, ...], and of the targets, [D, ...].

        Args:
            x: the result of the layer before, or a dict of results by node type; None copies the
                nodes' features.

        Raises:
            KeyError: there are no rows of a type.
            ValueError: there are fewer rows than the layer reads.
        """
        if x is None:
            return self.attribute(FEATURES)
        if not isinstance(x, Mapping):
            x = dict.fromkeys((self.relation[0], self.relation[2]), x)
        found = []
        for name, count in ((self.relation[0], self.num_sources), (self.relation[2], self.num_targets)):
            if name not in x:
                raise KeyError(f"relation {self.relation} reads rows of {name!r}, but x has {sorted(x)}")
            if len(x[name]) < count:
                raise ValueError(
                    f"x has {len(x[name])} rows of {name!r}, but the layer reads {count}; give the result of "
                    f"the layer before, or the rows of all nodes of the minibatch"
                )
            found.append(x[name][:count])
        return found[0], found[1]

    def attribute(self, name: str) -> tuple[Tensor, Tensor]:
        """Returns copies of an attribute of the sources and of the targets. Raises KeyError if one
        of the two node types lacks it."""
        source, _, target = self.relation
        return (
            _gathered(self.sources, name, self.num_sources, f"nodes of {source!r}"),
            _gathered(self.targets, name, self.num_targets, f"nodes of {target!r}"),
        )

    def edge_attribute(self, name: str = EDGE_FEATURES) -> Tensor:
        """Returns a copy of an attribute of the edges, [E, ...], in the order of ``edge_index``.
        Raises KeyError if the edges have no such attribute."""
        return _gathered(self.edges, name, self.edge_index.size(1), f"edges of {self.relation}")


@dataclass(frozen=True, eq=False, repr=False)
class Minibatch(SampledMinibatch):
    """A sampled minibatch with the attributes of its nodes and edges, for native layers. Its node
    ids are original ones.

    >>> native = MacrobatchNeighborLoader(data, [10, 5], batch_size=32, export="native")
    >>> batch = next(iter(native))
    >>> batch.attribute("y", batch.batch_size).shape
    torch.Size([32])
    """

    #: the attributes of each group of nodes or edges that has some
    attributes: Mapping[Group, AttributeRows] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        sampled: SampledMinibatch,
        attributes: Mapping[Group, AttributeRows],
        original: Sequence[Tensor] | Tensor | None = None,
    ) -> Minibatch:
        """Returns a sampled minibatch with its attributes.

        Args:
            original: [N_t] int64 by node type, the original ids of its nodes if ``sampled`` has
                internal ones; a tensor alone is for the only type.
        """
        if original is not None:
            sampled = sampled.with_ids([original] if isinstance(original, Tensor) else original)
        return cls(**{name: getattr(sampled, name) for name in _SAMPLED}, attributes=attributes)

    @classmethod
    def in_place(cls, sampled: SampledMinibatch, tables: Mapping[str, Tensor]) -> Minibatch:
        """Returns a minibatch that reads node attributes from whole tables, without a copy."""
        return cls.of(sampled, {sampled.schema.node_groups[0]: AttributeRows.in_place(tables, sampled.node)})

    def with_token_times(self, times: TokenTimes) -> Minibatch:
        """Returns the minibatch with times in its tokens, taken from its attributes."""
        held, schema = self.attributes, self.schema
        tokens = times.put(
            self.tokens,
            self.seed_time,
            lambda number: held[schema.node_groups[number]].gather(times.name),
            lambda number: held[schema.edge_groups[number]].gather(times.name),
        )
        return dataclasses.replace(self, tokens=tokens)

    def attributes_of(self, name: str | Relation) -> AttributeRows:
        """Returns the attributes of the nodes of a type, or of the edges of a relation.

        Raises:
            KeyError: the graph has no such type or relation, or the minibatch has none of its
                attributes.
        """
        schema = self.schema
        group = (
            schema.node_groups[schema.type_number(name)]
            if isinstance(name, str)
            else schema.edge_groups[schema.relation_number(name)]
        )
        if group not in self.attributes:
            held = [one.name for one in self.attributes] or "none"
            raise KeyError(f"the minibatch carries no attributes of {name!r} (it has those of: {held})")
        return self.attributes[group]

    @property
    def row(self) -> Tensor | None:
        """[N] int64, the row of each node in the tables of ``block``; None: row i is node i."""
        rows = self._of_nodes("row", "row")
        return None if rows is None else rows.row

    @property
    def block(self) -> Mapping[str, Tensor]:
        """The tables of node attributes by name. ``placement`` says what a row is: a distinct node
        of the fetch group, or a node of the graph in the user's own tables."""
        return _tables(self._of_nodes("block", "tables"))

    @property
    def placement(self) -> Placement | None:
        """What a row of ``block`` belongs to; None if the minibatch carries no node attributes."""
        rows = self._of_nodes("placement", "placement")
        return None if rows is None else rows.placement

    @property
    def edge_block(self) -> Mapping[str, Tensor]:
        """The edge attributes by name, [E, ...] each, in-place ones copied at each access."""
        self._only_edges("edge_block", "attributes_of(...).tables")
        held = self.attributes.get(self.schema.edge_groups[0])
        tables = _tables(held)
        if held is not None and held.row is not None:
            tables = {name: held.gather(name) for name in tables}
        for name, table in tables.items():
            if len(table) != self.num_edges:
                raise ValueError(
                    f"edge attribute {name!r} has {len(table)} rows, but the minibatch has "
                    f"{self.num_edges} edges"
                )
        return tables

    def attribute(self, name: str, rows: int | None = None, of: str | Relation | None = None) -> Tensor:
        """Copies attribute ``name`` of the first ``rows`` nodes or edges, of all by default.

        ``of``: the node type, or the relation of the edges; not needed if there is one type or
        relation. If nodes and edges both have the name, None means the nodes.

        Raises:
            KeyError: the minibatch carries no such attribute.
            ValueError: the table lacks one of the rows.
        """
        if of is not None:
            return _gathered(self.attributes_of(of), name, rows, f"rows of {of!r}")
        found = self._of_nodes("attribute", f"gather({name!r})")
        if found is None or name not in found.tables:
            of_edges = self._edge_tables()
            if name in of_edges:
                return self.edge_block[name][:rows]
            held = sorted({*self.block, *of_edges}) or "none"
            raise KeyError(f"the minibatch holds no attribute {name!r} (held: {held})")
        held_rows = found.tables[name].shape[:1].numel() if found.row is None else found.row.numel()
        if held_rows != self.num_nodes:
            raise ValueError(
                f"{held_rows} rows of {name!r} came with the {self.num_nodes} nodes of a minibatch"
            )
        return found.gather(name, rows)

    @property
    def x(self) -> Tensor:
        """[N, F], a copy of the features of the nodes."""
        return self._of_only_type(FEATURES)

    @property
    def y(self) -> Tensor:
        """[N, ...], a copy of the labels of the nodes; the first ``batch_size`` are the seeds'.

        ``attribute("y", batch_size)`` copies the labels of the seeds alone.
        """
        return self._of_only_type(LABELS)

    @property
    def edge_attr(self) -> Tensor:
        """[E, ...], a copy of the attributes of the edges."""
        self._only_edges(EDGE_FEATURES, f"attributes_of(...).gather({EDGE_FEATURES!r})")
        tables = self.edge_block
        if EDGE_FEATURES not in tables:
            raise AttributeError(f"the edges of the minibatch have no {EDGE_FEATURES!r} ({sorted(tables)})")
        return tables[EDGE_FEATURES]

    def _of_only_type(self, name: str) -> Tensor:
        self._only_nodes(name, f"attributes_of(...).gather({name!r})")
        try:
            return self.attribute(name)
        except KeyError as error:  # so that hasattr() answers
            raise AttributeError(error.args[0]) from None

    def __getitem__(self, name: object) -> NoReturn:
        raise TypeError(
            f"a native minibatch has no minibatch[{name!r}]; read minibatch.attribute('x', of={name!r}), or "
            f'take PyG\'s batches, by export="pyg" of the loader or minibatch.to_data()'
        )

    def layer(self, number: int, relation: Relation | None = None) -> MinibatchLayer:
        """Returns a layer for convolutions that are not native, such as PyG's and the user's own.

        Args:
            number: the number of the layer; 1 is nearest the input. In an induced subgraph every
                layer has all nodes and edges.
            relation: the relation of the edges; None if there is only one.

        Raises:
            KeyError: the graph has no such relation.
            ValueError: there is no such layer, or there are several relations.
        """
        schema, held = self.schema, self.attributes
        if relation is None and schema.num_relations != 1:
            raise ValueError(
                f"say which relation, minibatch.layer({number}, relation): {list(schema.relations)}"
            )
        at = 0 if relation is None else schema.relation_number(relation)
        prefix, edges = LayerHops.of(self.num_layers, number), self.edges[at]
        source, target = schema.source_types[at], schema.target_types[at]
        targets = prefix.targets(self.nodes[target].nodes_per_hop)
        return MinibatchLayer(
            schema.relations[at],
            num_sources=prefix.sources(self.nodes[source].nodes_per_hop),
            num_targets=targets,
            edge_index=_edge_index(edges, targets, prefix.edges(edges.edges_per_hop, edges.num_edges)),
            sources=held.get(schema.node_groups[source]),
            targets=held.get(schema.node_groups[target]),
            edges=held.get(schema.edge_groups[at]),
        )

    def to_data(self) -> Data | HeteroData:
        """Returns the ``Data`` or ``HeteroData`` that a loader with ``export="pyg"`` makes, with
        copies of the minibatch's attributes, and with ``e_id`` and ``input_id`` if they are
        known."""
        return pyg_batch(self, self.attributes)

    def to_dgl(self) -> list[Any]:
        """Returns one DGL block per layer, the layer nearest the input first.

        The targets of a block are its first sources, as DGL's layers expect. ``dgl.NID`` and
        ``dgl.EID`` are original ids (``dgl.EID`` if edge ids are known). The first block has the
        attributes of its sources, the last one those of its targets, and all blocks those of edges.
        Of an induced subgraph there is a block per hop, each with all edges and with all nodes as
        targets.

        Raises:
            ImportError: DGL is not installed.
        """
        return _dgl_blocks(self)

    def _edge_tables(self) -> Mapping[str, Tensor]:
        groups = self.schema.edge_groups
        return _tables(self.attributes.get(groups[0])) if len(groups) == 1 else _EMPTY

    def _of_nodes(self, name: str, member: str) -> AttributeRows | None:
        self._only_nodes(name, f"attributes_of(...).{member}")
        return self.attributes.get(self.schema.node_groups[0])

    @property
    def nbytes(self) -> int:
        """The bytes of the minibatch's tensors, without tensors shared with other minibatches."""
        tokens = [one.nbytes for one in self.tokens or () if one is not None]
        return super().nbytes + sum(tokens) + sum(rows.nbytes for rows in self.attributes.values())


_SAMPLED = [one.name for one in dataclasses.fields(SampledMinibatch)]
_EMPTY: Mapping[str, Tensor] = {}


def _tables(rows: AttributeRows | None) -> Mapping[str, Tensor]:
    return _EMPTY if rows is None else rows.tables


def _edge_index(edges: SampledEdges, targets: int, count: int) -> Tensor:
    if edges.coo is not None:
        return edges.coo[:, :count]
    numbers = torch.arange(targets, device=edges.indptr.device)
    ends = torch.repeat_interleave(numbers, edges.indptr[: targets + 1].diff(), output_size=count)
    return torch.stack([edges.indices[:count].long(), ends])


def _gathered(held: AttributeRows | None, name: str, count: int | None, what: str) -> Tensor:
    if held is None or name not in held.tables:
        known = "none" if held is None else sorted(held.tables)
        raise KeyError(f"the {what} carry no attribute {name!r} (carried: {known})")
    return held.gather(name, count)


_NO_IDS = torch.empty(0, dtype=torch.int64)


def _dgl_blocks(minibatch: Minibatch) -> list[Any]:
    """Returns the blocks, the layer nearest the input first. Ids are not renumbered: a block's
    targets are its first sources, and so are local ids."""
    try:
        import dgl
    except ImportError as error:
        raise ImportError(
            f"to_dgl() makes blocks of DGL, which cannot be imported here ({error}); install it, for "
            f"instance with 'pip install dgl==1.1.3'"
        ) from error
    schema = minibatch.schema
    types = schema.node_types if schema.has_names else ("_N",)
    relations: tuple[Any, ...] = schema.relations if schema.has_names else (("_N", "_E", "_N"),)
    indices = [edges.indices.to(torch.int64) for edges in minibatch.edges]
    blocks = []
    for layer in range(1, len(minibatch.nodes[0].nodes_per_hop)):
        prefix = LayerHops.of(minibatch.num_layers, layer)
        targets = [prefix.targets(nodes.nodes_per_hop) for nodes in minibatch.nodes]
        sources = [prefix.sources(nodes.nodes_per_hop) for nodes in minibatch.nodes]
        counts = [prefix.edges(edges.edges_per_hop, edges.num_edges) for edges in minibatch.edges]
        every = zip(minibatch.edges, indices, counts, schema.target_types, strict=True)
        csc = [
            ("csc", (edges.indptr[: targets[target] + 1], own[:count], _NO_IDS))
            for edges, own, count, target in every
        ]
        made = [
            dict(zip(*pair, strict=True)) for pair in ((relations, csc), (types, sources), (types, targets))
        ]
        block = dgl.create_block(*(made if schema.has_names else (csc[0], sources[0], targets[0])))
        for nodes, name, source, target in zip(minibatch.nodes, types, sources, targets, strict=True):
            block.srcnodes[name].data[dgl.NID] = nodes.node[:source]
            block.dstnodes[name].data[dgl.NID] = nodes.node[:target]
        for edges, relation, count in zip(minibatch.edges, relations, counts, strict=True):
            if edges.edge is not None:
                block.edges[relation].data[dgl.EID] = edges.edge[:count]
        blocks.append(block)
    for group, rows in minibatch.attributes.items() if blocks else ():
        for attribute in rows.tables:
            values = rows.gather(attribute)
            if group.is_node:
                name = types[schema.node_groups.index(group)]
                blocks[0].srcnodes[name].data[attribute] = values
                blocks[-1].dstnodes[name].data[attribute] = values[: blocks[-1].num_dst_nodes(name)]
            for block in () if group.is_node else blocks:
                relation = relations[schema.edge_groups.index(group)]
                block.edges[relation].data[attribute] = values[: block.num_edges(relation)]
    return blocks


def pyg_batch(minibatch: SampledMinibatch, attributes: Mapping[Group, AttributeRows]) -> Data | HeteroData:
    """Returns a minibatch as PyG's ``Data`` or ``HeteroData``, with copies of ``attributes``."""
    schema = minibatch.schema
    is_plain = not schema.has_names
    batch: Any = Data() if is_plain else HeteroData()
    for group, nodes in zip(schema.node_groups, minibatch.nodes, strict=True):
        store = batch if is_plain else batch[group.name]
        _put(store, attributes.get(group), nodes.node.numel(), "node")
        if FEATURES not in store:
            store.num_nodes = nodes.node.numel()
    for group, edges in zip(schema.edge_groups, minibatch.edges, strict=True):
        store = batch if is_plain else batch[group.name]
        store.edge_index = edges.edge_index
        _put(store, attributes.get(group), edges.num_edges, "edge")
    if minibatch.input_id is None and not minibatch.links:
        for number in minibatch.seed_types:
            store = batch if is_plain else batch[schema.node_types[number]]
            store.batch_size = minibatch.nodes[number].nodes_per_hop[0]
    subgraph = SubgraphType.directional if minibatch.has_layers else SubgraphType.induced
    form = PygForm(Names.NONE if is_plain else Names.TYPES, subgraph)
    _info(minibatch).add(batch, form.output(minibatch))
    return batch


def _put(store: Any, rows: AttributeRows | None, count: int, kind: str) -> None:
    for name in () if rows is None else rows.tables:
        assert rows is not None
        value = rows.gather(name)
        if len(value) != count:
            raise ValueError(
                f"{kind} attribute {name!r} has {len(value)} rows, but the minibatch has {count} {kind}s"
            )
        store[name] = value


def _info(minibatch: SampledMinibatch) -> SampleInfo:
    if not minibatch.links:
        return SeedInfo([minibatch.schema.node_types[number] for number in minibatch.seed_types])
    modes = [
        (one.relation, NegativeMode.TRIPLET if isinstance(one, TripletLinks) else None)
        for one in minibatch.links
    ]
    return LinkInfo(modes, any(one.time is not None for one in minibatch.links))
