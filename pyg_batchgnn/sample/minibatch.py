"""A minibatch before its attributes are fetched, and after."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from pyg_batchgnn.data import EDGES, NODES, Group


@dataclass(frozen=True, eq=False)
class SampledMinibatch:
    """A sampled subgraph as one CSC by destination that holds every layer (design, section 3).

    Layer l of L (1 is nearest the input) computes the first ``sum(nodes_per_hop[:L-l+1])`` rows
    from the first ``sum(edges_per_hop[:L-l+1])`` edges. Its inputs are the rows of the layer
    before.

    Attributes:
        node: [N] int64, node ids in order of discovery; the first ``batch_size`` are the seeds. The
            ids are original ones, but for those from a `PartitionedSampler`, which are internal.
        indptr: [D + 1] int64, where the in-edges of each of the D expanded rows begin.
        indices: [E] local ids of the sources, int32 in native batches and int64 in those for PyG.
        edge: [E] int64 input edge ids, or None if the plan does not ask for them.
        nodes_per_hop: the number of seeds, then of the nodes discovered at hop 0, 1, ...; one more
            entry than there are hops.
        edges_per_hop: the number of edges of hop 0, 1, ...
        key: the digest of the seeds' original ids, order included, in [0, 2**64).
        coo: [2, E] int64, local sources above local destinations, if sampled for PyG, else None.
        input_id: [S] int64, the positions of the seeds in the loader's input, if a loader made the
            minibatch.
        seed: the sampler's seed. Together with ``epoch`` and ``key`` it also keys dropout.
        epoch: the epoch in which the minibatch was sampled.
    """

    node: Tensor
    indptr: Tensor
    indices: Tensor
    edge: Tensor | None
    nodes_per_hop: list[int]
    edges_per_hop: list[int]
    key: int
    coo: Tensor | None = None
    input_id: Tensor | None = None
    seed: int = 0
    epoch: int = 0

    @property
    def batch_size(self) -> int:
        """The number of seed nodes."""
        return self.nodes_per_hop[0]

    @property
    def num_nodes(self) -> int:
        """The number of sampled nodes, N."""
        return self.node.numel()

    @property
    def num_edges(self) -> int:
        """The number of sampled edges, E."""
        return self.indices.numel()

    @property
    def destination(self) -> Tensor:
        """[E] int64, the local destination of each edge."""
        if self.coo is not None:
            return self.coo[1]
        degrees = self.indptr[1:] - self.indptr[:-1]
        return torch.repeat_interleave(torch.arange(degrees.numel()), degrees)

    @property
    def edge_index(self) -> Tensor:
        """[2, E] int64, local sources above local destinations, by destination in hop order."""
        return torch.stack([self.indices.long(), self.destination]) if self.coo is None else self.coo

    @property
    def nbytes(self) -> int:
        """The bytes of the minibatch's own tensors."""
        edges = self.indices if self.coo is None else self.coo
        own = [self.node, self.indptr, edges, self.edge]
        return sum(tensor.nbytes for tensor in own if tensor is not None)


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

    @property
    def nbytes(self) -> int:
        """The bytes that belong to the minibatch alone: nothing that it shares is counted."""
        if self.placement is Placement.IN_PLACE:
            return 0
        if self.placement is Placement.BLOCK:
            return 0 if self.row is None else self.row.nbytes
        return sum(table.nbytes for table in self.tables.values())


@dataclass(frozen=True, eq=False)
class Minibatch(SampledMinibatch):
    """A sampled minibatch with the attributes of its nodes and edges.

    ``node`` always holds original ids.

    Attributes:
        attributes: for each group of nodes or edges, its attributes and their rows.
    """

    attributes: Mapping[Group, AttributeRows] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        sampled: SampledMinibatch,
        attributes: Mapping[Group, AttributeRows],
        original: Tensor | None = None,
    ) -> Minibatch:
        """Returns a sampled minibatch with its attributes.

        Args:
            sampled: the minibatch.
            attributes: its attributes by group.
            original: [N] int64, the original ids of its nodes if ``sampled.node`` holds internal
                ones.
        """
        fields = {name: getattr(sampled, name) for name in _SAMPLED}
        if original is not None:
            fields["node"] = original
        return cls(**fields, attributes=attributes)

    @classmethod
    def in_place(cls, sampled: SampledMinibatch, tables: Mapping[str, Tensor]) -> Minibatch:
        """Returns a minibatch that reads node attributes from whole tables, without a copy."""
        return cls.of(sampled, {NODES: AttributeRows.in_place(tables, sampled.node)})

    @property
    def row(self) -> Tensor | None:
        """[N] int64, the row of each node's attributes in the tables of ``block``."""
        rows = self.attributes.get(NODES)
        return None if rows is None else rows.row

    @property
    def block(self) -> Mapping[str, Tensor]:
        """The tables of the node attributes by name.

        They have one row per distinct node of the fetch group, or they are the user's own tables
        with one row per node of the graph: ``placement`` says which.
        """
        return _tables(self.attributes.get(NODES))

    @property
    def placement(self) -> Placement | None:
        """The owner of one row of ``block``; None if the minibatch carries no node attributes."""
        rows = self.attributes.get(NODES)
        return None if rows is None else rows.placement

    @property
    def edge_block(self) -> Mapping[str, Tensor]:
        """The edge attributes by name, [E, ...] each, if a loader over ranks fetched them."""
        return _tables(self.attributes.get(EDGES))

    def attribute(self, name: str, rows: int | None = None) -> Tensor:
        """Gathers attribute ``name`` of the first ``rows`` nodes, of all nodes by default.

        Raises:
            KeyError: the minibatch carries no such attribute.
        """
        if self.row is None or name not in self.block:
            held = sorted(self.block) or "none"
            raise KeyError(f"the minibatch holds no attribute {name!r} (held: {held})")
        return self.block[name].index_select(0, self.row[:rows])

    @property
    def nbytes(self) -> int:
        """The bytes of the minibatch's own tensors; those that it shares are not counted."""
        return super().nbytes + sum(rows.nbytes for rows in self.attributes.values())


_SAMPLED = [one.name for one in dataclasses.fields(SampledMinibatch)]
_EMPTY: Mapping[str, Tensor] = {}


def _tables(rows: AttributeRows | None) -> Mapping[str, Tensor]:
    return _EMPTY if rows is None else rows.tables
