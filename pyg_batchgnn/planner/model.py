"""Predictions: rounds, rows, bytes, memory and seconds of an epoch, as functions of numbers.

Macrobatching follows BatchGNN's appendix A. The topology data per minibatch does not depend on B.
The fixed cost of a relay is paid once per macrobatch. Features cost the union of what a fetch group
needs. The aggregation cache follows appendix C. The last hop is not sampled, and the rows of the
nodes that are left are twice as wide.
"""

from __future__ import annotations

import operator
from collections import defaultdict

from pyg_batchgnn.planner.machine import PlannerMachine, PlannerNetwork
from pyg_batchgnn.planner.memory import memory_of
from pyg_batchgnn.planner.seconds import Traffic, seconds_of
from pyg_batchgnn.planner.setting import PlannerSetting, Prediction, Rounds, rounds, row_bytes, sizes
from pyg_batchgnn.planner.workload import MinibatchMeans, PlannerProbe, Workload

#: The bytes of the key with which a minibatch's question begins, before its numbers of nodes, and
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
    minibatches = workload.minibatches(probe.seeds)
    means = probe.full if setting.aggregation is None else probe.inner
    groups = _groups(workload, probe, setting)
    widths, full = row_bytes(workload, setting), workload.fullness(probe.seeds)
    kept = means.remote.kept(setting.feature_cache, widths)
    unique, rows = [0.0] * len(widths), [0.0] * len(widths)
    for group, often in groups.items():
        distinct, missed = means.distinct.distinct_by_type(group), means.remote.missed(group, kept)
        for at, width in enumerate(widths):
            if width:  # types without attributes are not asked for
                unique[at] += often * distinct[at]
                rows[at] += often * missed[at]
    exchanges = rounds(workload, probe, setting, minibatches)
    traffic = Traffic(
        topology=_topology_bytes(workload, probe, means, setting, minibatches * full, exchanges),
        rows=sum(rows),
        received=sum(map(operator.mul, rows, widths)),
        id_bytes=workload.id_bytes,
        unique=sum(unique),
        block=sum(map(operator.mul, unique, widths)),
    )
    gradients = 2 * 4.0 * workload.parameters * (probe.ranks - 1) / probe.ranks * minibatches
    seconds = seconds_of(workload, probe, machine, network, setting, exchanges, traffic, means, gradients)
    memory = memory_of(workload, probe, machine, setting, means)
    return Prediction(
        setting,
        minibatches,
        exchanges,
        traffic.rows,
        traffic.topology,
        traffic.features,
        gradients,
        memory,
        seconds,
        not machine.memory or memory <= machine.memory,
    )


def _groups(workload: Workload, probe: PlannerProbe, setting: PlannerSetting) -> dict[float, float]:
    """Returns the mean number of fetch groups per rank, by their size in whole minibatches."""
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
    means: MinibatchMeans,
    setting: PlannerSetting,
    minibatches: float,
    exchanges: Rounds,
) -> float:
    """Returns the bytes of questions and answers, with the fixed bytes of their messages."""
    if setting.hybrid or probe.ranks == 1:
        return 0.0
    first = workload.first_relay
    asked, answered = sum(means.asked[first:]), sum(means.answered[first:])
    counts = sum(map(operator.mul, means.sections[first:], workload.count_bytes[first:]))
    hops = len(means.asked) - first
    data = (asked + answered) * workload.id_bytes + counts
    blocks = (_KEY + workload.id_bytes * len(workload.types)) * hops * (probe.ranks - 1)
    return minibatches * (data + blocks) + exchanges.topology / 2 * (probe.ranks - 1) * _MESSAGE
