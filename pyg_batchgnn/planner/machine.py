"""The speeds of a rank's machine and network: measured here, or given for another cluster."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

#: The share of the links' rate that an uneven all-to-all over TCP reached between four hosts at
#: 1 Gbit/s, on one graph (the arxiv-like one of the benchmarks).
ALL_TO_ALL = 0.6


@dataclass(frozen=True)
class PlannerNetwork:
    """The links between hosts.

    Attributes:
        bandwidth: bytes per second that a host sends, and receives at the same time.
        latency: seconds that a message takes from one host to another.
        efficiency: the share of the bandwidth that exchanges between all hosts reach.
    """

    bandwidth: float
    latency: float = 1e-4
    efficiency: float = ALL_TO_ALL

    @property
    def rate(self) -> float:
        """Bytes per second in an exchange."""
        return self.bandwidth * self.efficiency


@dataclass(frozen=True)
class PlannerMachine:
    """The speeds of one core, and the cores and memory of one rank.

    Attributes:
        cores: cores per rank, 0.5 where two ranks share a core.
        memory: bytes that a rank may use, 0 for no limit.
        relay_edge: seconds per edge to sample a minibatch over ranks.
        local_edge: seconds per edge to sample a minibatch from the whole topology.
        node: seconds per node of a minibatch to find the distinct nodes.
        gather: seconds per byte of rows that are gathered at random.
        copy: seconds per byte of rows that are copied in order.
        export: seconds per byte of features that are copied once more for each minibatch. 0 where
            layers read them in place, as the native layers do.
        wire: seconds per byte that goes through a socket, at one end.
        exchange: seconds that an exchange takes on a rank, whatever it carries.
        macrobatch: further seconds per macrobatch.
        forward, backward: seconds of a training step, for a minibatch of the probed size.
        first_layer: the share of a training step that aggregating the input takes.
        resident: bytes of a process that holds no graph.
        parallel: the share of a linear speed-up that several cores reach.
        memory_rate: bytes per second that all cores of a rank gather together.
    """

    cores: float = 1.0
    memory: float = 0.0
    relay_edge: float = 4e-8
    local_edge: float = 6e-8
    node: float = 1e-8
    gather: float = 2.5e-10
    copy: float = 1.5e-10
    export: float = 0.0
    wire: float = 3e-10
    exchange: float = 1.5e-3
    macrobatch: float = 1e-3
    forward: float = 0.0
    backward: float = 0.0
    first_layer: float = 0.2
    resident: float = 3.0e8
    parallel: float = 0.85
    memory_rate: float = 1e12

    def speedup(self, tasks: float) -> float:
        """Returns the speed-up of a rank over one core, for work in ``tasks`` tasks."""
        if self.cores <= 1:
            return self.cores
        used = min(self.cores, max(tasks, 1.0))
        return max(1.0, used * self.parallel) if used > 1 else 1.0

    def on(self, cores: float, memory: float) -> PlannerMachine:
        """Returns a machine with the same speeds and other cores and memory."""
        return dataclasses.replace(self, cores=cores, memory=memory)


def exchange_seconds(network: PlannerNetwork, machine: PlannerMachine, size: float, number: int) -> float:
    """Returns the seconds of ``number`` exchanges in which a rank receives ``size`` bytes together.

    They take the link or the cores that copy the bytes, whichever is slower.
    """
    moving = max(size / network.rate, 2 * size * machine.wire / machine.speedup(machine.cores))
    return moving + number * (2 * network.latency + machine.exchange / min(machine.cores, 1))
