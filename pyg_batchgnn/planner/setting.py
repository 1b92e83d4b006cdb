"""What can be chosen, and what follows by counting alone: fetch groups, rounds, bytes of a row."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from pyg_batchgnn.cache import Aggregation
from pyg_batchgnn.planner.workload import PlannerProbe, Workload


@dataclass(frozen=True)
class PlannerSetting:
    """What can be chosen.

    Attributes:
        macrobatch: B, minibatches sampled together; 0: all of an epoch.
        fetch: F, minibatches whose rows are fetched together, at most B; 0: B.
        policy: who owns which node.
        hybrid: whether every host has the whole topology.
        aggregation: of the input, that is kept (appendix C); None: none.
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
    """Exchanges of data in an epoch, by kind, of every rank."""

    topology: int
    features: int
    lookup: int


@dataclass(frozen=True)
class Prediction:
    """An epoch of one rank.

    Attributes:
        setting: that is predicted for.
        minibatches: of a rank.
        rounds: exchanges.
        rows: distinct remote rows of all fetch groups.
        topology_bytes, feature_bytes, gradient_bytes: that a rank receives.
        memory: bytes that a rank's process takes at its peak.
        seconds: by phase: sampling, asking others for edges, gathering, fetching rows, forward, backward,
            exchanging gradients.
        fits: whether the memory is there.
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
        """Seconds until minibatches with features are there."""
        return sum(self.seconds[phase] for phase in ("sample", "relay", "gather", "fetch"))

    @property
    def epoch(self) -> float:
        """Seconds of all phases, one after the other."""
        return sum(self.seconds.values())

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {**asdict(self), "preparation": self.preparation, "epoch": self.epoch}


def sizes(minibatches: int, macrobatch: int, fetch: int) -> list[list[int]]:
    """The minibatches of every fetch group of every macrobatch."""
    size = min(macrobatch or minibatches, minibatches) or 1
    group = min(fetch or size, size)
    whole = [min(size, minibatches - first) for first in range(0, minibatches, size)]
    return [[min(group, one - first) for first in range(0, one, group)] for one in whole]


def rounds(workload: Workload, probe: PlannerProbe, setting: PlannerSetting, minibatches: int) -> Rounds:
    """Exact (docs/concepts/relay.md): 2(L - 1) or 2L a macrobatch, 2 a fetch group."""
    made = sizes(minibatches, setting.macrobatch, setting.fetch)
    hops = len(workload.fanouts) - int(setting.aggregation is not None)
    relays = max(hops - int(workload.own_seeds), 0)
    alone = probe.ranks == 1 or setting.hybrid
    lookup = 0 if workload.own_seeds or setting.hybrid else 2
    return Rounds(0 if alone else 2 * relays * len(made), 2 * sum(map(len, made)), lookup)


def row_bytes(workload: Workload, setting: PlannerSetting) -> int:
    """Of a node on the wire: attributes, aggregates beside its own features unless they hold them, the
    original id unless it is known, padded to the widest number."""
    kept = setting.aggregation
    features = workload.features * (1 if kept is None or kept.holds_own_row else 2)
    own = features + workload.attributes + (0 if setting.hybrid else workload.id_bytes)
    return -(-own // 8) * 8
