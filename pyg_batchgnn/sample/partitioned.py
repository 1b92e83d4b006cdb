"""A sampler of a graph that is partitioned over ranks (BatchGNN, section 3.2)."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.comm import CommError, Communicator, Header, MessageKind
from pyg_batchgnn.data import HOMOGENEOUS
from pyg_batchgnn.ops import Relay, RelayAnswers, RelayFault, RelayQuestions, WireError, relay_answer
from pyg_batchgnn.partition import Part
from pyg_batchgnn.sample.plan import Replacement, SamplingPlan
from pyg_batchgnn.sample.sampled import Layout, SampledMinibatch
from pyg_batchgnn.sample.sampler import MacrobatchSeeds
from pyg_batchgnn.sample.seeds import Seeds
from pyg_batchgnn.sample.unpack import Unpacker


class PartitionedSampler:
    """Samples the minibatches of a macrobatch over all ranks, one relay per hop for all of them.

    The minibatches are, bit for bit, those of `MacrobatchSampler` on the whole graph. Each hop
    takes one round of questions and one of answers (kind TOPOLOGY). With ``seeds_are_own`` the
    first hop takes none. A world of one rank makes no exchange at all.

    Args:
        part: this rank's part of the graph.
        comm: the communicator of all ranks; part ``r`` is on rank ``r``.
        plan: fanouts, replacement and whether edge ids are wanted.
        seed: any integer, taken modulo 2**64.
        threads: at most this many threads work; torch's number if None.
        layout: form of the edges.
        seeds_are_own: True if every seed is a node of its rank's own part (schedule ``local``). It
            is an argument, because all ranks must make the same exchanges.

    All arguments but ``part`` and ``threads`` must be the same on every rank.
    """

    def __init__(
        self,
        part: Part,
        comm: Communicator,
        plan: SamplingPlan,
        seed: int = 0,
        threads: int | None = None,
        layout: Layout = Layout.COO,
        *,
        seeds_are_own: bool = False,
    ) -> None:
        if threads is not None and threads < 1:
            raise ValueError(f"threads must be at least 1, got {threads}")
        part.check_rank(comm)
        plan.counts  # noqa: B018 - refuses plans that cannot be sampled over ranks
        self.part, self.comm, self.plan, self.seed = part, comm, plan, seed
        self.threads, self.layout, self.seeds_are_own = threads, layout, seeds_are_own
        self._edges = _own_edges(part)

    def sample(
        self,
        seed_lists: Sequence[Tensor],
        originals: Sequence[Tensor],
        epoch: int,
        macrobatch: int,
        threads: int | None = None,
    ) -> list[SampledMinibatch]:
        """Samples one minibatch for each list of seed nodes; collective.

        Args:
            seed_lists: [S_b] int64 internal ids each. Duplicates, empty lists and no list at all
                are allowed. Ranks may give different numbers of lists.
            originals: [S_b] int64 original ids of the same nodes.
            epoch: any integer, taken modulo 2**64; the same on every rank.
            macrobatch: the macrobatch's number in the epoch, for the header of the exchanges.
            threads: overrides the sampler's own number for this call.

        Returns:
            The minibatches. Their ``node`` holds internal ids. Fetching the nodes' attributes turns
            them into original ids.

        Raises:
            TypeError, ValueError, IndexError: seeds of another dtype or shape, or outside the graph
                or, with ``seeds_are_own``, the part.
            CommError: a peer failed, or sent a message that cannot be.
        """
        seed_lists, originals = self._checked(seed_lists, originals)
        threads = threads or self.threads or torch.get_num_threads()
        sizes = torch.tensor([0, *(seeds.numel() for seeds in seed_lists)])
        none = torch.empty(0, dtype=torch.int64)
        relay = Relay(
            torch.cat([none, *seed_lists]),
            torch.cat([none, *originals]),
            sizes.cumsum(0),
            offsets=self.part.book.offsets.tolist(),
            rank=self.part.number,
            num_edges=self.part.num_edges,
            wide=self.part.book.id_dtype == torch.int64,
            fanouts=self.plan.counts,
            replace=self.plan.replacement is Replacement.WITH,
            return_edge=self.plan.edge_ids,
            coo=self.layout is Layout.COO,
            seed=ops.to_signed(self.seed),
            epoch=ops.to_signed(epoch),
        )
        for hop in range(self.plan.num_hops):
            self._hop(relay, Header(MessageKind.TOPOLOGY, ops.to_signed(epoch), macrobatch, hop), threads)
        arrays, counts = relay.take()
        named = [Seeds((seeds,), (0,), ops.minibatch_key(seeds)) for seeds in originals]
        unpacker = Unpacker(HOMOGENEOUS, self.plan, self.layout, disjoint=False)
        return unpacker.minibatches(arrays, counts, named, self.seed, epoch)

    def sample_macrobatch(self, seeds: MacrobatchSeeds, threads: int | None = None) -> list[SampledMinibatch]:
        """Samples one minibatch for each list of seed nodes; collective, see `Sampler`."""
        if seeds.internal is None:
            raise ValueError("a partitioned graph is sampled by internal ids; give the seeds' internal ids")
        return self.sample(seeds.internal, seeds.nodes, seeds.epoch, seeds.number, threads)

    def of_any_seeds(self) -> PartitionedSampler:
        """Returns the same sampler for seeds that need not be nodes of the rank's own part."""
        other = copy.copy(self)
        other.seeds_are_own = False
        return other

    def _hop(self, relay: Relay, header: Header, threads: int) -> None:
        asked = relay.ask(threads)
        if self.comm.size == 1 or (header.hop == 0 and self.seeds_are_own):
            own = self._answer(asked.own, [asked.own.numel()], header.hop, threads)
            words, counts = own.words[:0], [0] * self.comm.size
        else:
            own, (words, counts) = self._over_ranks(asked, header, threads)
        fault = relay.merge(own.words, words, counts, threads)
        if fault is not None:
            raise self._error(fault)

    def _over_ranks(
        self, asked: RelayQuestions, header: Header, threads: int
    ) -> tuple[RelayAnswers, tuple[Tensor, list[int]]]:
        """Makes one relay. While the questions travel, this rank answers its own."""
        under_way = self.comm.start_exchange(asked.words, asked.counts, header, ops.empty, asked.nodes)
        own = self._answer(asked.own, [asked.own.numel()], header.hop, threads)
        questions = under_way.wait()
        answers = self._answer(questions.rows, questions.counts, header.hop, threads)
        received = self.comm.exchange(answers.words, answers.counts, header, ops.empty, answers.picks)
        return own, (received.rows, received.counts)

    def _answer(self, words: Tensor, counts: list[int], hop: int, threads: int) -> RelayAnswers:
        answers = relay_answer(
            self._edges,
            words,
            counts,
            fanout=self.plan.counts[hop],
            replace=self.plan.replacement is Replacement.WITH,
            return_edge=self.plan.edge_ids,
            threads=threads,
        )
        if isinstance(answers, RelayFault):
            raise self._error(answers)
        return answers

    def _checked(
        self, seed_lists: Sequence[Tensor], originals: Sequence[Tensor]
    ) -> tuple[list[Tensor], list[Tensor]]:
        if len(seed_lists) != len(originals):
            raise ValueError(f"{len(seed_lists)} lists of seeds came with {len(originals)} of original ids")
        seed_lists = [seeds.contiguous() if isinstance(seeds, Tensor) else seeds for seeds in seed_lists]
        originals = [seeds.contiguous() if isinstance(seeds, Tensor) else seeds for seeds in originals]
        own = self.part.book.nodes_of(self.part.number)
        for number, (seeds, names) in enumerate(zip(seed_lists, originals, strict=True)):
            what = f"seeds of minibatch {number}"
            ops.check_vector(what, seeds, (torch.int64,))
            ops.check_vector(f"original ids of {what}", names, (torch.int64,))
            if seeds.numel() != names.numel():
                raise ValueError(f"{what}: {seeds.numel()} with {names.numel()} original ids")
            ops.check_range(what, seeds, self.part.book.num_nodes)
            low, high = ops.extent(seeds)
            if self.seeds_are_own and seeds.numel() and (low not in own or high not in own):
                raise ValueError(
                    f"{what} hold {high if low in own else low}, but this rank owns {own.start} to "
                    f"{own.stop - 1}; seeds of other parts need seeds_are_own=False"
                )
        return seed_lists, originals

    def _error(self, fault: RelayFault) -> CommError:
        own, most = self.part.book.nodes_of(self.part.number), self.part.book.num_nodes
        story = {
            WireError.BLOCKS: f"asked in {fault.value} words that do not add up",
            WireError.NODE: f"asked for node {fault.value}, but rank {self.comm.rank} owns {own.start} to "
            f"{own.stop - 1}",
            WireError.PICKS: f"answered {fault.value} picks of one node, more than the plan allows",
            WireError.LENGTH: f"answered {fault.value} words, which are not those that its counts promise",
            WireError.SOURCE: f"answered node {fault.value}, but nodes go from 0 to {most - 1}",
        }[fault.error]
        text = f"rank {fault.peer} {story}; every rank must have the same partition book, plan and release"
        return self.comm.fail(CommError(text, [fault.peer]))


def _own_edges(part: Part) -> ops.OwnedEdges:
    """The part's arrays, as far as the kernels trust them."""
    nodes, edges = len(part.book.nodes_of(part.number)), part.in_edges.num_edges
    indptr, ids = part.in_edges.indptr, part.in_edges.explicit_edge_ids()
    ops.check_vector("part.node", part.node, (torch.int64,))
    ops.check_vector("part.indptr", indptr, (torch.int64,))
    ops.check_vector("part.indices", part.in_edges.indices, (part.book.id_dtype,))
    ops.check_vector("part.edge_ids", ids)
    sizes = (part.node.numel(), part.in_edges.num_targets, ids.numel())
    if sizes != (nodes, nodes, edges):
        raise ValueError(
            f"the book gives part {part.number} {nodes} nodes, but it has {sizes[0]} original ids, "
            f"{sizes[1]} lists of in-edges, {edges} sources and {sizes[2]} edge ids"
        )
    if int(indptr[0]) != 0 or int(indptr[-1]) != edges or not ops.is_ascending(indptr):
        raise ValueError(f"part.indptr must ascend from 0 to the number of sources, {edges}")
    ops.check_range("part.edge_ids", ids, part.num_edges, "edge ids")
    return part.owned_edges
