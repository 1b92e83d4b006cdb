"""The node sets and edge sets of a data set: all that it has of one node type or one relation."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from pyg_batchgnn.data.groups import Group, RowKind
from pyg_batchgnn.data.links import LinkSplit
from pyg_batchgnn.data.schema import Relation


@dataclass(frozen=True, eq=False)
class NodeSet:
    """The nodes of one type.

    Attributes:
        name: the node type.
        num_nodes: the number of nodes N_t; their ids are 0 to N_t - 1.
        tables: the attributes by name, one tensor each: [N_t, ...], any dtype and shape. By
            convention "x" are the features and "y" the labels (class numbers 0 to C - 1, or -1
            where a node has none).
        splits: the node ids of each split, int64. "train", "val" and "test" are disjoint.
        num_classes: the number of classes C; 0 where the labels "y" are no class numbers, or are
            absent.
    """

    name: str
    num_nodes: int
    tables: dict[str, Tensor] = field(default_factory=dict)
    splits: dict[str, Tensor] = field(default_factory=dict)
    num_classes: int = 0

    @property
    def group(self) -> Group:
        """The group of the rows of the attributes."""
        return Group(RowKind.NODE, self.name)

    @property
    def num_rows(self) -> int:
        """The number of rows of each attribute, which is that of nodes."""
        return self.num_nodes


@dataclass(frozen=True, eq=False)
class EdgeSet:
    """The edges of one relation.

    Attributes:
        relation: the names of the source type, of the relation and of the target type.
        edge_index: [2, E_r] int32 or int64, (source, destination) of each edge, by ids within their
            types. An edge's position is its id.
        tables: the attributes by name, one tensor each: [E_r, ...], any dtype and shape. By
            convention "edge_attr" are the features.
        links: the links of each split. Those of "train", "val" and "test" are for learning and for
            measuring; the edges that a model sees are those of `edge_index` alone.
    """

    relation: Relation
    edge_index: Tensor
    tables: dict[str, Tensor] = field(default_factory=dict)
    links: dict[str, LinkSplit] = field(default_factory=dict)

    @property
    def group(self) -> Group:
        """The group of the rows of the attributes."""
        return Group(RowKind.EDGE, self.relation)

    @property
    def num_edges(self) -> int:
        """The number of stored (directed) edges E_r."""
        return int(self.edge_index.shape[-1])

    @property
    def num_rows(self) -> int:
        """The number of rows of each attribute, which is that of edges."""
        return self.num_edges
