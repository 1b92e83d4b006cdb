"""Seconds of an epoch by phase, from what is sampled, gathered and sent."""

from __future__ import annotations

from dataclasses import dataclass

from pyg_batchgnn.planner.machine import PlannerMachine, PlannerNetwork
from pyg_batchgnn.planner.setting import PlannerSetting, Rounds
from pyg_batchgnn.planner.workload import MinibatchMeans, PlannerProbe, Workload


@dataclass(frozen=True)
class Traffic:
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


def seconds_of(
    workload: Workload,
    probe: PlannerProbe,
    machine: PlannerMachine,
    network: PlannerNetwork,
    setting: PlannerSetting,
    told: Rounds,
    traffic: Traffic,
    depth: MinibatchMeans,
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

    less = 0.0 if setting.aggregation is None else machine.first_layer
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
