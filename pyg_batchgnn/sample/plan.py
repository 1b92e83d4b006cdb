"""The plan by which a minibatch grows from its seed nodes."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

ALL_NEIGHBORS = -1


class Replacement(enum.Enum):
    """The rule whether a neighbour may be picked more than once."""

    WITHOUT = "without"
    WITH = "with"


@dataclass(frozen=True)
class SamplingPlan:
    """The fanouts by hop and the rules of picking, checked once.

    Attributes:
        fanouts: neighbours to pick for each node of hop 0 (the seeds), 1, ...; -1 picks all.
        replacement: with `Replacement.WITH` a node that has any neighbour gets exactly as many
            picks as the fanout says.
        edge_ids: True if minibatches carry the input ids of their edges.

    Raises:
        ValueError, TypeError: a fanout is no integer or below -1, or there is none.
    """

    fanouts: tuple[int, ...]
    replacement: Replacement = Replacement.WITHOUT
    edge_ids: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "fanouts", tuple(_checked_fanout(fanout) for fanout in self.fanouts))
        if not self.fanouts:
            raise ValueError("a sampling plan needs at least one fanout, for instance (15, 10, 5)")
        if not isinstance(self.replacement, Replacement):
            raise TypeError(f"replacement must be a Replacement, got {self.replacement!r}")

    @property
    def num_hops(self) -> int:
        """The number of hops."""
        return len(self.fanouts)

    def without_last_hop(self) -> SamplingPlan:
        """Returns the plan whose minibatches are those of this plan before the last hop.

        Raises:
            ValueError: the plan has one hop only.
        """
        if self.num_hops == 1:
            raise ValueError(
                f"an aggregation cache replaces the last hop, but fanouts {list(self.fanouts)} have one hop "
                f"only; take a model of two layers or more, or no cache"
            )
        return dataclasses.replace(self, fanouts=self.fanouts[:-1])

    @classmethod
    def from_pyg(cls, num_neighbors: Any, replace: bool) -> SamplingPlan:
        """Returns the plan that PyG's ``num_neighbors`` and ``replace`` say.

        ``num_neighbors``: a list or a `NumNeighbors`.
        """
        is_dict = isinstance(num_neighbors, dict)
        values = num_neighbors if is_dict else getattr(num_neighbors, "values", num_neighbors)
        if isinstance(values, dict):
            raise NotImplementedError(
                "num_neighbors as a dict by edge type is for heterogeneous graphs, which are not supported "
                "yet; give a list with one entry per hop"
            )
        if isinstance(values, (str, bytes)) or not isinstance(values, Sequence):
            raise TypeError(f"num_neighbors must be a list of integers, got {num_neighbors!r}")
        return cls(tuple(values), Replacement.WITH if replace else Replacement.WITHOUT)


def _checked_fanout(fanout: Any) -> int:
    if isinstance(fanout, bool) or not hasattr(fanout, "__index__"):
        raise TypeError(f"a fanout must be an integer, got {fanout!r}")
    value = fanout.__index__()
    if value < ALL_NEIGHBORS:
        raise ValueError(f"a fanout must be -1 (all neighbours), 0 or more, got {value}")
    if value >= 1 << 31:
        raise ValueError(f"a fanout must be below 2**31, got {value}; -1 picks all neighbours")
    return value
