"""Predictions: rounds, rows, bytes, memory and seconds of an epoch, as functions of numbers.

Macrobatching after BatchGNN's appendix A: minibatches cost the same topology data whatever B, the incidental
cost of a relay once a macrobatch, and features the union of what a fetch group needs. The aggregation cache
after appendix C: the last hop is not sampled, and the nodes that are left have rows twice as wide.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import asdict, dataclass
from typing import Any

from pyg_batchgnn.planner.machine import Machine, Network
from pyg_batchgnn.planner.workload import Depth, Probe, Workload

#: Bytes that a minibatch adds to a question, and a message to what it holds, at most.
_BLOCK, _MESSAGE = 12, 25
#: Memory that is kept for use again, by what is in use: of fetch groups, where one follows another of another
#: size; of minibatches.
_KEPT, _LARGER = 1.3, 1.5
#: What choosing the rows of a feature cache takes for each in-edge of a part.
_CHOOSING = 28


@dataclass(frozen=True)
class Setting:
    """What can be chosen.

    Attributes:
        macrobatch: B, minibatches sampled together; 0: all of an epoch.
        fetch: F, minibatches whose rows are fetched together, at most B; 0: B.
        policy: who owns which node.
        hybrid: whether every host has the whole topology.
        aggregation: whether aggregates of the input are kept (appendix C).
        feature_cache: bytes of remote rows that a rank keeps.
    """

    macrobatch: int = 0
    fetch: int = 0
    policy: str = "random"
    hybrid: bool = False
    aggregation: bool = False
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

    setting: Setting
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


def rounds(workload: Workload, probe: Probe, setting: Setting, minibatches: int) -> Rounds:
    """Exact (docs/distributed.md): 2(L - 1) or 2L a macrobatch, 2 a fetch group."""
    made = sizes(minibatches, setting.macrobatch, setting.fetch)
    hops = len(workload.fanouts) - int(setting.aggregation)
    relays = max(hops - int(workload.own_seeds), 0)
    alone = probe.ranks == 1 or setting.hybrid
    lookup = 0 if workload.own_seeds or setting.hybrid else 2
    return Rounds(0 if alone else 2 * relays * len(made), 2 * sum(map(len, made)), lookup)


def row_bytes(workload: Workload, setting: Setting) -> int:
    """Of a node on the wire: attributes, the original id unless it is known, padded to the widest number."""
    features = workload.features * (2 if setting.aggregation else 1)
    own = features + workload.attributes + (0 if setting.hybrid else workload.id_bytes)
    return -(-own // 8) * 8


def predict(
    workload: Workload, probe: Probe, machine: Machine, network: Network, setting: Setting
) -> Prediction:
    """An epoch with a setting, of the rank that has the most to do."""
    minibatches = workload.minibatches(probe.seeds)
    depth = probe.inner if setting.aggregation else probe.full
    groups = _groups(workload, probe, setting)
    kept = setting.feature_cache / (row_bytes(workload, setting) + 8)
    full = workload.fullness(probe.seeds)
    unique = sum(often * depth.distinct.distinct(group) for group, often in groups.items())
    rows = sum(often * depth.remote.missed(group, kept) for group, often in groups.items())
    told = rounds(workload, probe, setting, minibatches)
    traffic = _Traffic(
        topology=_topology_bytes(workload, probe, depth, setting, minibatches * full, told),
        rows=rows,
        row_bytes=row_bytes(workload, setting),
        id_bytes=workload.id_bytes,
        unique=unique,
    )
    gradients = 2 * 4.0 * workload.parameters * (probe.ranks - 1) / probe.ranks * minibatches
    seconds = _seconds(workload, probe, machine, network, setting, told, traffic, depth, gradients)
    memory = _memory(workload, probe, machine, setting, depth, minibatches, traffic.topology)
    return Prediction(
        setting,
        minibatches,
        told,
        rows,
        traffic.topology,
        traffic.features,
        gradients,
        memory,
        seconds,
        not machine.memory or memory <= machine.memory,
    )


def _groups(workload: Workload, probe: Probe, setting: Setting) -> dict[float, float]:
    """How many whole minibatches fetch groups amount to, and how many such groups there are; means over
    ranks."""
    made = sizes(workload.minibatches(probe.seeds), setting.macrobatch, setting.fetch)
    found: defaultdict[float, float] = defaultdict(float)
    for seeds in workload.seeds_of(probe.seeds):
        first = 0
        for group in (group for one in made for group in one):
            found[sum(seeds[first : first + group]) / workload.batch_size] += 1 / probe.ranks
            first += group
    return found


@dataclass(frozen=True)
class _Traffic:
    """Of an epoch: bytes of topology, remote rows, bytes of a row and of an id, distinct nodes."""

    topology: float
    rows: float
    row_bytes: int
    id_bytes: int
    unique: float

    @property
    def features(self) -> float:
        """Bytes received: rows, and as many ids that others ask for."""
        return self.rows * (self.row_bytes + self.id_bytes)


def _topology_bytes(
    workload: Workload, probe: Probe, depth: Depth, setting: Setting, minibatches: float, told: Rounds
) -> float:
    """Nodes asked for and edges answered, what a minibatch adds for each owner, and what a message does."""
    if setting.hybrid or probe.ranks == 1:
        return 0.0
    first = int(workload.own_seeds)
    asked, answered = sum(depth.asked[first:]), sum(depth.answered[first:])
    hops = len(depth.asked) - first
    counts = max(1, math.ceil(math.log2(max(*workload.fanouts, 2)) / 8))
    data = asked * (workload.id_bytes + counts) + answered * workload.id_bytes
    blocks = _BLOCK * hops * (probe.ranks - 1)
    return minibatches * (data + blocks) + told.topology / 2 * (probe.ranks - 1) * _MESSAGE


def _seconds(
    workload: Workload,
    probe: Probe,
    machine: Machine,
    network: Network,
    setting: Setting,
    told: Rounds,
    traffic: _Traffic,
    depth: Depth,
    gradients: float,
) -> dict[str, float]:
    """By phase. Sampling and gathering take cores, which ranks may share; what crosses the wire takes the
    link, or the cores that copy it, whichever is slower."""
    steps = workload.minibatches(probe.seeds)
    together = min(setting.macrobatch or steps, steps)
    made, minibatches = -(-steps // max(together, 1)), steps * workload.fullness(probe.seeds)
    sampling, whole = machine.speedup(together), machine.speedup(machine.cores)
    edge = machine.local_edge if setting.hybrid or probe.ranks == 1 else machine.relay_edge
    block, received = traffic.unique * traffic.row_bytes, traffic.rows * traffic.row_bytes
    gathering = (block - received) * machine.gather + received * (machine.gather + machine.copy)
    gathering += minibatches * depth.nodes * (machine.node + traffic.row_bytes * machine.export)

    def exchanged(size: float, number: int) -> float:
        moving = max(size / network.rate, 2 * size * machine.wire / whole)
        return moving + number * (2 * network.latency + machine.exchange / min(machine.cores, 1))

    less = machine.first_layer if setting.aggregation else 0.0
    return {
        "sample": minibatches * depth.edges * edge / sampling
        + made * machine.macrobatch / min(machine.cores, 1),
        "relay": exchanged(traffic.topology, told.topology + told.lookup),
        "gather": max(gathering / whole, (block + received) / machine.memory_rate),
        "fetch": exchanged(traffic.features, told.features if probe.hosts > 1 else 0),
        "forward": minibatches * machine.forward * (1 - less) / whole,
        "backward": minibatches * machine.backward * (1 - less) / whole,
        "gradients": exchanged(gradients, 2 * steps if probe.ranks > 1 and gradients else 0),
    }


def part_bytes(workload: Workload, probe: Probe, setting: Setting) -> float:
    """Of what a rank holds of the graph: attributes, ids, lists of in-edges, its slice of the directory."""
    features = workload.features * (2 if setting.aggregation else 1)
    node = features + workload.attributes + 8 + 8 + 2 * workload.id_bytes
    held = probe.part_nodes * node + probe.part_edges * (workload.id_bytes + workload.edge_bytes)
    if not setting.hybrid:
        return held
    whole = workload.nodes * (8 + workload.id_bytes)
    return held + whole + workload.edges * (workload.id_bytes + workload.edge_bytes)


def _memory(
    workload: Workload,
    probe: Probe,
    machine: Machine,
    setting: Setting,
    depth: Depth,
    minibatches: int,
    topology: float,
) -> float:
    """Of a process at its peak: the part, a macrobatch's minibatches with what was asked and answered for
    them, and the largest fetch group with its block, the rows that came for it and those that went to
    others."""
    made = sizes(minibatches, setting.macrobatch, setting.fetch)
    groups = [group for one in made for group in one]
    largest, rows = max(map(sum, made), default=0), setting.feature_cache / (row_bytes(workload, setting) + 8)
    wide, full = row_bytes(workload, setting), workload.fullness(probe.seeds)

    def fetched(group: int, before: int) -> float:
        """With the block before, which the last minibatch of its group holds."""
        held = depth.distinct.distinct(before * full) * wide
        away = depth.remote.missed(group * full, rows)
        return (
            held + depth.distinct.distinct(group * full) * (wide + 8) + 2 * away * (wide + workload.id_bytes)
        )

    sampled = largest * (depth.nbytes * full + 2 * topology / max(minibatches, 1))
    sampled += 8 * depth.nodes * max(groups, default=0)
    peak = max(map(fetched, groups, [0, *groups]), default=0.0)
    working = _LARGER * sampled + peak * (_KEPT if len(groups) > 1 else 1.0)
    choosing = _CHOOSING * probe.part_edges if setting.feature_cache else 0
    graph = part_bytes(workload, probe, setting) + setting.feature_cache
    return machine.resident + graph + max(working, choosing)
