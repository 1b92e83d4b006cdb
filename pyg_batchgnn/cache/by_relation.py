"""The aggregates of the relations of a graph, and what minibatches carry of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from pyg_batchgnn.cache.fingerprint import GraphFingerprint
from pyg_batchgnn.cache.kinds import Aggregation
from pyg_batchgnn.cache.relation_aggregates import RelationAggregates
from pyg_batchgnn.types import Group, Relation, Schema


@dataclass(frozen=True, eq=False)
class AggregatesByRelation:
    """The aggregates of some relations of a graph, of the targets that a process owns.

    `kind`, `rows`, `readable`, `fingerprint` and `attribute` can be read from it if it has one
    relation.

    Attributes:
        schema: the node types and the relations of the graph.
        relations: the aggregates by relation.
    """

    schema: Schema
    relations: Mapping[Relation, RelationAggregates]

    def attribute_of(self, relation: Relation) -> str:
        """Returns the name of a relation's aggregates among the attributes of its targets."""
        return self.relations[relation].kind.attribute_of(relation, self.schema)

    @property
    def names(self) -> dict[Group, list[str]]:
        """The names of the aggregates, by group of the targets."""
        found: dict[Group, list[str]] = {}
        for relation in self.relations:
            found.setdefault(self._targets(relation), []).append(self.attribute_of(relation))
        return found

    @property
    def kinds(self) -> dict[str, str]:
        """The aggregations by relation, as JSON can hold them."""
        return {"__".join(relation): one.kind.value for relation, one in self.relations.items()}

    def tables(self) -> dict[Group, dict[str, Tensor]]:
        """Returns the aggregates as attributes of all nodes by group, in one process."""
        found: dict[Group, dict[str, Tensor]] = {}
        for relation, one in self.relations.items():
            found.setdefault(self._targets(relation), {})[self.attribute_of(relation)] = one.rows
        return found

    @property
    def nbytes(self) -> int:
        """The bytes of this process's aggregates."""
        return sum(one.rows.nbytes for one in self.relations.values())

    def __repr__(self) -> str:
        def said(one: RelationAggregates) -> str:
            nodes, columns = one.rows.shape
            return f"{one.kind.value}, {nodes:,} nodes, {columns} columns of {one.rows.dtype}"

        if not self.schema.has_names:
            return f"{type(self).__name__}({said(self._only('rows'))})"
        every = "; ".join(f"{'-'.join(names)}: {said(one)}" for names, one in self.relations.items())
        return f"{type(self).__name__}({every})"

    def _targets(self, relation: Relation) -> Group:
        return self.schema.node_groups[self.schema.type_number(relation[2])]

    # The only relation ###########################################################################

    @property
    def kind(self) -> Aggregation:
        """The aggregation of the only relation."""
        return self._only("kind").kind

    @property
    def rows(self) -> Tensor:
        """[n, F], the aggregates of this process's nodes, of the only relation."""
        return self._only("rows").rows

    @property
    def readable(self) -> dict[int, Tensor]:
        """The aggregates of the ranks whose memory this one can read, of the only relation."""
        return self._only("readable").readable

    @property
    def fingerprint(self) -> GraphFingerprint:
        """The fingerprint of the only relation's edges and features."""
        return self._only("fingerprint").fingerprint

    @property
    def attribute(self) -> str:
        """The name of the only relation's aggregates in minibatches."""
        self._only("attribute")
        return self.attribute_of(next(iter(self.relations)))

    def _only(self, name: str) -> RelationAggregates:
        if len(self.relations) != 1:
            raise AttributeError(
                f"{name!r} can be read from a cache itself only if one relation can be meant, but it has "
                f"{list(self.relations)}; read cache.relations[...]"
            )
        return next(iter(self.relations.values()))
