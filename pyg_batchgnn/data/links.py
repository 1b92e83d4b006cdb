"""The links of a split: pairs of nodes that a model learns to predict, or is measured on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor

#: The arrays of a split that are not attributes of its links.
INDEX, NEGATIVES, NEGATIVE_TARGETS = "index", "negatives", "negative_targets"


@dataclass(frozen=True, eq=False)
class LinkSplit:
    """The links of one split of a relation.

    Attributes:
        index: [2, n] int32 or int64, sources above targets, by ids within their types.
        tables: the attributes of the links by name, [n, ...] each, such as "year".
        negatives: [2, m] pairs that are no links, which all links of the split are ranked among, or
            None.
        negative_targets: [n, k] nodes, for each link the targets that its own target is ranked
            among, or None.
    """

    index: Tensor
    tables: dict[str, Tensor] = field(default_factory=dict)
    negatives: Tensor | None = None
    negative_targets: Tensor | None = None

    def __len__(self) -> int:
        return int(self.index.shape[-1])

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, Tensor]) -> LinkSplit:
        """Makes a split of what `arrays` returns.

        Raises:
            KeyError: there are no links.
        """
        known = (INDEX, NEGATIVES, NEGATIVE_TARGETS)
        tables = {name: table for name, table in arrays.items() if name not in known}
        return cls(arrays[INDEX], tables, arrays.get(NEGATIVES), arrays.get(NEGATIVE_TARGETS))

    def arrays(self) -> dict[str, Tensor]:
        """Returns everything that is written of the split, by name."""
        fixed = {INDEX: self.index, NEGATIVES: self.negatives, NEGATIVE_TARGETS: self.negative_targets}
        return {**{name: one for name, one in fixed.items() if one is not None}, **self.tables}
