"""Bytes that a rank's process takes."""

from __future__ import annotations

from pyg_batchgnn.planner.machine import Machine
from pyg_batchgnn.planner.setting import Setting, row_bytes, sizes
from pyg_batchgnn.planner.workload import Depth, Probe, Workload

#: Memory that is kept for use again, by what is in use: of fetch groups, where one follows another of another
#: size; of minibatches.
_KEPT, _LARGER = 1.3, 1.5
#: What choosing the rows of a feature cache takes for each in-edge of a part.
_CHOOSING = 28


def part_bytes(workload: Workload, probe: Probe, setting: Setting) -> float:
    """Of what a rank holds of the graph: attributes, ids, lists of in-edges, its slice of the directory."""
    features = workload.features * (2 if setting.aggregation else 1)
    node = features + workload.attributes + 8 + 8 + 2 * workload.id_bytes
    held = probe.part_nodes * node + probe.part_edges * (workload.id_bytes + workload.edge_bytes)
    if not setting.hybrid:
        return held
    whole = workload.nodes * (8 + workload.id_bytes)
    return held + whole + workload.edges * (workload.id_bytes + workload.edge_bytes)


def memory_of(
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
