"""Predictions: rounds, rows, bytes, memory and seconds of an epoch, as functions of numbers.

Macrobatching after BatchGNN's appendix A: minibatches cost the same topology data whatever B, the incidental
cost of a relay once a macrobatch, and features the union of what a fetch group needs. The aggregation cache
after appendix C: the last hop is not sampled, and the nodes that are left have rows twice as wide.
"""

from __future__ import annotations

import math
from collections import defaultdict

from pyg_batchgnn.planner.machine import PlannerMachine, PlannerNetwork
from pyg_batchgnn.planner.memory import memory_of
from pyg_batchgnn.planner.seconds import Traffic, seconds_of
from pyg_batchgnn.planner.setting import PlannerSetting, Prediction, Rounds, rounds, row_bytes, sizes
from pyg_batchgnn.planner.workload import MinibatchMeans, PlannerProbe, Workload

#: Bytes that a minibatch adds to a question, and a message to what it holds, at most.
_BLOCK, _MESSAGE = 12, 25


def predict(
    workload: Workload,
    probe: PlannerProbe,
    machine: PlannerMachine,
    network: PlannerNetwork,
    setting: PlannerSetting,
) -> Prediction:
    """An epoch with a setting, of the rank that has the most to do."""
    minibatches = workload.minibatches(probe.seeds)
    depth = probe.full if setting.aggregation is None else probe.inner
    groups = _groups(workload, probe, setting)
    kept = setting.feature_cache / (row_bytes(workload, setting) + 8)
    full = workload.fullness(probe.seeds)
    unique = sum(often * depth.distinct.distinct(group) for group, often in groups.items())
    rows = sum(often * depth.remote.missed(group, kept) for group, often in groups.items())
    told = rounds(workload, probe, setting, minibatches)
    traffic = Traffic(
        topology=_topology_bytes(workload, probe, depth, setting, minibatches * full, told),
        rows=rows,
        row_bytes=row_bytes(workload, setting),
        id_bytes=workload.id_bytes,
        unique=unique,
    )
    gradients = 2 * 4.0 * workload.parameters * (probe.ranks - 1) / probe.ranks * minibatches
    seconds = seconds_of(workload, probe, machine, network, setting, told, traffic, depth, gradients)
    memory = memory_of(workload, probe, machine, setting, depth)
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


def _groups(workload: Workload, probe: PlannerProbe, setting: PlannerSetting) -> dict[float, float]:
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


def _topology_bytes(
    workload: Workload,
    probe: PlannerProbe,
    depth: MinibatchMeans,
    setting: PlannerSetting,
    minibatches: float,
    told: Rounds,
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
