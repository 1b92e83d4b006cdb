"""A minibatch with the attributes of its nodes and edges."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from torch import Tensor
from torch_geometric.data import Data

from pyg_batchgnn import ops
from pyg_batchgnn.data import Group
from pyg_batchgnn.sample.sampled import SampledMinibatch


class Placement(enum.Enum):
    """The owner of one row in a minibatch's attribute tables."""

    IN_PLACE = "in_place"  # a node of the graph: the tables are the user's own
    BLOCK = "block"  # a distinct node of the fetch group: its minibatches share the tables
    MINIBATCH = "minibatch"  # a node or an edge of this minibatch alone


@dataclass(frozen=True, eq=False)
class AttributeRows:
    """The attributes of a minibatch's nodes, or of its edges.

    Attributes:
        tables: attributes by name, [rows, ...] each.
        row: [n] int64, the row of each of the minibatch's nodes or edges in every table; None if
            they are the rows themselves, in order.
        placement: what one row belongs to.
    """

    tables: Mapping[str, Tensor]
    row: Tensor | None
    placement: Placement

    @classmethod
    def in_place(cls, tables: Mapping[str, Tensor], ids: Tensor) -> AttributeRows:
        """Returns whole tables, one row per node of the graph, which are read at ``ids``."""
        return cls(tables, ids, Placement.IN_PLACE)

    def gather(self, name: str, rows: int | None = None) -> Tensor:
        """Copies a table's rows of the first ``rows`` nodes or edges, of all by default.

        Raises:
            ValueError: the table has not the rows that are read.
        """
        table = self.tables[name]
        ops.check_dense(f"attribute {name!r}", table)
        if table.dim() == 0:
            raise ValueError(f"attribute {name!r} is one number; give a table with one row per node or edge")
        if self.row is None:
            return table[:rows].clone()
        ops.check_dense("row", self.row)
        sizes = {one: list(other.shape[:1]) for one, other in self.tables.items()}
        if self.placement is Placement.BLOCK and any(size != [len(table)] for size in sizes.values()):
            raise ValueError(f"the tables of one block have different numbers of rows, {sizes}")
        try:
            return table.index_select(0, self.row[:rows])
        except (IndexError, RuntimeError) as error:
            raise ValueError(
                f"attribute {name!r} has {len(table)} rows, but rows are read that it has not ({error}); "
                "give a table with as many rows as the others"
            ) from error

    @property
    def nbytes(self) -> int:
        """The bytes that belong to the minibatch alone: nothing that it shares is counted."""
        if self.placement is Placement.IN_PLACE:
            return 0
        if self.placement is Placement.BLOCK:
            return 0 if self.row is None else self.row.nbytes
        return sum(table.nbytes for table in self.tables.values())


@dataclass(frozen=True, eq=False, repr=False)
class Minibatch(SampledMinibatch):
    """A sampled minibatch with the attributes of its nodes and edges.

    Its node ids are always original ones.

    Attributes:
        attributes: for each group of nodes or edges, its attributes and their rows.
    """

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
            sampled: the minibatch.
            attributes: its attributes by group.
            original: [N_t] int64 by node type, the original ids of its nodes if those of
                ``sampled`` are internal ones; a tensor alone is that of the only type.
        """
        if original is not None:
            sampled = sampled.with_ids([original] if isinstance(original, Tensor) else original)
        return cls(**{name: getattr(sampled, name) for name in _SAMPLED}, attributes=attributes)

    @classmethod
    def in_place(cls, sampled: SampledMinibatch, tables: Mapping[str, Tensor]) -> Minibatch:
        """Returns a minibatch that reads node attributes from whole tables, without a copy."""
        return cls.of(sampled, {sampled.schema.node_groups[0]: AttributeRows.in_place(tables, sampled.node)})

    @property
    def row(self) -> Tensor | None:
        """[N] int64, the row of each node's attributes in the tables of ``block``."""
        rows = self._of_nodes("row", "row")
        return None if rows is None else rows.row

    @property
    def block(self) -> Mapping[str, Tensor]:
        """The tables of the node attributes by name.

        They have one row per distinct node of the fetch group, or they are the user's own tables
        with one row per node of the graph: ``placement`` says which.
        """
        return _tables(self._of_nodes("block", "tables"))

    @property
    def placement(self) -> Placement | None:
        """The owner of one row of ``block``; None if the minibatch carries no node attributes."""
        rows = self._of_nodes("placement", "placement")
        return None if rows is None else rows.placement

    @property
    def edge_block(self) -> Mapping[str, Tensor]:
        """The edge attributes by name, [E, ...] each.

        Each access copies the rows of attributes that are read in place.
        """
        self._only_edges("edge_block", "attributes[group].tables for a group of schema.edge_groups")
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

    def attribute(self, name: str, rows: int | None = None) -> Tensor:
        """Gathers attribute ``name`` of the first ``rows`` nodes or edges, of all by default.

        A name that nodes and edges have is that of nodes.

        Raises:
            KeyError: the minibatch carries no such attribute.
            ValueError: its table has not one row per node.
        """
        found = self._of_nodes("attribute", "gather(name)")
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
        return self._named("x")

    @property
    def y(self) -> Tensor:
        """[N, ...], a copy of the labels of the nodes; the first ``batch_size`` are the seeds'."""
        return self._named("y")

    def _named(self, name: str) -> Tensor:
        try:
            return self.attribute(name)
        except KeyError as error:  # so that hasattr() answers
            raise AttributeError(error.args[0]) from None

    def to_data(self) -> Data:
        """Returns the minibatch as PyG's ``Data``, with copies of its attributes.

        It has what `NeighborLoader` gives: ``edge_index``, ``n_id``, ``batch_size``, the counts by
        hop, and ``e_id`` and ``input_id`` if they are known.
        """
        data = Data(edge_index=self.edge_index, n_id=self.n_id, num_nodes=self.num_nodes)
        for name in self.block:
            data[name] = self.attribute(name)
        for name, table in self.edge_block.items():
            data[name] = table
        data.batch_size = self.batch_size
        data.num_sampled_nodes, data.num_sampled_edges = self.nodes_per_hop, self.edges_per_hop
        for name, ids in (("e_id", self.edge), ("input_id", self.input_id)):
            if ids is not None:
                data[name] = ids
        return data

    def _edge_tables(self) -> Mapping[str, Tensor]:
        groups = self.schema.edge_groups
        return _tables(self.attributes.get(groups[0])) if len(groups) == 1 else _EMPTY

    def _of_nodes(self, name: str, member: str) -> AttributeRows | None:
        self._only_nodes(name, f"attributes[group].{member} for a group of schema.node_groups")
        return self.attributes.get(self.schema.node_groups[0])

    @property
    def nbytes(self) -> int:
        """The bytes of the minibatch's own tensors; those that it shares are not counted."""
        return super().nbytes + sum(rows.nbytes for rows in self.attributes.values())


_SAMPLED = [one.name for one in dataclasses.fields(SampledMinibatch)]
_EMPTY: Mapping[str, Tensor] = {}


def _tables(rows: AttributeRows | None) -> Mapping[str, Tensor]:
    return _EMPTY if rows is None else rows.tables
