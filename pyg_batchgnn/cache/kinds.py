"""The aggregations of neighbours' features in the first layer of a model."""

from __future__ import annotations

import enum
from typing import Any

from pyg_batchgnn.types import Relation, Schema

_NOT_FIXED = {
    "max": "the maximum over sampled neighbours is far from that over all of them, and no native layer "
    "takes it from a cache",
    "attention": "GAT weighs neighbours by weights that it learns, which change at every step",
}


class Aggregation(str, enum.Enum):
    """An aggregation that can be made before training, because no weight takes part in it."""

    MEAN = "mean"  #: over the in-edges; SAGE's
    SUM = "sum"  #: over the in-edges; GIN's
    SYMMETRIC = "symmetric"  #: GCN's, with self loops and the degrees of the whole graph

    @property
    def attribute(self) -> str:
        """The name of the aggregates in minibatches of one relation, which native layers know."""
        return f"x_{self.value}"

    def attribute_of(self, relation: Relation, schema: Schema) -> str:
        """Returns the name of a relation's aggregates in minibatches.

        It names the relation unless the graph has one node type and one relation.
        """
        return self.attribute if schema.is_plain else f"{self.attribute}:{'__'.join(relation)}"

    @property
    def holds_own_row(self) -> bool:
        """True if a node's aggregate contains its own row, so that minibatches need no features."""
        return self is Aggregation.SYMMETRIC

    @classmethod
    def parse(cls, given: Any) -> Aggregation:
        """Returns an aggregation by name.

        Raises:
            ValueError: there is none of that name, or it cannot be made before training.
        """
        if isinstance(given, str) and given in [one.value for one in cls]:
            return cls(given)
        choices = ", ".join(repr(one.value) for one in cls)
        why = _NOT_FIXED.get(str(given))
        raise ValueError(
            f"kind must be one of {choices}, got {given!r}"
            + (f": {why}; train without a cache" if why else "")
        )
