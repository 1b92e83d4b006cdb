"""The seconds of an epoch by phase, from what is sampled, gathered and sent."""

from __future__ import annotations

from dataclasses import dataclass

from pyg_batchgnn.planner.machine import PlannerMachine, PlannerNetwork, exchange_seconds
from pyg_batchgnn.planner.setting import PlannerSetting, Rounds
from pyg_batchgnn.planner.workload import MinibatchMeans, PlannerProbe, Workload


@dataclass(frozen=True)
class Traffic:
    """The traffic of an epoch.

    Attributes:
        topology: bytes of topology that a rank receives.
        rows: remote rows.
        received: bytes of remote rows.
        id_bytes: bytes per node id.
        unique: distinct nodes of all fetch groups.
        block: bytes of their rows.
    """

    topology: float
    rows: float
    received: float
    id_bytes: int
    unique: float
    block: float

    @property
    def features(self) -> float:
        """Bytes received: rows, and one id per row that other ranks ask for."""
        return self.received + self.rows * self.id_bytes

    @property
    def row_bytes(self) -> float:
        """The mean bytes of a row."""
        return self.block / self.unique if self.unique else 0.0


def seconds_of(
    workload: Workload,
    probe: PlannerProbe,
    machine: PlannerMachine,
    network: PlannerNetwork,
    setting: PlannerSetting,
    exchanges: Rounds,
    traffic: Traffic,
    means: MinibatchMeans,
    gradients: float,
) -> dict[str, float]:
    """Returns the seconds by phase.

    Sampling and gathering take cores, which ranks may share.
    """
    steps = workload.minibatches(probe.seeds)
    together = min(setting.macrobatch or steps, steps)
    made, minibatches = -(-steps // max(together, 1)), steps * workload.fullness(probe.seeds)
    sampling, whole = machine.speedup(together), machine.speedup(machine.cores)
    edge = machine.local_edge if setting.hybrid or probe.ranks == 1 else machine.relay_edge
    block, received = traffic.block, traffic.received
    gathering = (block - received) * machine.gather + received * (machine.gather + machine.copy)
    gathering += minibatches * means.nodes * (machine.node + traffic.row_bytes * machine.export)

    less = 0.0 if setting.aggregation is None else machine.first_layer
    return {
        "sample": minibatches * means.edges * edge / sampling
        + made * machine.macrobatch / min(machine.cores, 1),
        "relay": exchange_seconds(network, machine, traffic.topology, exchanges.topology + exchanges.lookup),
        "gather": max(gathering / whole, (block + received) / machine.memory_rate),
        "fetch": exchange_seconds(
            network, machine, traffic.features, exchanges.features if probe.hosts > 1 else 0
        ),
        "forward": minibatches * machine.forward * (1 - less) / whole,
        "backward": minibatches * machine.backward * (1 - less) / whole,
        "gradients": exchange_seconds(
            network, machine, gradients, 2 * steps if probe.ranks > 1 and gradients else 0
        ),
    }
