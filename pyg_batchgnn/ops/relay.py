"""The steps of a relay: sampling a hop whose nodes' in-edges may be held by other ranks.

The arrays that callers give are checked here. The kernels check what other ranks sent.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import torch
from torch import Tensor

from pyg_batchgnn.ops.checks import check_indptr, check_range, check_vector
from pyg_batchgnn.ops.in_edges import OwnedEdges
from pyg_batchgnn.ops.library import kernels


class WireError(IntEnum):
    """The faults of a message; the numbers are those of csrc/kernels/relay/wire.h."""

    NOTHING = 0
    BLOCKS = 1
    NODE = 2
    PICKS = 3
    LENGTH = 4
    SOURCE = 5


@dataclass(frozen=True)
class RelayFault:
    """A fault in a message of another rank.

    Attributes:
        error: the kind of fault.
        peer: the rank that sent the message.
        value: the value that is wrong.
    """

    error: WireError
    peer: int
    value: int


def _fault(numbers: Sequence[int]) -> RelayFault | None:
    return RelayFault(WireError(numbers[0]), numbers[1], numbers[2]) if numbers[0] else None


@dataclass(frozen=True)
class RelayQuestions:
    """The questions of one hop.

    Attributes:
        words: [sum(counts)] int32 or int64 as node ids are, the questions to other ranks, by rank.
        counts: words for each rank; 0 for this one.
        nodes: nodes that each rank is asked for; 0 for this one.
        own: [n] the questions that this rank answers itself.
    """

    words: Tensor
    counts: list[int]
    nodes: list[int]
    own: Tensor


@dataclass(frozen=True)
class RelayAnswers:
    """The answers to the questions of one hop.

    Attributes:
        words: [sum(counts)] int64, by rank.
        counts: words for each rank.
        picks: picked edges for each rank.
    """

    words: Tensor
    counts: list[int]
    picks: list[int]


class Relay:
    """Minibatches that are sampled together: `ask` and `merge` in turn, once per hop, then `take`.

    Args:
        seeds, originals: [S] int64, all minibatches' seed nodes, by internal and original id.
        seed_ptr: [B + 1] int64, where each minibatch's seeds begin.
        offsets: the first internal id of each part, then the number of nodes.
        rank: this rank, the number of its part.
        num_edges: edges of the whole graph.
        wide: True if ids are exchanged as int64, else as int32.
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
        _check_book(offsets, rank)
        for name, ids in (("seeds", seeds), ("originals", originals)):
            check_vector(name, ids, (torch.int64,))
        check_range("seeds", seeds, offsets[-1])
        if originals.numel() != seeds.numel():
            raise ValueError(f"{seeds.numel()} seeds came with {originals.numel()} original ids")
        check_indptr("seed_ptr", seed_ptr, seeds.numel())
        self._state = kernels.relay_begin(
            *(seeds, originals, seed_ptr, offsets, rank, num_edges, wide),
            *(list(fanouts), replace, return_edge, coo, seed, epoch),
        )

    def ask(self, threads: int) -> RelayQuestions:
        """Returns the questions of the next hop."""
        return RelayQuestions(*kernels.relay_ask(self._state, threads))

    def merge(self, own: Tensor, words: Tensor, counts: Sequence[int], threads: int) -> RelayFault | None:
        """Adds the answers to the minibatches.

        Args:
            own: this rank's answers to itself.
            words: [sum(counts)] the other ranks' answers, by rank.
            counts: words of each rank.
            threads: at most this many threads.

        Returns:
            The first fault in the answers, after which the relay cannot go on, or None.
        """
        check_vector("own", own, (torch.int64,))
        _check_words(words, counts, torch.int64)
        return _fault(kernels.relay_merge(self._state, own, words, list(counts), threads))

    def take(self) -> tuple[list[Tensor], Tensor]:
        """Returns the minibatches, as the operator ``sample`` does."""
        arrays, counts = kernels.relay_take(self._state)
        return arrays, counts


def _check_book(offsets: Sequence[int], rank: int) -> None:
    if not offsets or offsets[0] != 0 or any(b < a for a, b in itertools.pairwise(offsets)):
        raise ValueError(f"the offsets of parts must ascend from 0, got {list(offsets)}")
    if not 0 <= rank < len(offsets) - 1:
        raise ValueError(f"rank {rank} has no part among {len(offsets) - 1}")


def _check_words(words: Tensor, counts: Sequence[int], dtype: torch.dtype) -> None:
    check_vector("words", words, (dtype,))
    if any(count < 0 for count in counts) or sum(counts) != words.numel():
        raise ValueError(f"counts {list(counts)} do not add up to {words.numel()} words")


def relay_answer(
    edges: OwnedEdges,
    words: Tensor,
    counts: Sequence[int],
    *,
    fanout: int,
    replace: bool,
    return_edge: bool,
    threads: int,
) -> RelayAnswers | RelayFault:
    """Answers the questions of one hop.

    Args:
        edges: the in-edges to pick from, with edge ids.
        words: [sum(counts)] of the type of the edges' ``indices``, the questions by rank.
        counts: words of each rank.
        fanout: in-edges to pick per node; -1 picks all.
        replace: True picks with replacement.
        return_edge: True if the ids of the picked edges are answered too.
        threads: at most this many threads.

    Returns:
        The answers, or the first fault in the questions.
    """
    own = edges.in_edges
    edges.check()
    _check_words(words, counts, own.indices.dtype)
    answers, to, picks, fault = kernels.relay_answer(
        *(own.indptr, own.indices, own.edge_ids, edges.node, edges.first_node, edges.num_edges),
        *(words, list(counts), fanout, replace, return_edge, threads),
    )
    return _fault(fault) or RelayAnswers(answers, to, picks)
