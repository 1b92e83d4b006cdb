"""The inputs of a model: what it reads of the nodes of each type."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyg_batchgnn.data import Relation, Schema


@dataclass(frozen=True)
class ModelInputs:
    """The features and learned rows that a model reads of the nodes of each type.

    Attributes:
        schema: the node types and the relations.
        node_type: the type that is predicted; for links that of their targets.
        features: the number of columns of the features, by type; types without are absent.
        learned: the number of columns of the learned rows, likewise.
        link: the relation whose links are predicted, or None if nodes are.
    """

    schema: Schema
    node_type: str
    features: Mapping[str, int]
    learned: Mapping[str, int]
    link: Relation | None = None

    @property
    def output_types(self) -> set[str]:
        """The types whose rows the model computes: the predicted one, or those of a link's ends."""
        return {self.node_type} if self.link is None else {self.link[0], self.link[2]}

    @property
    def is_homogeneous(self) -> bool:
        """True if the only input is the features of a homogeneous graph."""
        return not self.schema.has_names and not self.learned

    def projected(self, hidden: int) -> dict[str, int]:
        """Returns the number of columns of each type that is projected to the hidden columns.

        Learned rows without features are not, if they have that many columns already.
        """
        both = {name: count + self.learned.get(name, 0) for name, count in self.features.items()}
        alone = {name: count for name, count in self.learned.items() if name not in both}
        return {**both, **{name: count for name, count in alone.items() if count != hidden}}

    def first_columns(self, hidden: int) -> int:
        """Returns the columns that the first layer reads. ``hidden``: of the layers behind it."""
        return self.features[self.node_type] if self.is_homogeneous else hidden
