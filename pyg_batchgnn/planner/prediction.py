"""Predictions: rounds, rows, bytes, memory and seconds of an epoch, as functions of numbers.

Macrobatching follows BatchGNN's appendix A. The topology data per minibatch does not depend on B.
The fixed cost of a relay is paid once per macrobatch. Features cost the union of what a fetch group
needs. The aggregation cache follows appendix C. The last hop is not sampled, and the rows of the
nodes that are left are twice as wide.
"""

from __future__ import annotations

import math
import operator
from collections import defaultdict
from dataclasses import asdict, dataclass
from itertools import accumulate
from typing import Any

from pyg_batchgnn.history import HistoricalSettings
from pyg_batchgnn.planner.machine import PlannerMachine, PlannerNetwork, exchange_seconds
from pyg_batchgnn.planner.workload import (
    MinibatchMeans,
    PlannerProbe,
    PlannerSetting,
    Prediction,
    Rounds,
    Workload,
    rounds,
    row_bytes,
    sizes,
)

#: Bytes per in-edge of a part for choosing the rows of a feature cache.
_CHOOSING = 28
#: The vectors of 8-byte numbers that a loader has of the training nodes: all of them, the rank's
#: own, their internal ids, an epoch's order, and the seeds of its minibatches.
_SEED_VECTORS = 5
#: The margin for blocks that are kept for later minibatches: a share of what preparing takes, and
#: bytes that the package's allocator always keeps. With it, predictions for 36 settings on three
#: graphs were between 5 % below and 17 % above what a rank's process took.
_MARGIN, _ALWAYS_KEPT = 0.25, 16 << 20
#: The bytes of the key with which a minibatch's request begins, before its numbers of nodes, and
#: the most bytes that a message adds to its content.
_KEY, _MESSAGE = 8, 25


def predict(
    workload: Workload,
    probe: PlannerProbe,
    machine: PlannerMachine,
    network: PlannerNetwork,
    setting: PlannerSetting,
) -> Prediction:
    """Predicts an epoch with a setting, for the rank that has the most work."""
    epoch = _Epoch(workload, probe, machine, network, setting)
    fetched, exchanges = epoch.fetched(), rounds(workload, probe, setting, epoch.steps)
    topology = epoch.topology_bytes(exchanges)
    features = fetched.received + fetched.rows * workload.id_bytes  # one id per row is asked for
    gradients = 2 * 4.0 * workload.parameters * (probe.ranks - 1) / probe.ranks * epoch.steps
    memory = epoch.memory()
    return Prediction(
        setting,
        epoch.steps,
        exchanges,
        fetched.rows,
        topology,
        features,
        gradients,
        memory,
        epoch.seconds(exchanges, fetched, topology, features, gradients),
        not machine.memory or memory <= machine.memory,
    )


@dataclass(frozen=True)
class _Fetched:
    """The rows of all fetch groups of an epoch."""

    rows: float  # the number of remote rows
    received: float  # their bytes
    unique: float  # the number of distinct nodes
    block: float  # the bytes of their rows


@dataclass(frozen=True, eq=False)
class _Epoch:
    """An epoch with a setting. The attributes are the arguments of `predict`."""

    workload: Workload
    probe: PlannerProbe
    machine: PlannerMachine
    network: PlannerNetwork
    setting: PlannerSetting

    @property
    def means(self) -> MinibatchMeans:
        """The sizes of its minibatches."""
        return self.probe.full if self.setting.aggregation is None else self.probe.inner

    @property
    def steps(self) -> int:
        """The number of minibatches of a rank."""
        return self.workload.minibatches(self.probe.seeds)

    @property
    def minibatches(self) -> float:
        """The number of minibatches of a rank, a smaller one as a part of one."""
        return self.steps * self.workload.fullness(self.probe.seeds)

    @property
    def is_topology_here(self) -> bool:
        """True if no rank asks another one for edges."""
        return self.setting.hybrid or self.probe.ranks == 1

    def fetched(self) -> _Fetched:
        """Returns the mean over ranks."""
        means, widths = self.means, row_bytes(self.workload, self.setting)
        kept = means.remote.kept(self.setting.feature_cache, widths)
        unique, rows = [0.0] * len(widths), [0.0] * len(widths)
        for group, often in self._groups().items():
            distinct, missed = means.distinct.distinct_by_type(group), means.remote.missed(group, kept)
            for at, width in enumerate(widths):
                if width:  # types without attributes are not asked for
                    unique[at] += often * distinct[at]
                    rows[at] += often * missed[at]
        received, block = (sum(map(operator.mul, counts, widths)) for counts in (rows, unique))
        return _Fetched(sum(rows), received, sum(unique), block)

    def _groups(self) -> dict[float, float]:
        """Returns the mean number of fetch groups per rank, by their size in whole minibatches."""
        made = sizes(self.steps, self.setting.macrobatch, self.setting.fetch)
        found: defaultdict[float, float] = defaultdict(float)
        for seeds in self.workload.seeds_of(self.probe.seeds):
            first = 0
            for group in (group for one in made for group in one):
                found[sum(seeds[first : first + group]) / self.workload.batch_size] += 1 / self.probe.ranks
                first += group
        return found

    def topology_bytes(self, exchanges: Rounds) -> float:
        """Returns the bytes of requests and responses, with the fixed bytes of their messages."""
        if self.is_topology_here:
            return 0.0
        work, means, others = self.workload, self.means, self.probe.ranks - 1
        first = work.first_relay
        asked, answered = sum(means.asked[first:]), sum(means.answered[first:])
        counts = sum(map(operator.mul, means.sections[first:], work.count_bytes[first:]))
        hops = len(means.asked) - first
        data = (asked + answered) * work.id_bytes + counts
        blocks = (_KEY + work.id_bytes * len(work.types)) * hops * others
        return self.minibatches * (data + blocks) + exchanges.topology / 2 * others * _MESSAGE

    def seconds(
        self, exchanges: Rounds, fetched: _Fetched, topology: float, features: float, gradients: float
    ) -> dict[str, float]:
        """Returns the seconds by phase."""
        machine, means, minibatches, steps = self.machine, self.means, self.minibatches, self.steps
        together = min(self.setting.macrobatch or steps, steps)
        made = -(-steps // max(together, 1))
        whole, edge = machine.speedup(machine.cores), machine.relay_edge
        if self.is_topology_here:
            edge = machine.local_edge
        block, received = fetched.block, fetched.received
        width = block / fetched.unique if fetched.unique else 0.0
        gathering = (block - received) * machine.gather + received * (machine.gather + machine.copy)
        gathering += minibatches * means.nodes * (machine.node + width * machine.export)
        left = 1 - (0.0 if self.setting.aggregation is None else machine.first_layer)
        summing = 2 * steps if self.probe.ranks > 1 and gradients else 0
        return {
            "sample": minibatches * means.edges * edge / machine.speedup(together)
            + made * machine.macrobatch / min(machine.cores, 1),
            "relay": self._exchange(topology, exchanges.topology + exchanges.lookup),
            "gather": max(gathering / whole, (block + received) / machine.memory_rate),
            "fetch": self._exchange(features, exchanges.features if self.probe.hosts > 1 else 0),
            "forward": minibatches * machine.forward * left / whole,
            "backward": minibatches * machine.backward * left / whole,
            "gradients": self._exchange(gradients, summing),
        }

    def _exchange(self, size: float, number: int) -> float:
        return exchange_seconds(self.network, self.machine, size, number)

    def memory(self) -> float:
        """Returns the peak bytes of the process of the rank with the most training nodes."""
        choosing = _CHOOSING * self.probe.part_edges if self.setting.feature_cache else 0
        graph = self._part_bytes() + self.setting.feature_cache
        working = (1 + _MARGIN) * self._preparing_bytes() + _ALWAYS_KEPT
        seeds = _SEED_VECTORS * 8 * sum(self.probe.seeds)
        return self.machine.resident + graph + seeds + max(working, choosing)

    def _part_bytes(self) -> float:
        """Returns the bytes of a rank's part: attributes, ids, in-edges, directory slice."""
        work, probe = self.workload, self.probe
        features = work.features * (1 if self.setting.aggregation is None else 2)
        node = features + work.attributes + 8 + 8 + 2 * work.id_bytes
        held = probe.part_nodes * node + probe.part_edges * (work.id_bytes + work.edge_bytes)
        if not self.setting.hybrid:
            return held
        whole = work.nodes * (8 + work.id_bytes)
        return held + whole + work.edges * (work.id_bytes + work.edge_bytes)

    def _preparing_bytes(self) -> float:
        """Returns the bytes that are in use at once while minibatches are prepared. While a group
        is made, the user has the last minibatch of the group before it."""
        work, means, setting = self.workload, self.means, self.setting
        busiest = max(work.seeds_of(self.probe.seeds), key=sum)
        groups = [one for made in sizes(len(busiest), setting.macrobatch, setting.fetch) for one in made]
        shares = sorted((seeds / work.batch_size for seeds in busiest), reverse=True)
        together = sum(shares[: setting.macrobatch or len(shares)])
        fetched = sum(shares[: max(groups, default=0)])
        minibatch = 8 * means.room + 8 * (means.expanded + 1) + 4 * means.edges

        widths = row_bytes(work, setting)
        missed = means.remote.missed(fetched, means.remote.kept(setting.feature_cache, widths))
        distinct = means.distinct.distinct_by_type(fetched)
        block = sum(map(operator.mul, distinct, widths))
        travelling = 2 * sum(map(operator.mul, missed, widths)) + 2 * work.id_bytes * sum(missed)
        positions = 8 * fetched * means.nodes * (1 if setting.hybrid else 2)
        fetching = block + travelling + positions + 24 * sum(distinct)

        local_ids = 8 * 2 ** math.ceil(math.log2(1.5 * max(means.nodes, 2)))
        marks = work.nodes / 4  # one bit per node, and the number of set bits before each word
        before = block + 8 * means.nodes + minibatch if len(groups) > 1 else 0.0
        relaying = 0.0 if self.is_topology_here else together * self._message_bytes()
        return local_ids + marks + before + together * minibatch + max(relaying, fetching)

    def _message_bytes(self) -> float:
        """Returns the bytes of requests and responses per minibatch in the largest hop."""
        work, means = self.workload, self.means
        found = [0.0]
        for hop in range(work.first_relay, len(means.asked)):
            counts = means.sections[hop] * work.count_bytes[hop]
            found.append(2 * (means.asked[hop] + means.answered[hop]) * work.id_bytes + 2 * counts)
        return max(found)


# Historical embeddings (DistGNN-MB): a minibatch stops at the border of the part, and a rank pushes
# hidden rows to its peers in every step, beside which it trains on.


#: The bytes of a row's original id, and of a number of a hidden row.
_ROW_ID, _NUMBER = 8, 4


@dataclass(frozen=True)
class HistoricalPrediction:
    """A prediction for one epoch of one rank with historical embeddings.

    Attributes:
        minibatches: the number of minibatches of a rank, of steps, and of exchanges of pushed rows.
        edges: the edges of a minibatch, for one in the exact mode see the probe.
        pushed_rows: the rows that a rank pushes.
        pushed_bytes: their bytes, ids included.
        gradient_bytes: the bytes of gradients that a rank receives.
        feature_bytes: the bytes of features that a rank fetches once, before the first epoch.
        seconds: seconds by phase: sampling, gathering, forward, backward, exchanging gradients, and
            waiting for pushed rows that training does not hide.
        hidden_seconds: the seconds of pushing that training hides.
    """

    minibatches: int
    edges: float
    pushed_rows: float
    pushed_bytes: float
    gradient_bytes: float
    feature_bytes: float
    seconds: dict[str, float]
    hidden_seconds: float

    @property
    def preparation(self) -> float:
        """Seconds that preparing the minibatches takes."""
        return self.seconds["sample"] + self.seconds["gather"]

    @property
    def epoch(self) -> float:
        """Seconds of all phases together."""
        return sum(self.seconds.values())

    def as_dict(self) -> dict[str, Any]:
        """Returns plain values, for JSON."""
        return {**asdict(self), "epoch": self.epoch}


@dataclass(frozen=True)
class _LocalMinibatch:
    """A minibatch of a part and its halo."""

    own: list[float]  # by hop, the own nodes that it finds; seeds first
    halo: float  # the halo nodes that it finds
    edges: float  # its edges


def predict_historical(
    workload: Workload,
    probe: PlannerProbe,
    machine: PlannerMachine,
    network: PlannerNetwork,
    settings: HistoricalSettings,
    hidden: int,
) -> HistoricalPrediction:
    """Predicts an epoch with historical embeddings, schedule ``local`` and minibatches one by one.

    Args:
        workload, probe, machine, network: as in `predict`; the probe is of own seeds.
        hidden: the columns of hidden rows.
    """
    means, peers = probe.full, probe.ranks - 1
    cut = remote_share(workload, means) if peers else 0.0
    local = _local_minibatch(workload, means, cut)
    steps = workload.minibatches(probe.seeds)
    full = steps * workload.fullness(probe.seeds)
    # The rows of layer l + 1's input are those of all hops but the last l.
    rows = list(accumulate(local.own))[1:-1][::-1]
    wanted = _share_in_halo(workload, cut, peers)
    most = math.inf if settings.push is None else settings.push
    pushed = full * peers * sum(min(most, each * wanted) for each in rows)
    size = pushed * (_ROW_ID + _NUMBER * hidden)
    gradients = 2 * 4.0 * workload.parameters * peers / probe.ranks * steps
    whole = machine.speedup(machine.cores)

    less = local.edges / means.edges if means.edges else 1.0
    copied = (sum(local.own) + local.halo) * workload.features
    seconds = {
        "sample": full * local.edges * machine.local_edge / machine.speedup(1),
        "gather": full * copied * (machine.gather + machine.copy) / whole,
        "forward": full * machine.forward * less / whole,
        "backward": full * machine.backward * less / whole,
    }
    pushing = exchange_seconds(network, machine, size, steps) if peers and len(workload.fanouts) > 1 else 0.0
    working = sum(seconds.values())
    seconds["gradients"] = exchange_seconds(
        network, machine, gradients, 2 * steps if peers and gradients else 0
    )
    seconds["push"] = max(0.0, pushing - working)
    return HistoricalPrediction(
        steps,
        local.edges,
        pushed,
        size,
        gradients,
        _feature_bytes(workload, probe, settings, cut),
        seconds,
        min(pushing, working),
    )


def remote_share(workload: Workload, means: MinibatchMeans) -> float:
    """Returns the share of other ranks' nodes among those that a minibatch finds."""
    found = means.nodes - workload.batch_size
    return min(1.0, means.remote.distinct(1) / found) if found > 0 else 0.0


def _local_minibatch(workload: Workload, means: MinibatchMeans, cut: float) -> _LocalMinibatch:
    """Returns the minibatch that is left if halo nodes are not expanded."""
    frontiers = [float(workload.batch_size)]
    last = means.nodes - means.expanded
    within = means.expanded - workload.batch_size
    asked = means.asked[1:]
    frontiers += [within * one / sum(asked) if sum(asked) else within / len(asked) for one in asked]
    frontiers.append(last)
    share = means.edges / means.expanded if means.expanded else 0.0
    pairs = zip(means.answered[1:], asked, strict=True)
    picks = [answered / one if one else share for answered, one in pairs]
    later = sum(nodes * each for nodes, each in zip(frontiers[1:], picks, strict=False))
    picks.insert(0, max(0.0, means.edges - later) / frontiers[0])
    own, halo, edges = [frontiers[0]], 0.0, 0.0
    for before, after, each in zip(frontiers, frontiers[1:], picks, strict=False):
        found = own[-1] * after / before if before else 0.0
        edges += own[-1] * each
        own.append(found * (1 - cut))
        halo += found * cut
    return _LocalMinibatch(own, halo, edges)


def _share_in_halo(workload: Workload, cut: float, peers: int) -> float:
    """Returns the share of a rank's nodes that are in a peer's halo, for edges at random."""
    return 1 - math.exp(-workload.edges / max(workload.nodes, 1) * cut / peers) if peers else 0.0


def _feature_bytes(
    workload: Workload, probe: PlannerProbe, settings: HistoricalSettings, cut: float
) -> float:
    """Returns the bytes of the features of halo nodes and of their ids."""
    others = workload.nodes * (probe.ranks - 1) / probe.ranks
    halo = others * _share_in_halo(workload, cut, probe.ranks - 1)
    kept = halo if settings.lines is None else min(halo, settings.lines)
    return kept * (workload.features + _ROW_ID)
