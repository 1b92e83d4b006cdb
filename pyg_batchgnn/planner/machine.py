"""How fast a rank's machine and network are: measured here, or given for another cluster."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

#: Share of its links' rate that an uneven all-to-all over TCP reached between four hosts at 1 Gbit/s, on one
#: graph (the arxiv-like one of the benchmarks).
ALL_TO_ALL = 0.6


@dataclass(frozen=True)
class PlannerNetwork:
    """Links between hosts.

    Attributes:
        bandwidth: bytes a second that a host sends, and receives at the same time.
        latency: seconds that a message takes from one host to another.
        efficiency: share of the bandwidth that exchanges between all hosts reach.
    """

    bandwidth: float
    latency: float = 1e-4
    efficiency: float = ALL_TO_ALL

    @property
    def rate(self) -> float:
        """Bytes a second in an exchange."""
        return self.bandwidth * self.efficiency


@dataclass(frozen=True)
class PlannerMachine:
    """What one core does, and how many a rank has.

    Attributes:
        cores: of a rank; 0.5 where two ranks share one.
        memory: bytes that a rank may use; 0: no limit.
        relay_edge: seconds to choose an edge and take it into a minibatch over ranks.
        local_edge: the same where the whole topology is here.
        node: seconds a node of a minibatch to find the distinct ones.
        gather: seconds a byte of rows gathered at random.
        copy: seconds a byte of rows copied in order.
        export: seconds a byte of features that are copied once more for each minibatch; 0 where layers read
            them in place, as ours do.
        wire: seconds a byte that goes through a socket, at one end.
        exchange: seconds that an exchange takes a rank, whatever it carries.
        macrobatch: seconds that a macrobatch takes beside that.
        forward, backward: seconds of a training step of a minibatch of the probed size.
        first_layer: share of a training step that aggregating the input takes.
        resident: bytes of a process that holds no graph.
        parallel: share of linear speed-up that several cores give.
        memory_rate: bytes a second that all cores of a rank together gather.
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
        """How much faster than one core a rank is at work that falls into so many tasks."""
        if self.cores <= 1:
            return self.cores
        used = min(self.cores, max(tasks, 1.0))
        return max(1.0, used * self.parallel) if used > 1 else 1.0

    def on(self, cores: float, memory: float) -> PlannerMachine:
        """The same cores, another number of them."""
        return dataclasses.replace(self, cores=cores, memory=memory)
