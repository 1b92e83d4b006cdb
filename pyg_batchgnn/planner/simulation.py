"""The memory that preparing minibatches takes, from a simulation with sizes alone.

The simulation takes and gives back blocks in the order of `sample.PartitionedSampler` and
`fetch.RemoteFetcher`.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence

from pyg_batchgnn.planner.blocks import Block, Blocks
from pyg_batchgnn.planner.setting import PlannerSetting, row_bytes
from pyg_batchgnn.planner.workload import MinibatchMeans, PlannerProbe, Workload

#: The epochs that are simulated, and the macrobatches of each. What is kept grows for some dozens
#: of steps.
_EPOCHS, _MACROBATCHES = 2, 64
#: Bytes per distinct node for telling cached rows from others: its position, 3 vectors of ids, a
#: mark.
_SPLITTING = 8 + 3 * 8 + 1


def simulate_memory(
    workload: Workload,
    probe: PlannerProbe,
    setting: PlannerSetting,
    means: MinibatchMeans,
    macrobatches: Sequence[Sequence[Sequence[float]]],
) -> float:
    """Returns the bytes at the peak.

    Args:
        workload, probe, setting: what is prepared.
        means: the sizes of its minibatches.
        macrobatches: the minibatches of each fetch group of each macrobatch, as shares of a whole
            minibatch.
    """
    simulation = _MemorySimulation(workload, probe, setting, means)
    for _ in range(_EPOCHS):
        for groups in macrobatches[:_MACROBATCHES]:
            sampled = iter(simulation.sample([share for group in groups for share in group]))
            for group in groups:
                simulation.fetch(group, [next(sampled) for _ in group])
        simulation.let_go()
    return simulation.blocks.peak + simulation.ids


class _MemorySimulation:
    """The memory of one rank.

    Attributes:
        blocks: the package's memory.
        ids: bytes of the largest group's ids, which are in torch's memory.
    """

    def __init__(
        self, workload: Workload, probe: PlannerProbe, setting: PlannerSetting, means: MinibatchMeans
    ) -> None:
        self._workload, self._probe, self._setting, self._means = workload, probe, setting, means
        self._widths = row_bytes(workload, setting)
        self._kept_rows = means.remote.kept(setting.feature_cache, self._widths)
        self.blocks, self.ids = Blocks(), 0.0
        self._held: list[Block] = []  # what the user holds: a minibatch and the block that it points into
        self._take(8 * 2 ** math.ceil(math.log2(1.5 * max(means.nodes, 2))))  # local ids by node
        self._take(workload.nodes / 4)  # one bit per node, and the number of set bits before each word

    def _take(self, *sizes: float) -> list[Block]:
        return [self.blocks.take(size) for size in sizes]

    def sample(self, shares: Sequence[float]) -> list[list[Block]]:
        """Samples a macrobatch.

        Returns:
            The blocks of each minibatch: its nodes, with room for one node per edge of the last
                hop; the ends of the destinations' edges; and the edges.
        """
        messages: list[Block] = []
        if not self._setting.hybrid and self._probe.ranks > 1:
            for hop in range(self._workload.first_relay, len(self._means.asked)):
                self.blocks.give(*messages)
                messages = self._relay(sum(shares), hop)
        sizes = (8 * self._means.room, 8 * (self._means.expanded + 1), 4 * self._means.edges)
        sampled = [self._take(*(share * size for size in sizes)) for share in shares]
        self.blocks.give(*messages)
        return sampled

    def _relay(self, minibatches: float, hop: int) -> list[Block]:
        """Simulates the questions and answers of one hop. This rank answers as much as it asks.

        Returns:
            The blocks that are left when the answers have been read.
        """
        others = self._probe.ranks - 1
        asked = minibatches * self._means.asked[hop]
        picked = minibatches * self._means.answered[hop]
        counts = minibatches * self._means.sections[hop] * self._workload.count_bytes[hop]
        questions = asked * self._workload.id_bytes
        answers = counts + picked * self._workload.id_bytes
        left = self._take(4 * asked * (1 + 1 / others), questions, questions / others, answers / others)
        theirs = self._take(questions, answers)
        left += self._take(answers)
        self.blocks.give(*theirs)
        return left

    def fetch(self, shares: Sequence[float], group: Sequence[list[Block]]) -> None:
        """Fetches the rows of a group. Then the user takes its minibatches one after the other."""
        work, setting, each = self._workload, self._setting, sum(shares)
        splitting = _SPLITTING if setting.feature_cache else 0
        distinct = self._means.distinct.distinct_by_type(each)
        missed = self._means.remote.missed(each, self._kept_rows)
        away, wire = sum(missed), sum(map(operator.mul, missed, self._widths))
        positions = [8 * share * self._means.nodes for share in shares]
        rows, unique = self._take(*positions), self._take(*(8 * count for count in distinct))
        asked, answers, received = self._take(work.id_bytes * away, wire, wire)
        tables, others = [], 0.0
        for one, width, count in zip(work.types, self._widths, distinct, strict=True):
            tables += [one.features * count] * (width // one.features if one.features else 0)
            others += (one.attributes + work.id_bytes) * count
        # What was sent is held until now. The transport's own memory shows in what is kept
        # afterwards.
        block = self._take(*tables, others)
        self.blocks.give(received, asked, answers)
        if setting.feature_cache:
            rows, before = self._take(*positions), rows
            self.blocks.give(*before)
        if not setting.hybrid:
            for minibatch, node in zip(group, self._take(*positions), strict=True):
                self.blocks.give(minibatch[0])
                minibatch[0] = node
        self.blocks.give(*unique)
        self.ids = max(self.ids, (16 + splitting) * sum(distinct) + 2 * work.id_bytes * away)
        self.let_go()
        *taken, last = [[*arrays, row] for arrays, row in zip(group, rows, strict=True)]
        for arrays in taken:
            self.blocks.give(*arrays)
        self._held = [*block, *last]

    def let_go(self) -> None:
        """Gives back the last minibatch, with which the user is done."""
        self.blocks.give(*self._held)
        self._held = []
