"""Sampling within a part and its halo."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.data import HOMOGENEOUS
from pyg_batchgnn.history.halo import Halo
from pyg_batchgnn.ops import InEdges, RelayAnswers
from pyg_batchgnn.partition import Part, PartitionBook
from pyg_batchgnn.sample import (
    Layout,
    MacrobatchSeeds,
    RelayPart,
    SampledMinibatch,
    SamplingPlan,
    Seeds,
)


class HaloSampler:
    """Samples the minibatches of a rank without asking other ranks.

    Neighbours of the part's own nodes are drawn as `PartitionedSampler` draws them. Halo nodes get
    no in-edges. Without halo nodes the minibatches are, bit for bit, those of the whole graph.

    Args:
        part: this rank's part.
        halo: its halo.
        plan: fanouts and the rules of picking.
        seed: any integer, taken modulo 2**64.
        threads: at most this many threads work; torch's number if None.
    """

    def __init__(
        self, part: Part, halo: Halo, plan: SamplingPlan, seed: int = 0, threads: int | None = None
    ) -> None:
        self.plan, self.seed, self.threads = plan, seed, threads
        self._own = part.nodes_of(0)
        book = PartitionBook([0, halo.num_own, halo.original.numel()])
        node, outside = halo.original.split([halo.num_own, halo.num_halo])
        nothing = torch.empty(0, dtype=book.id_dtype)
        no_edges = InEdges(torch.zeros(halo.num_halo + 1, dtype=torch.int64), nothing, nothing)
        self._sides = [
            RelayPart(_local_part(book, number, node_of, edges, part), plan, Layout.CSC)
            for number, (node_of, edges) in enumerate([(node, halo.in_edges), (outside, no_edges)])
        ]

    def sample_macrobatch(self, seeds: MacrobatchSeeds, threads: int | None = None) -> list[SampledMinibatch]:
        """Samples one minibatch for each list of seeds; see `Sampler`. ``node`` holds local ids."""
        if seeds.internal is None:
            raise ValueError("a partitioned graph is sampled by internal ids; give the seeds' internal ids")
        threads = threads or self.threads or torch.get_num_threads()
        named = [_seeds(nodes, ops.minibatch_key(nodes)) for nodes in seeds.nodes]
        local = [
            _seeds(self._local(number, internal), one.key)
            for number, (internal, one) in enumerate(zip(seeds.internal, named, strict=True))
        ]
        own, _ = self._sides
        relay = own.begin(local, self.seed, seeds.epoch)
        for hop in range(own.relays):
            asked = relay.ask(threads)
            words, counts = self._answer(1, asked.words, [asked.words.numel(), 0], hop, threads)
            answer, _ = self._answer(0, asked.own, [asked.own.numel()], hop, threads)
            fault = relay.merge(answer, words, counts[::-1], threads)
            assert fault is None, fault
        return own.finish(relay, named, self.seed, seeds.epoch)

    def _answer(
        self, side: int, words: Tensor, counts: Sequence[int], hop: int, threads: int
    ) -> tuple[Tensor, list[int]]:
        answers = self._sides[side].answer(words, counts, hop, threads)
        assert isinstance(answers, RelayAnswers), answers
        return answers.words, answers.counts

    def _local(self, number: int, internal: Tensor) -> Tensor:
        """Returns the local ids of seeds."""
        low, high = ops.extent(internal)
        if internal.numel() and (low not in self._own or high not in self._own):
            raise ValueError(
                f"seeds of minibatch {number} hold {high if low in self._own else low}, but this rank owns "
                f"{self._own.start} to {self._own.stop - 1}; sampling within a part takes own seeds only"
            )
        return internal - self._own.start


def _seeds(nodes: Tensor, key: int) -> Seeds:
    return Seeds((nodes.contiguous(),), (0,), key)


def _local_part(book: PartitionBook, number: int, node: Tensor, edges: InEdges, part: Part) -> Part:
    """Returns one of two parts: the own nodes of a rank, or its halo nodes."""
    return Part(
        HOMOGENEOUS, book, number, node, (edges,), part.edge_counts, torch.empty(0, dtype=book.id_dtype)
    )
