"""What preparing minibatches takes of memory: its steps played with sizes alone, in the order of
`sample.RelaySampler` and `fetch.RemoteFetch`."""

from __future__ import annotations

import math
from collections.abc import Sequence

from pyg_batchgnn.planner.blocks import Block, Blocks
from pyg_batchgnn.planner.setting import Setting, row_bytes
from pyg_batchgnn.planner.workload import Depth, Probe, Workload

#: Epochs that are played, and macrobatches of each: what is kept grows for some dozens of steps.
_EPOCHS, _MACROBATCHES = 2, 64
#: Of each distinct node, what telling cached rows from others takes: where it lies, 3 vectors of ids, a mark.
_SPLITTING = 8 + 3 * 8 + 1


def rehearse(
    workload: Workload,
    probe: Probe,
    setting: Setting,
    depth: Depth,
    macrobatches: Sequence[Sequence[Sequence[float]]],
) -> float:
    """Bytes at the peak.

    Args:
        workload, probe, setting: what is prepared.
        depth: what its minibatches are like.
        macrobatches: of every fetch group of each the minibatches, as shares of a whole one.
    """
    play = _Rehearsal(workload, probe, setting, depth)
    for _ in range(_EPOCHS):
        for groups in macrobatches[:_MACROBATCHES]:
            sampled = iter(play.sample([share for group in groups for share in group]))
            for group in groups:
                play.fetch(group, [next(sampled) for _ in group])
        play.let_go()
    return play.blocks.peak + play.ids


class _Rehearsal:
    """One rank.

    Attributes:
        blocks: the package's memory.
        ids: bytes of the largest group's ids in torch's memory.
    """

    def __init__(self, workload: Workload, probe: Probe, setting: Setting, depth: Depth) -> None:
        self._workload, self._probe, self._setting, self._depth = workload, probe, setting, depth
        self._wire = row_bytes(workload, setting)
        self._kept_rows = setting.feature_cache / (self._wire + 8)
        self.blocks, self.ids = Blocks(), 0.0
        self._held: list[Block] = []  # what the user has: a minibatch and the block that it points into
        self._take(8 * 2 ** math.ceil(math.log2(1.5 * max(depth.nodes, 2))))  # local ids by node
        self._take(workload.nodes / 4)  # a bit a node, and how many are set before each word

    def _take(self, *sizes: float) -> list[Block]:
        return [self.blocks.take(size) for size in sizes]

    def sample(self, shares: Sequence[float]) -> list[list[Block]]:
        """A macrobatch: of every minibatch the nodes, with room for one for each edge of the last hop, the
        ends of the destinations' edges, and the edges."""
        messages: list[Block] = []
        if not self._setting.hybrid and self._probe.ranks > 1:
            for hop in range(int(self._workload.own_seeds), len(self._depth.asked)):
                self.blocks.give(*messages)
                messages = self._relay(sum(shares), hop)
        sizes = (8 * self._depth.room, 8 * (self._depth.expanded + 1), 4 * self._depth.edges)
        sampled = [self._take(*(share * size for size in sizes)) for share in shares]
        self.blocks.give(*messages)
        return sampled

    def _relay(self, minibatches: float, hop: int) -> list[Block]:
        """A hop: questions and answers of this rank and of others, as many of the one as of the other; what
        is left when the answers are taken in."""
        others, count = self._probe.ranks - 1, 1
        asked = minibatches * self._depth.asked[hop]
        picked = minibatches * self._depth.answered[hop]
        questions = asked * self._workload.id_bytes
        answers = asked * count + picked * self._workload.id_bytes
        left = self._take(4 * asked * (1 + 1 / others), questions, questions / others, answers / others)
        theirs = self._take(questions, answers)
        left += self._take(answers)
        self.blocks.give(*theirs)
        return left

    def fetch(self, shares: Sequence[float], group: Sequence[list[Block]]) -> None:
        """A fetch group, after which the user takes its minibatches one after the other."""
        work, setting, each = self._workload, self._setting, sum(shares)
        distinct, splitting = self._depth.distinct.distinct(each), _SPLITTING if setting.feature_cache else 0
        away = self._depth.remote.missed(each, self._kept_rows)
        places = [8 * share * self._depth.nodes for share in shares]
        rows, unique = self._take(*places), self._take(8 * distinct)
        asked, answers, received = self._take(work.id_bytes * away, self._wire * away, self._wire * away)
        tables = [work.features * distinct] * (self._wire // work.features if work.features else 0)
        # What was sent is held until now: seen in what is kept afterwards, not in the transport itself.
        block = self._take(*tables, (work.attributes + work.id_bytes) * distinct)
        self.blocks.give(received, asked, answers)
        if setting.feature_cache:
            rows, before = self._take(*places), rows
            self.blocks.give(*before)
        if not setting.hybrid:
            for minibatch, node in zip(group, self._take(*places), strict=True):
                self.blocks.give(minibatch[0])
                minibatch[0] = node
        self.blocks.give(*unique)
        self.ids = max(self.ids, (16 + splitting) * distinct + 2 * work.id_bytes * away)
        self.let_go()
        *taken, last = [[*arrays, row] for arrays, row in zip(group, rows, strict=True)]
        for arrays in taken:
            self.blocks.give(*arrays)
        self._held = [*block, *last]

    def let_go(self) -> None:
        """The user has done with the last minibatch."""
        self.blocks.give(*self._held)
        self._held = []
