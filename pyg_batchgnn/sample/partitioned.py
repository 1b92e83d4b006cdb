"""A sampler of a graph that is partitioned over ranks (BatchGNN, section 3.2)."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.comm import CommError, Communicator, Header, MessageKind
from pyg_batchgnn.ops import (
    OwnedGraph,
    QuestionForm,
    Relay,
    RelayAnswers,
    RelayBook,
    RelayFault,
    RelayQuestions,
    WireError,
    relay_answer,
)
from pyg_batchgnn.partition import Part, node_values
from pyg_batchgnn.sample.macrobatch import MacrobatchSeeds, Unpacker, kernel_arrays
from pyg_batchgnn.sample.sampling_plan import SamplingPlan, Subgraph, refuse_times
from pyg_batchgnn.sample.seeds import Seeds, gather_seeds, internal_seeds, named_seeds
from pyg_batchgnn.store import TimeOrder, WeightSums
from pyg_batchgnn.types import Layout, SampledMinibatch


class RelayPart:
    """A rank's work in remote sampling, without the exchanges. ``times, weights``: as in
    `PartitionedSampler`. ``source_ids``: from `original_sources` with ``plan.labor``."""

    def __init__(
        self,
        part: Part,
        plan: SamplingPlan,
        layout: Layout,
        times: Sequence[TimeOrder | None] = (),
        weights: Sequence[WeightSums | None] = (),
        *,
        excluding: bool = False,
        source_ids: Sequence[Tensor] = (),
    ) -> None:
        self.part, self.plan = part, plan
        timed = any(one is not None for one in times)
        if timed and plan.labor is not None:
            refuse_times(plan.labor)
        self.form = QuestionForm(plan.disjoint or timed, timed, excluding)
        self._rules = plan.rules(part.schema, layout is Layout.COO)
        self._unpacker = Unpacker(part.schema, plan, layout, self.form.disjoint)
        self._owned = _owned_graph(part, times, weights, source_ids)
        self._book = RelayBook(
            part.book.offsets.tolist(),
            part.book.num_types,
            part.number,
            list(part.schema.source_types),
            list(part.schema.target_types),
            list(part.edge_counts),
            part.book.id_dtype == torch.int64,
        )

    @property
    def relays(self) -> int:
        """The number of relays of a macrobatch: one a hop, and one more for an induced subgraph."""
        return self.plan.num_hops + (self.plan.subgraph is Subgraph.INDUCED)

    def begin(self, seeds: Sequence[Seeds], seed: int, epoch: int) -> Relay:
        gathered = gather_seeds(seeds, self.form.disjoint, self.form.timed, self.plan.freeze)
        return Relay(gathered, self._book, self._rules, self.form, seed, epoch)

    def answer(self, words: Tensor, counts: Sequence[int], hop: int) -> RelayAnswers | RelayFault:
        return relay_answer(self._owned, words, counts, self._rules, self.form, hop)

    def finish(self, relay: Relay, seeds: Sequence[Seeds], seed: int, epoch: int) -> list[SampledMinibatch]:
        """Returns the minibatches, with internal node ids. ``seeds``: by original id."""
        return self._unpacker.minibatches(*relay.take(), seeds, seed, epoch)


def original_sources(part: Part, comm: Communicator) -> list[Tensor]:
    """Returns the original ids of the sources of this rank's in-edges, by relation, in the dtype of
    internal ids. Collective: each distinct source of another rank is asked for once."""
    sources = [edges.indices.long() for edges in part.relations]
    distinct, places = ops.unique_nodes(sources, part.book.num_nodes)
    original = node_values(comm, part.book, distinct, part.node)
    return [
        original[place.long()].to(edges.indices.dtype)
        for place, edges in zip(places, part.relations, strict=True)
    ]


def _owned_graph(
    part: Part,
    times: Sequence[TimeOrder | None],
    weights: Sequence[WeightSums | None],
    source_ids: Sequence[Tensor],
) -> OwnedGraph:
    schema, book = part.schema, part.book
    num_nodes = [len(book.nodes_of(part.number, number)) for number in range(book.num_types)]
    explicit = [ops.InEdges(one.indptr, one.indices, one.explicit_edge_ids()) for one in part.relations]
    owned = OwnedGraph(
        kernel_arrays(schema, num_nodes, explicit, times, weights, source_ids),
        part.node,
        part.first,
        book.num_nodes,
        list(part.edge_counts),
    )
    owned.held()
    return owned


class PartitionedSampler:
    """Samples the minibatches of a macrobatch over all ranks.

    The minibatches are bitwise identical to those of `MacrobatchSampler` on the whole graph. Each
    hop takes one relay: a round of requests and a round of responses (kind TOPOLOGY), for all
    minibatches and relations. With ``seeds_are_own`` the first hop takes none. An induced subgraph
    takes one relay more. One rank alone makes no exchange. With ``plan.labor`` the original ids of
    sources are exchanged once, when the sampler is made: 4 or 8 bytes for each own edge.

    Args:
        part: this rank's part of the graph.
        comm: the communicator of all ranks; part ``r`` is on rank ``r``.
        plan, seed, threads, layout, times, weights: as in `MacrobatchSampler`, with the times and
            weights of the part's own edges.
        seeds_are_own: True if every seed is a node of its rank's own part (schedule "local"); it
            decides which exchanges are made.
        excluding: True if seeds may have excluded pairs.

    All arguments but ``part``, ``threads`` and the arrays of times and weights must be the same on
    every rank. A relation has times or weights on all ranks or on none.
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
        times: Sequence[TimeOrder | None] = (),
        weights: Sequence[WeightSums | None] = (),
        seeds_are_own: bool = False,
        excluding: bool = False,
    ) -> None:
        if threads is not None and threads < 1:
            raise ValueError(f"threads must be at least 1, got {threads}")
        part.check_rank(comm)
        self.part, self.comm, self.plan, self.seed = part, comm, plan, seed
        self.threads, self.layout, self.seeds_are_own = threads, layout, seeds_are_own
        source_ids = original_sources(part, comm) if plan.labor is not None else ()
        self._relays = RelayPart(
            part, plan, layout, times, weights, excluding=excluding, source_ids=source_ids
        )

    def sample(
        self, internal: Sequence[Tensor], seed_lists: Sequence[Tensor | Seeds], epoch: int, macrobatch: int
    ) -> list[SampledMinibatch]:
        """Samples one minibatch for each list of seeds; collective. ``node`` of a minibatch holds
        internal ids until its attributes are fetched.

        Args:
            internal: [S_b] int64 internal ids of the seeds of each minibatch, by type in the order
                of the schema.
            seed_lists: the same seeds by original id, as in `MacrobatchSampler`. Ranks may give
                different numbers of lists. The ends of excluded pairs must be seeds.
            epoch: any integer, taken modulo 2**64; the same on every rank.
            macrobatch: the macrobatch's number in the epoch, for the header of the exchanges.

        Raises:
            TypeError, ValueError, IndexError: seeds of another dtype or shape, or outside the graph
                or, with ``seeds_are_own``, the part.
            CommError: a peer failed, or sent an impossible message.
        """
        if len(internal) != len(seed_lists):
            raise ValueError(f"{len(internal)} lists of seeds came with {len(seed_lists)} of original ids")
        schema = self.part.schema
        named = [named_seeds(schema, number, one) for number, one in enumerate(seed_lists)]
        seeds = [
            self._checked(number, *pair) for number, pair in enumerate(zip(named, internal, strict=True))
        ]
        relay = self._relays.begin(seeds, self.seed, epoch)
        with ops.thread_limit(self.threads):
            for hop in range(self._relays.relays):
                self._hop(relay, Header(MessageKind.TOPOLOGY, ops.to_signed(epoch), macrobatch, hop))
        return self._relays.finish(relay, named, self.seed, epoch)

    def sample_macrobatch(self, seeds: MacrobatchSeeds) -> list[SampledMinibatch]:
        if seeds.internal is None:
            raise ValueError("a partitioned graph is sampled by internal ids; give the seeds' internal ids")
        return self.sample(seeds.internal, seeds.original, seeds.epoch, seeds.number)

    def of_any_seeds(self) -> PartitionedSampler:
        other = copy.copy(self)
        other.seeds_are_own = False
        return other

    def _hop(self, relay: Relay, header: Header) -> None:
        asked = relay.ask()
        if self.comm.size == 1 or (header.hop == 0 and self.seeds_are_own):
            own = self._answer(asked.own, [asked.own.numel()], header.hop)
            words, counts = own.words[:0], [0] * self.comm.size
        else:
            own, (words, counts) = self._over_ranks(asked, header)
        fault = relay.merge(own.words, words, counts)
        if fault is not None:
            raise self._error(fault)

    def _over_ranks(
        self, asked: RelayQuestions, header: Header
    ) -> tuple[RelayAnswers, tuple[Tensor, list[int]]]:
        """Makes one relay. While the requests travel, this rank answers its own."""
        under_way = self.comm.start_exchange(asked.words, asked.counts, header, ops.empty, asked.nodes)
        own = self._answer(asked.own, [asked.own.numel()], header.hop)
        questions = under_way.wait()
        answers = self._answer(questions.rows, questions.counts, header.hop)
        received = self.comm.exchange(answers.words, answers.counts, header, ops.empty, answers.picks)
        return own, (received.rows, received.counts)

    def _answer(self, words: Tensor, counts: list[int], hop: int) -> RelayAnswers:
        answers = self._relays.answer(words, counts, hop)
        if isinstance(answers, RelayFault):
            raise self._error(answers)
        return answers

    def _checked(self, number: int, seeds: Seeds, internal: Tensor) -> Seeds:
        found = internal_seeds(number, seeds, internal, self.part)
        own = self.part.book.nodes_of(self.part.number)
        for ids in found.nodes if self.seeds_are_own else ():
            low, high = ops.extent(ids)
            if ids.numel() and (low not in own or high not in own):
                raise ValueError(
                    f"seeds of minibatch {number} hold {high if low in own else low}, but this rank owns "
                    f"{own.start} to {own.stop - 1}; seeds of other parts need seeds_are_own=False"
                )
        return found

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
