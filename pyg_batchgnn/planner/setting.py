"""A setting, and what follows from it by counting: fetch groups, rounds, bytes per row."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from pyg_batchgnn.cache import Aggregation
from pyg_batchgnn.loader import ScheduleName
from pyg_batchgnn.planner.workload import PlannerProbe, Workload


@dataclass(frozen=True)
class PlannerSetting:
    """One choice of everything that can be chosen.

    Attributes:
        macrobatch: B, the number of minibatches sampled together, 0 for all of an epoch.
        fetch: F, the number of minibatches fetched together, at most B, 0 for B.
        policy: the partitioning policy, or the folder of a saved partition.
        hybrid: whether every host has the whole topology.
        aggregation: the aggregation of the input that is cached (BatchGNN, appendix C), or None.
        feature_cache: bytes of remote rows that a rank keeps.
    """

    macrobatch: int = 0
    fetch: int = 0
    policy: str = "random"
    hybrid: bool = False
    aggregation: Aggregation | None = None
    feature_cache: int = 0


@dataclass(frozen=True)
class Rounds:
    """The number of exchanges of data that every rank makes in an epoch, by kind."""

    topology: int
    features: int
    lookup: int


@dataclass(frozen=True)
class Prediction:
    """A prediction for one epoch of one rank.

    Attributes:
        setting: the setting.
        minibatches: the number of minibatches of a rank.
        rounds: the number of exchanges.
        rows: the distinct remote rows of all fetch groups.
        topology_bytes, feature_bytes, gradient_bytes: bytes that a rank receives.
        memory: bytes that a rank's process takes at its peak.
        seconds: seconds by phase: sampling, asking other ranks for edges, gathering, fetching rows,
            forward, backward, exchanging gradients.
        fits: whether the memory is available.
    """

    setting: PlannerSetting
    minibatches: int
    rounds: Rounds
    rows: float
    topology_bytes: float
    feature_bytes: float
    gradient_bytes: float
    memory: float
    seconds: dict[str, float]
    fits: bool

    @property
    def preparation(self) -> float:
        """Seconds that preparing the minibatches takes, features included."""
        return sum(self.seconds[phase] for phase in ("sample", "relay", "gather", "fetch"))

    @property
    def epoch(self) -> float:
        """Seconds of all phases together."""
        return sum(self.seconds.values())

    def as_dict(self) -> dict[str, Any]:
        """Returns plain values, for JSON."""
        return {**asdict(self), "preparation": self.preparation, "epoch": self.epoch}


def sizes(minibatches: int, macrobatch: int, fetch: int) -> list[list[int]]:
    """Returns the number of minibatches of each fetch group of each macrobatch."""
    size = min(macrobatch or minibatches, minibatches) or 1
    group = min(fetch or size, size)
    whole = [min(size, minibatches - first) for first in range(0, minibatches, size)]
    return [[min(group, one - first) for first in range(0, one, group)] for one in whole]


def rounds(workload: Workload, probe: PlannerProbe, setting: PlannerSetting, minibatches: int) -> Rounds:
    """Counts the rounds exactly: 2(L - 1) or 2L per macrobatch, and 2 per fetch group.

    The formulas are those of docs/concepts/relay.md.
    """
    made = sizes(minibatches, setting.macrobatch, setting.fetch)
    hops = len(workload.fanouts) - int(setting.aggregation is not None)
    relays = max(hops - workload.first_relay, 0)
    alone = probe.ranks == 1 or setting.hybrid
    lookup = 2 if workload.schedule is ScheduleName.GLOBAL and not alone else 0
    return Rounds(0 if alone else 2 * relays * len(made), 2 * sum(map(len, made)), lookup)


def row_bytes(workload: Workload, setting: PlannerSetting) -> tuple[int, ...]:
    """Returns the bytes of a node's row on the wire by node type, padded to the widest number.

    The row holds the node's attributes, its aggregates, and its original id unless that is known.
    Its own features are left out where the aggregates contain them.
    """
    kept, found = setting.aggregation, []
    ids = 0 if setting.hybrid else workload.id_bytes
    for one in workload.types:
        features = one.features * (1 if kept is None or kept.holds_own_row else 2)
        widest = max(one.widest, ids)
        found.append(-(-(features + one.attributes + ids) // widest) * widest)
    return tuple(found)
