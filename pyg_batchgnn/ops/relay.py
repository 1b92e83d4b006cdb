"""The steps of a relay: sampling where the in-edges of a node may be another rank's.

The arrays and numbers are those that `RelaySampler` checked; what comes from other ranks is checked by the
kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from torch import Tensor

from pyg_batchgnn.ops.in_edges import OwnedEdges
from pyg_batchgnn.ops.library import kernels


class Wrong(IntEnum):
    """What is wrong with a message of another rank; the numbers are those of csrc/kernels/relay/wire.h."""

    NOTHING = 0
    BLOCKS = 1
    NODE = 2
    PICKS = 3
    LENGTH = 4
    SOURCE = 5


@dataclass(frozen=True)
class Fault:
    """What is wrong with a message, whose it is, and the value seen."""

    wrong: Wrong
    peer: int
    value: int


def _fault(numbers: Sequence[int]) -> Fault | None:
    return Fault(Wrong(numbers[0]), numbers[1], numbers[2]) if numbers[0] else None


@dataclass(frozen=True)
class Questions:
    """What one hop asks.

    Attributes:
        words: [sum(counts)] of the type of node ids, what other ranks are asked, by rank.
        counts: words for each rank; 0 for this one.
        nodes: nodes that each rank is asked for; 0 for this one.
        own: [n] what this rank is asked by itself.
    """

    words: Tensor
    counts: list[int]
    nodes: list[int]
    own: Tensor


@dataclass(frozen=True)
class Answers:
    """What is answered.

    Attributes:
        words: [sum(counts)] int64, by rank.
        counts: words for each rank.
        picks: picked edges for each rank.
    """

    words: Tensor
    counts: list[int]
    picks: list[int]


class Relay:
    """Minibatches that grow together: `ask` and `merge` by turns, once a hop each, then `take`.

    Args:
        seeds, originals: [S] int64, all minibatches' seed nodes by the graph's ids and by the users'.
        seed_ptr: [B + 1] int64, where each minibatch's seeds begin.
        offsets: first id of every part, then the number of nodes.
        rank: the part that is here.
        num_edges: of the whole graph.
        wide: whether ids are exchanged as int64.
        fanouts, replace, return_edge, coo, seed, epoch: as for the operator ``sample``.
    """

    def __init__(
        self,
        seeds: Tensor,
        originals: Tensor,
        seed_ptr: Tensor,
        *,
        offsets: list[int],
        rank: int,
        num_edges: int,
        wide: bool,
        fanouts: Sequence[int],
        replace: bool,
        return_edge: bool,
        coo: bool,
        seed: int,
        epoch: int,
    ) -> None:
        self._state = kernels.relay_begin(
            *(seeds, originals, seed_ptr, offsets, rank, num_edges, wide),
            *(list(fanouts), replace, return_edge, coo, seed, epoch),
        )

    def ask(self, threads: int) -> Questions:
        """Whom to ask what."""
        return Questions(*kernels.relay_ask(self._state, threads))

    def merge(self, own: Tensor, words: Tensor, counts: Sequence[int], threads: int) -> Fault | None:
        """Takes in the answers of this rank and, by rank, of the others. After a fault the relay is over."""
        return _fault(kernels.relay_merge(self._state, own, words, list(counts), threads))

    def take(self) -> tuple[list[Tensor], Tensor]:
        """The minibatches, as the operator ``sample`` returns them."""
        arrays, counts = kernels.relay_take(self._state)
        return arrays, counts


def relay_answer(
    edges: OwnedEdges,
    words: Tensor,
    counts: Sequence[int],
    *,
    fanout: int,
    replace: bool,
    return_edge: bool,
    threads: int,
) -> Answers | Fault:
    """Answers what was asked, message by message.

    Args:
        edges: where to pick from, with edge ids.
        words: [sum(counts)] of the type of the edges' ``indices``: messages by rank.
        counts: words of each rank.
        fanout, replace, return_edge: how to pick, and whether input edge ids are wanted.
        threads: at most so many.
    """
    own = edges.in_edges
    answers, to, picks, fault = kernels.relay_answer(
        *(own.indptr, own.indices, own.edge_ids, edges.node, edges.first_node, edges.num_edges),
        *(words, list(counts), fanout, replace, return_edge, threads),
    )
    return _fault(fault) or Answers(answers, to, picks)
