"""Links: pairs of nodes around which a minibatch is sampled, and where they lie in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

from torch import Tensor

from pyg_batchgnn.data import Relation


@dataclass(frozen=True, eq=False)
class Links:
    """The links of one relation that a minibatch begins with.

    Attributes:
        relation: the relation. The graph need not have it, only the types of its ends.
        source, target: [P] int64, ids within their types.
        input_id: [P] int64, their positions in the loader's input of this relation.
        label: [P, ...], or None.
        time: [P] int64, or None.
    """

    relation: Relation
    source: Tensor
    target: Tensor
    input_id: Tensor
    label: Tensor | None = None
    time: Tensor | None = None

    @property
    def count(self) -> int:
        """The number of links, P."""
        return self.source.numel()


@dataclass(frozen=True, eq=False)
class LabelledLinks:
    """The links of one relation in a sampled minibatch, and negatives behind them.

    Attributes:
        relation: the relation.
        input_id: [P] int64, the positions of the links in the loader's input.
        index: [2, P + N] int64, local ids of sources above targets, links first.
        label: [P + N, ...], zeros for negatives; None if there are neither labels nor negatives.
        time: [P + N] int64, a negative has the time of its link; None without times.
    """

    relation: Relation
    input_id: Tensor
    index: Tensor
    label: Tensor | None
    time: Tensor | None

    @property
    def metadata(self) -> tuple[Any, ...]:
        """The entries of PyG's ``SamplerOutput.metadata``."""
        return self.input_id, self.index, self.label, self.time


@dataclass(frozen=True, eq=False)
class TripletLinks:
    """The links of one relation in a sampled minibatch, and other targets for their sources.

    Attributes:
        relation: the relation.
        input_id: [P] int64, the positions of the links in the loader's input.
        source, target: [P] int64, local ids.
        negative: [P], or [P, K] for K > 1 negatives per link: int64, local ids within the target
            type.
        time: [P] int64, or None without times.
    """

    relation: Relation
    input_id: Tensor
    source: Tensor
    target: Tensor
    negative: Tensor
    time: Tensor | None

    @property
    def metadata(self) -> tuple[Any, ...]:
        """The entries of PyG's ``SamplerOutput.metadata``."""
        return self.input_id, self.source, self.target, self.negative, self.time


SampledLinks: TypeAlias = LabelledLinks | TripletLinks
