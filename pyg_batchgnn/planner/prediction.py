"""Predictions: rounds, rows, bytes, memory and seconds of an epoch, as functions of numbers.

Macrobatching follows BatchGNN's appendix A. The topology data per minibatch does not depend on B.
The fixed cost of a relay is paid once per macrobatch. Features cost the union of what a fetch group
needs. The aggregation cache follows appendix C. The last hop is not sampled, and the rows of the
nodes that are left are twice as wide.
"""

from __future__ import annotations

import math
import operator
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from itertools import accumulate, pairwise
from typing import Any

from pyg_batchgnn.history import HistoricalSettings
from pyg_batchgnn.planner.machine import PlannerMachine, PlannerNetwork, exchange_seconds
from pyg_batchgnn.planner.workload import (
    MinibatchMeans,
    PlannerProbe,
    PlannerSetting,
    Prediction,
    Workload,
    rounds,
    row_bytes,
    sizes,
)

#: Bytes per training node that a loader keeps, and per in-edge to choose rows of a feature cache.
_SEED, _CHOOSING = 40, 28
#: The share, and the bytes, that are added for blocks which the allocator keeps.
_MARGIN, _ALWAYS_KEPT = 0.25, 16 << 20


def predict(
    workload: Workload,
    probe: PlannerProbe,
    machine: PlannerMachine,
    network: PlannerNetwork,
    setting: PlannerSetting,
) -> Prediction:
    """Predicts an epoch with a setting, for the rank with the most work."""
    means = probe.full if setting.aggregation is None else probe.inner
    steps = workload.minibatches(probe.seeds)
    minibatches = steps * workload.fullness(probe.seeds)  # a smaller one as a part of one
    exchanges = rounds(workload, probe, setting, steps)
    remote, unique, received, gathered = _rows(workload, probe, means, setting)
    topology = 0.0 if _knows_topology(probe, setting) else minibatches * sum(_messages(workload, means))
    features = received + remote * workload.id_bytes  # one id per row is asked for
    gradients = 2 * 4.0 * workload.parameters * (probe.ranks - 1) / probe.ranks * steps
    memory = _memory(workload, probe, machine, means, setting)

    def exchange(size: float, number: int) -> float:
        return exchange_seconds(network, machine, size, number)

    together = min(setting.macrobatch or steps, steps)
    made = -(-steps // max(together, 1))
    whole = machine.speedup(machine.cores)
    edge = machine.local_edge if _knows_topology(probe, setting) else machine.relay_edge
    width = gathered / unique if unique else 0.0
    gathering = gathered * machine.gather + received * machine.copy
    gathering += minibatches * means.nodes * (machine.node + width * machine.export)
    left = minibatches * (1 - (0.0 if setting.aggregation is None else machine.first_layer))
    seconds = {
        "sample": minibatches * means.edges * edge / machine.speedup(together)
        + made * machine.macrobatch / min(machine.cores, 1),
        "relay": exchange(topology, exchanges.topology + exchanges.lookup),
        "gather": max(gathering / whole, (gathered + received) / machine.memory_rate),
        "fetch": exchange(features, exchanges.features if probe.hosts > 1 else 0),
        "forward": left * machine.forward / whole,
        "backward": left * machine.backward / whole,
        "gradients": exchange(gradients, 2 * steps if probe.ranks > 1 and gradients else 0),
    }
    fits = not machine.memory or memory <= machine.memory
    return Prediction(setting, steps, exchanges, remote, topology, features, gradients, memory, seconds, fits)


def _knows_topology(probe: PlannerProbe, setting: PlannerSetting) -> bool:
    """Returns whether ranks sample without asking each other for edges."""
    return setting.hybrid or probe.ranks == 1


def _bytes(rows: Iterable[float], widths: Iterable[int]) -> float:
    return sum(map(operator.mul, rows, widths))


def _rows(
    work: Workload, probe: PlannerProbe, means: MinibatchMeans, setting: PlannerSetting
) -> tuple[float, float, float, float]:
    """Returns an epoch's remote rows and distinct rows over all fetch groups, and their bytes."""
    widths, groups = row_bytes(work, setting), Counter[float]()
    made = [
        size
        for one in sizes(work.minibatches(probe.seeds), setting.macrobatch, setting.fetch)
        for size in one
    ]
    ends = list(accumulate(made, initial=0))
    for seeds in work.seeds_of(probe.seeds):
        groups.update(sum(seeds[first:last]) / work.batch_size for first, last in pairwise(ends))
    kept = means.remote.kept(setting.feature_cache, widths)
    remote, unique = [0.0] * len(widths), [0.0] * len(widths)
    for group, times in groups.items():
        distinct, missed = means.distinct.distinct_by_type(group), means.remote.missed(group, kept)
        for at, width in enumerate(widths):
            if width:  # types without attributes are not asked for
                unique[at] += times / probe.ranks * distinct[at]
                remote[at] += times / probe.ranks * missed[at]
    return sum(remote), sum(unique), _bytes(remote, widths), _bytes(unique, widths)


def _messages(work: Workload, means: MinibatchMeans) -> list[float]:
    """Returns by hop the bytes of requests and responses: ids, edge counts by node and relation."""
    return [
        (means.asked[hop] + means.answered[hop]) * work.id_bytes
        + means.sections[hop] * (1 + (fanout > 255) if 0 <= (fanout := work.fanouts[hop]) < 65_536 else 4)
        for hop in range(work.first_relay, len(means.asked))
    ]


def _memory(
    work: Workload,
    probe: PlannerProbe,
    machine: PlannerMachine,
    means: MinibatchMeans,
    setting: PlannerSetting,
) -> float:
    """Returns the peak bytes of a process, of the rank with the most training nodes.

    They are a process without a graph, the part, and with a margin what preparation takes at once:
    the minibatches of a macrobatch, and either the messages of its largest hop, or the rows of two
    fetch groups and of one under way.
    """
    features = work.features * (1 if setting.aggregation is None else 2)
    edge = work.id_bytes + work.edge_bytes
    part = probe.part_nodes * (features + work.attributes + 16 + 2 * work.id_bytes) + probe.part_edges * edge
    if setting.hybrid:
        part += work.nodes * (8 + work.id_bytes) + work.edges * edge
    choosing = _CHOOSING * probe.part_edges if setting.feature_cache else 0

    busiest = max(work.seeds_of(probe.seeds), key=sum)
    shares = sorted((seeds / work.batch_size for seeds in busiest), reverse=True)
    together = sum(shares[: setting.macrobatch or len(shares)])
    fetched = sum(shares[: min(setting.fetch or len(shares), setting.macrobatch or len(shares))])
    widths = [width + 24 for width in row_bytes(work, setting)]  # with ids and positions
    missed = means.remote.missed(fetched, means.remote.kept(setting.feature_cache, widths))
    groups = _bytes(means.distinct.distinct_by_type(fetched), widths)
    groups *= 2 if fetched < sum(shares) else 1
    fetching = groups + 2 * _bytes(missed, widths) + 16 * fetched * means.nodes
    asking = (
        0.0 if _knows_topology(probe, setting) else 2 * together * max(_messages(work, means), default=0.0)
    )
    minibatch = 8 * (means.nodes + means.expanded) + 12 * means.edges
    working = 32 * means.nodes + work.nodes / 4 + together * minibatch + max(asking, fetching)
    graph = part + setting.feature_cache + _SEED * sum(probe.seeds)
    return machine.resident + graph + max((1 + _MARGIN) * working + _ALWAYS_KEPT, choosing)


# Historical embeddings (DistGNN-MB): a minibatch stops at the border of the part, and a rank pushes
# hidden rows to its peers in every step, beside which it trains on.

#: The bytes of a row's original id, and of a number of a hidden row.
_ROW_ID, _NUMBER = 8, 4


@dataclass(frozen=True)
class HistoricalPrediction:
    """A prediction for one epoch of one rank with historical embeddings."""

    minibatches: int  # a rank's minibatches, which are its steps and its exchanges of pushed rows
    edges: float  # the edges of a minibatch
    pushed_rows: float  # the rows that a rank pushes
    pushed_bytes: float  # their bytes, ids included
    gradient_bytes: float  # the bytes of gradients that a rank receives
    feature_bytes: float  # the bytes of features that a rank fetches once, before the first epoch
    #: seconds by phase: sampling, gathering, forward, backward, exchanging gradients, and waiting
    #: for pushed rows
    seconds: dict[str, float]
    hidden_seconds: float  # the seconds of pushing while training goes on

    @property
    def preparation(self) -> float:
        """Seconds that preparing the minibatches takes."""
        return self.seconds["sample"] + self.seconds["gather"]

    @property
    def epoch(self) -> float:
        """Seconds of all phases together."""
        return sum(self.seconds.values())

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "epoch": self.epoch}


def predict_historical(
    workload: Workload,
    probe: PlannerProbe,
    machine: PlannerMachine,
    network: PlannerNetwork,
    settings: HistoricalSettings,
    hidden: int,
) -> HistoricalPrediction:
    """Predicts an epoch with historical embeddings, schedule "local" and B = 1. ``hidden``: the
    columns of hidden rows. The other arguments are as in `predict`; the probe is of own seeds."""
    means, peers = probe.full, probe.ranks - 1
    found = means.nodes - workload.batch_size
    cut = min(1.0, means.remote.distinct(1) / found) if peers and found > 0 else 0.0
    own, halo, edges = _local_minibatch(workload, means, cut)
    steps = workload.minibatches(probe.seeds)
    full = steps * workload.fullness(probe.seeds)
    # The share of a rank's nodes that are in a peer's halo, for edges at random.
    shared = 1 - math.exp(-workload.edges / max(workload.nodes, 1) * cut / peers) if peers else 0.0
    most = math.inf if settings.push is None else settings.push
    # The rows of layer l + 1's input are those of all hops but the last l.
    pushed = full * peers * sum(min(most, rows * shared) for rows in list(accumulate(own))[1:-1])
    size = pushed * (_ROW_ID + _NUMBER * hidden)
    gradients = 2 * 4.0 * workload.parameters * peers / probe.ranks * steps

    whole, less = machine.speedup(machine.cores), edges / means.edges if means.edges else 1.0
    copied = (sum(own) + halo) * workload.features
    seconds = {
        "sample": full * edges * machine.local_edge / machine.speedup(1),
        "gather": full * copied * (machine.gather + machine.copy) / whole,
        "forward": full * machine.forward * less / whole,
        "backward": full * machine.backward * less / whole,
    }
    working = sum(seconds.values())
    pushing = exchange_seconds(network, machine, size, steps) if peers and len(workload.fanouts) > 1 else 0.0
    summing = 2 * steps if peers and gradients else 0
    seconds["gradients"] = exchange_seconds(network, machine, gradients, summing)
    seconds["push"] = max(0.0, pushing - working)
    kept = workload.nodes * peers / probe.ranks * shared
    kept = kept if settings.lines is None else min(kept, settings.lines)
    features = kept * (workload.features + _ROW_ID)
    hides = min(pushing, working)
    return HistoricalPrediction(steps, edges, pushed, size, gradients, features, seconds, hides)


def _local_minibatch(work: Workload, means: MinibatchMeans, cut: float) -> tuple[list[float], float, float]:
    """Returns a minibatch without in-edges of halo nodes: (own nodes by hop, seeds first; halo
    nodes; edges). Each hop is taken to find as many nodes per expanded node as with all in-edges,
    which is too many if minibatches find most nodes several times."""
    within, asked = means.expanded - work.batch_size, means.asked[1:]
    shares = [one / sum(asked) if sum(asked) else 1 / len(asked) for one in asked]
    frontiers = [float(work.batch_size), *(within * share for share in shares), means.nodes - means.expanded]
    mean = means.edges / means.expanded if means.expanded else 0.0
    sampled = [edges / one if one else mean for edges, one in zip(means.answered[1:], asked, strict=True)]
    sampled.insert(0, max(0.0, means.edges - sum(map(operator.mul, frontiers[1:], sampled))) / frontiers[0])
    own, halo, edges = [frontiers[0]], 0.0, 0.0
    for (before, after), each in zip(pairwise(frontiers), sampled, strict=True):
        found = own[-1] * after / before if before else 0.0
        edges += own[-1] * each
        own.append(found * (1 - cut))
        halo += found * cut
    return own, halo, edges
