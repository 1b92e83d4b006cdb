"""The parameters of a generated graph of several types."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

from pyg_batchgnn.data.errors import DatasetError


@dataclass(frozen=True)
class TypedGeneratorSpec:
    """The parameters of a generated graph of several types. Equal parameters give equal bytes.

    Papers have features "x", class numbers "y" and a "time"; authors have three labels "y" each;
    fields and institutions have no attributes. Edges of "cites" have the "time" of the citing
    paper. Papers and authors have splits.

    Attributes:
        papers: number of papers; there are as many authors, and fewer fields and institutions.
        seed: seed of every random choice.
        degree: mean number of papers that a paper cites, before repeats.
        classes: number of classes of papers.
        features: number of feature columns of papers.
    """

    papers: int = 10_000
    seed: int = 0
    degree: float = 8.0
    classes: int = 8
    features: int = 32

    def __post_init__(self) -> None:
        bounds = {
            "papers": (1, 1 << 30),
            "seed": (0, 2**63 - 1),
            "degree": (0.0, 1000.0),
            "classes": (1, 1 << 20),
            "features": (1, 1 << 16),
        }
        for name, (low, high) in bounds.items():
            value = getattr(self, name)
            whole = isinstance(value, int) and not isinstance(value, bool)
            if not (whole or (name == "degree" and isinstance(value, float) and math.isfinite(value))):
                raise DatasetError(f"generator: {name} is {value!r}; give a whole number")
            if not low <= value <= high:
                raise DatasetError(f"generator: {name} is {value}; give a value from {low} to {high}")

    @property
    def num_nodes(self) -> dict[str, int]:
        """The number of nodes of each type."""
        few = {"field": max(self.papers // 16, 1), "institution": max(self.papers // 64, 1)}
        return {"author": self.papers, **few, "paper": self.papers}

    @property
    def name(self) -> str:
        """The graph's name for `load_dataset`."""
        fields = (f"{field.name}={getattr(self, field.name)}" for field in dataclasses.fields(self))
        return "generated-typed:" + ",".join(fields)

    @property
    def source(self) -> str:
        """The sentence that says where such a data set comes from."""
        return f"Typed graph made by this package's generator ({self.name}); not real data."

    @property
    def estimated_bytes(self) -> int:
        """The approximate size of the finished arrays."""
        return int(self.papers * (4 * self.features + 8 * (2 * self.degree + 2 * 8) + 64))
