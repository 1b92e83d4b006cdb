"""The loads of parts, and why a limit could not be kept."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass

import torch
from torch import Tensor

from pyg_batchgnn.partition.part import Part
from pyg_batchgnn.partition.policy import EDGES, NODES

#: The loads of every report, in order, before other splits and weights.
USUAL = (NODES, EDGES, "train", "val", "test")
#: Sums of weights that are no whole numbers are compared to this precision.
_PRECISION = 1e-6


@dataclass(frozen=True)
class Load:
    """One load of one node type.

    Attributes:
        name: "nodes", "edges" (in-edges), a split, or an attribute with one weight per node.
        node_type: the name of the type.
        sums: the load of each part.
        heaviest: the largest weight of a single node.
        slack: how many times the mean a part was allowed, None if no limit was set.
    """

    name: str
    node_type: str
    sums: tuple[float, ...]
    heaviest: float
    slack: float | None = None

    @property
    def mean(self) -> float:
        """The mean of the parts."""
        return sum(self.sums) / len(self.sums)

    @property
    def balance(self) -> float:
        """The largest sum over the mean, 1 at best."""
        return max(self.sums) / self.mean if self.mean else 1.0

    @property
    def fullest(self) -> int:
        """The part that has the most."""
        return self.sums.index(max(self.sums))

    @property
    def is_even(self) -> bool:
        """True if it is as even as can be: no part has more than the mean rounded up."""
        return max(self.sums) <= self._rounded_mean

    @property
    def is_met(self) -> bool:
        """True unless a part exceeds its limit. The mean rounded up is always allowed."""
        if self.slack is None:
            return True
        allowed = max(self.slack * self.mean, self._rounded_mean)
        return max(self.sums) <= allowed * (1 + _PRECISION)

    @property
    def reason(self) -> str:
        """The reason why a limit could not be kept; empty if it is met."""
        if self.slack is None or self.is_met:
            return ""
        return unmet_reason(self.heaviest / self.mean, self.slack)

    @property
    def _rounded_mean(self) -> float:
        return math.ceil(self.mean) if all(isinstance(one, int) for one in self.sums) else self.mean


def unmet_reason(heaviest: float, slack: float) -> str:
    """Returns why no part keeps within ``slack`` times the mean; ``heaviest`` is in means."""
    if heaviest > slack:
        return f"one node alone has {heaviest:.2f} times the mean"
    return "the policy found no parts within all limits, though no node is too heavy"


def sums_of(part: Part, wanted: Collection[str]) -> dict[str, dict[str, tuple[float, float]]]:
    """Returns the sums of a part's loads and the largest weight of a node, by type and load.

    ``wanted``: the names of weights that count beside nodes, in-edges and splits.
    """
    schema, degrees = part.schema, _degrees(part)
    found = dict[str, dict[str, tuple[float, float]]]()
    for number, (name, group) in enumerate(zip(schema.node_types, schema.node_groups, strict=True)):
        nodes, splits = len(part.nodes_of(number)), part.splits.get(group, {})
        loads: dict[str, tuple[float, float]] = {NODES: (nodes, 1), EDGES: _of_weights(degrees[number])}
        loads |= {split: (rows.numel(), 1) for split, rows in splits.items()}
        tables = part.attributes.get(group, {})
        loads |= {one: _of_weights(tables[one]) for one in wanted if one in tables and one not in loads}
        found[name] = loads
    return found


def _degrees(part: Part) -> list[Tensor]:
    found = [torch.zeros(len(part.nodes_of(at)), dtype=torch.int64) for at in range(part.schema.num_types)]
    for target, edges in zip(part.schema.target_types, part.relations, strict=True):
        found[target] += edges.indptr.diff()
    return found


def _of_weights(weight: Tensor) -> tuple[float, float]:
    exact = weight.to(torch.float64 if weight.is_floating_point() else torch.int64)
    return exact.sum().item(), exact.max().item() if exact.numel() else 0
