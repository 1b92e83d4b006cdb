"""What the first layer of a model makes of its neighbours' features."""

from __future__ import annotations

import enum
from typing import Any

_NOT_FIXED = {
    "max": "the maximum over sampled neighbours is far from that over all of them; no layer here takes it "
    "from a cache",
    "attention": "GAT weighs neighbours by what it has learned, which changes at every step",
}


class Aggregation(str, enum.Enum):
    """An aggregation that is known before training, as no weight has a part in it."""

    MEAN = "mean"  #: over the in-edges; SAGE's
    SUM = "sum"  #: over the in-edges; GIN's
    SYMMETRIC = "symmetric"  #: GCN's, with self loops and the degrees of the whole graph

    @property
    def attribute(self) -> str:
        """The name under which minibatches carry it, as native layers know it."""
        return f"x_{self.value}"

    @property
    def holds_own_row(self) -> bool:
        """Whether a node's aggregate has its own row in it, so that nothing travels beside it."""
        return self is Aggregation.SYMMETRIC

    @classmethod
    def parse(cls, given: Any) -> Aggregation:
        """An aggregation by name.

        Raises:
            ValueError: there is none of that name, or none that could be known beforehand.
        """
        if isinstance(given, str) and given in [one.value for one in cls]:
            return cls(given)
        choices = ", ".join(repr(one.value) for one in cls)
        why = _NOT_FIXED.get(str(given))
        raise ValueError(
            f"kind must be one of {choices}, got {given!r}"
            + (f": {why}; train without a cache" if why else "")
        )
