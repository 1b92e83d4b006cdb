"""The memory of a rank's process."""

from __future__ import annotations

from pyg_batchgnn.planner.machine import PlannerMachine
from pyg_batchgnn.planner.setting import PlannerSetting, sizes
from pyg_batchgnn.planner.simulation import simulate_memory
from pyg_batchgnn.planner.workload import MinibatchMeans, PlannerProbe, Workload

#: Bytes per in-edge of a part for choosing the rows of a feature cache.
_CHOOSING = 28
#: The vectors of 8-byte numbers that a loader has of the training nodes: all of them, the rank's
#: own, their internal ids, an epoch's order, and the seeds of its minibatches.
_SEED_VECTORS = 5


def part_bytes(workload: Workload, probe: PlannerProbe, setting: PlannerSetting) -> float:
    """Returns the bytes of a rank's part: attributes, ids, in-edges, its slice of the directory."""
    features = workload.features * (1 if setting.aggregation is None else 2)
    node = features + workload.attributes + 8 + 8 + 2 * workload.id_bytes
    held = probe.part_nodes * node + probe.part_edges * (workload.id_bytes + workload.edge_bytes)
    if not setting.hybrid:
        return held
    whole = workload.nodes * (8 + workload.id_bytes)
    return held + whole + workload.edges * (workload.id_bytes + workload.edge_bytes)


def memory_of(
    workload: Workload,
    probe: PlannerProbe,
    machine: PlannerMachine,
    setting: PlannerSetting,
    means: MinibatchMeans,
) -> float:
    """Returns the peak bytes of the process of the rank with the most training nodes.

    They are the bytes of its part, and the most that preparing minibatches takes
    (`simulate_memory`).
    """
    busiest = max(workload.seeds_of(probe.seeds), key=sum)
    shares = iter(seeds / workload.batch_size for seeds in busiest)
    made = [
        [[next(shares) for _ in range(group)] for group in groups]
        for groups in sizes(len(busiest), setting.macrobatch, setting.fetch)
    ]
    working = simulate_memory(workload, probe, setting, means, made)
    choosing = _CHOOSING * probe.part_edges if setting.feature_cache else 0
    graph = part_bytes(workload, probe, setting) + setting.feature_cache
    return machine.resident + graph + _SEED_VECTORS * 8 * sum(probe.seeds) + max(working, choosing)
