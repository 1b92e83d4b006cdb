"""An epoch with historical embeddings (DistGNN-MB), as functions of numbers.

A minibatch stops at the border of the part. A rank pushes hidden rows to its peers in every step,
beside which it trains on.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from itertools import accumulate
from typing import Any

from pyg_batchgnn.history import HistoricalSettings
from pyg_batchgnn.planner.machine import PlannerMachine, PlannerNetwork, exchange_seconds
from pyg_batchgnn.planner.workload import MinibatchMeans, PlannerProbe, Workload

#: The bytes of a row's original id, and of a number of a hidden row.
_ID, _NUMBER = 8, 4


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
    def epoch(self) -> float:
        """Seconds of all phases together."""
        return sum(self.seconds.values())

    def as_dict(self) -> dict[str, Any]:
        """Returns plain values, for JSON."""
        return {**asdict(self), "epoch": self.epoch}


@dataclass(frozen=True)
class _LocalMinibatch:
    """A minibatch of a part and its halo.

    Attributes:
        own: by hop, the own nodes that it finds; seeds first.
        halo: the halo nodes that it finds.
        edges: its edges.
    """

    own: list[float]
    halo: float
    edges: float


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
        settings: of the caches.
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
    size = pushed * (_ID + _NUMBER * hidden)
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
    """Returns the minibatch that is left if halo nodes are not expanded.

    Each hop finds as many nodes per expanded node as in the exact mode. That is too many where
    minibatches of the exact mode find most nodes several times.
    """
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
    return kept * (workload.features + _ID)
