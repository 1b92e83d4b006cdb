"""The policies that balance any loads: ldg, fennel, multilevel and METIS."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

#: The loads that every graph has: nodes, and in-edges by the owners of their targets.
NODES, EDGES = "nodes", "edges"

#: A part gets at most this many times the mean of each load.
SLACK = 1.05


def _usual() -> dict[str, float]:
    return {NODES: SLACK, EDGES: SLACK, "train": SLACK}


@dataclass(frozen=True)
class Balanced:
    """The loads that a policy balances.

    Attributes:
        balance: by load, how many times the mean a part gets at most, where that is possible. A
            load is "nodes", "edges" (the in-edges of the nodes), the nodes of a split ("train",
            "val", "test"), or an attribute of nodes that holds one weight per node. Each counts for
            every node type apart.
    """

    balance: Mapping[str, float] = field(default_factory=_usual)

    def __post_init__(self) -> None:
        if not self.balance:
            raise ValueError('balance must name at least one load; {"nodes": 1.05} balances the nodes')
        for name, slack in self.balance.items():
            _check_slack(slack, f"the slack of {name!r}")

    def __str__(self) -> str:
        return f"{type(self).__name__.lower()} ({self._loads})"

    @property
    def _loads(self) -> str:
        return ", ".join(f"{name} {slack:g}" for name, slack in self.balance.items())


class Score(Enum):
    """The score by which a stream chooses."""

    LDG = "ldg"
    FENNEL = "fennel"


@dataclass(frozen=True)
class Streaming(Balanced):
    """The policy LDG (Stanton and Kliot 2012) or Fennel (Tsourakakis et al. 2014), over any loads.

    Attributes:
        score: LDG takes the part with the most neighbours, weighted by its room; Fennel subtracts
            the price of a fuller part.
        passes: the number of times that the nodes are streamed. In a later pass all neighbours have
            owners, from this pass or the one before it (restreaming, Nishimura and Ugander 2013).
    """

    score: Score = Score.LDG
    passes: int = 3

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.passes < 1:
            raise ValueError(f"passes must be at least 1, not {self.passes}")

    def __str__(self) -> str:
        return f"{self.score.value} ({self.passes} passes, {self._loads})"


@dataclass(frozen=True)
class TwoLevel(Balanced):
    """A policy that cuts a graph for hosts first, then for the parts of each host.

    Attributes:
        hosts: the number of hosts that get parts, in order and as many each, so that few edges join
            hosts. By default the hosts of the ranks if there is a part per rank, otherwise 1.
    """

    hosts: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.hosts is not None and self.hosts < 1:
            raise ValueError(f"hosts must be at least 1, not {self.hosts}")

    def __str__(self) -> str:
        hosts = "" if self.hosts is None else f"; {self.hosts} hosts"
        return f"{type(self).__name__.lower()} ({self._loads}{hosts})"


@dataclass(frozen=True)
class Multilevel(TwoLevel):
    """The multilevel policy.

    Nodes are joined into clusters again and again, the small graph of clusters is cut, and the cut
    is refined on the way back. All ranks work together, and no rank holds the graph.
    """


@dataclass(frozen=True)
class Metis(TwoLevel):
    """The METIS library (Karypis and Kumar 1998) in the process of rank 0, which holds the graph.
    The seed is METIS's own.

    The library must be installed; the package ``cmeel-metis`` has it.
    """


def _check_slack(slack: float, name: str) -> None:
    """Raises ValueError unless a slack is a finite number of at least 1."""
    if not slack >= 1:
        raise ValueError(f"{name} must be at least 1, not {slack}; 1.05 allows parts 5 % above the mean")
    if math.isinf(slack):
        raise ValueError(
            f"{name} must be finite, not {slack}; leave out a load that parts may have any amount of"
        )
