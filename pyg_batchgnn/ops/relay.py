"""The steps of a relay: sampling a hop whose nodes' in-edges may be held by other ranks.

The arrays of a graph and rules are checked here, seeds where they are gathered. The dtype and
lengths of messages are agreed by exchanges; kernels check their contents.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import torch
from torch import Tensor

from pyg_batchgnn.ops.checks import check_ids, check_vector
from pyg_batchgnn.ops.library import kernels, thread_count, to_signed
from pyg_batchgnn.ops.sample import SampledGraph, SampledSeeds, SamplingRules


@dataclass(frozen=True)
class RelayBook:
    """The owners of all nodes, and the ends of relations."""

    offsets: list[int]  # the first internal id of each part and node type, then the number of nodes
    num_types: int
    rank: int  # this rank, the number of its part
    # source, target: by relation, the numbers of its types.
    source: list[int]
    target: list[int]
    num_edges: list[int]  # by relation, the edges of the whole graph
    wide: bool  # True if ids are exchanged as int64, else as int32

    @property
    def num_nodes(self) -> int:
        return self.offsets[-1]


@dataclass(frozen=True, eq=False)
class OwnedGraph:
    """The in-edges of a rank's own nodes, by relation."""

    # The in-edges. ``num_nodes`` are the rank's own nodes of each type. Row i of a relation is its
    # i-th node of the target type, and sources are internal ids. Every edge has an id.
    arrays: SampledGraph
    node: Tensor  # [n] int64, the original id of each owned node, by type
    first: int  # the internal id of the first owned node
    all_nodes: int
    num_edges: list[int]  # by relation, the edges of the whole graph

    def held(self) -> Tensor:
        """Returns the arrays for kernels; checked again only if torch has written to them."""
        return self.arrays.held(self._check)

    def _check(self) -> None:
        arrays = self.arrays
        own, types = sum(arrays.num_nodes), len(arrays.num_nodes)
        if len(self.num_edges) != len(arrays.target):
            raise ValueError(f"every relation needs its number of edges, got {self.num_edges}")
        for named in (*arrays.source, *arrays.target):
            if not 0 <= named < types:
                raise ValueError(f"a relation names the node type {named}, but there are {types}")
        check_vector("node", self.node, (torch.int64,))
        if self.node.numel() != own:
            raise ValueError(f"{self.node.numel()} original ids came with {own} nodes")
        if not 0 <= self.first <= self.all_nodes - own:
            raise ValueError(
                f"{own} nodes from {self.first} on are not all among the {self.all_nodes} of the graph"
            )
        arrays.check_relations(self.all_nodes)
        for number, (ids, indices) in enumerate(zip(arrays.edge_ids, arrays.indices, strict=True)):
            check_ids("edge_ids", ids, self.num_edges[number], "edge ids", of_graph=True)
            if ids.numel() != indices.numel():
                raise ValueError(
                    f"relation {number} has {ids.numel()} edge ids for {indices.numel()} edges; over ranks "
                    "every edge needs its own"
                )


# The steps ########################################################################################


class WireError(IntEnum):
    """What is wrong with a message, by the numbers of csrc/kernels/relay/fault.h."""

    NOTHING = 0
    BLOCKS = 1
    NODE = 2
    PICKS = 3
    LENGTH = 4
    SOURCE = 5


@dataclass(frozen=True)
class RelayFault:
    """What is wrong with a message, and the rank that sent it."""

    error: WireError
    peer: int
    value: int


def _fault(numbers: Sequence[int]) -> RelayFault | None:
    return RelayFault(WireError(numbers[0]), numbers[1], numbers[2]) if numbers[0] else None


@dataclass(frozen=True)
class QuestionForm:
    """Which columns requests have beside nodes, the same on all ranks."""

    disjoint: bool = False  # True if every node belongs to an example
    timed: bool = False  # True if every example has a time; only with ``disjoint``
    excluding: bool = False  # True if there may be pairs of nodes whose edges must not be used

    def __post_init__(self) -> None:
        if self.timed and not self.disjoint:
            raise ValueError("examples have times only in disjoint sampling")


@dataclass(frozen=True)
class RelayQuestions:
    """The requests for one hop's in-edges."""

    words: Tensor  # [sum(counts)] int32 or int64 as node ids are, the questions to other ranks, by rank
    counts: list[int]  # words for each rank; 0 for this one
    nodes: list[int]  # nodes that each rank is asked for; 0 for this one
    own: Tensor  # [n] the questions that this rank answers itself


@dataclass(frozen=True)
class RelayAnswers:
    """The responses to the requests of one hop."""

    words: Tensor  # [sum(counts)] int64, by rank
    counts: list[int]  # words for each rank
    picks: list[int]  # picked edges for each rank


class Relay:
    """The minibatches of a macrobatch, sampled hop by hop with the help of other ranks.

    Call `ask` and `merge` in turn, once per hop and once more for an induced subgraph, then `take`.

    Args:
        seeds: the seeds of all minibatches. Their nodes, and the ends of excluded pairs, are
            internal ids. Nodes of every type lie in the range of their type.
        book: the owners of the nodes.
        rules, seed, epoch: as in `sample`.
        form: the columns of requests.
    """

    def __init__(
        self,
        seeds: SampledSeeds,
        book: RelayBook,
        rules: SamplingRules,
        form: QuestionForm,
        seed: int,
        epoch: int,
    ) -> None:
        check_vector("seeds", seeds.node, (torch.int64,))
        plan = rules.held(len(book.target))
        excluding = form.excluding or seeds.excluded is not None
        found = QuestionForm(seeds.example is not None, seeds.time is not None, excluding)
        if found != form:
            raise ValueError(f"questions are to have the form {form}, but the seeds have {found}")
        self._state = kernels.relay_begin(
            *(seeds.node, seeds.ptr, seeds.keys, seeds.example, seeds.time, seeds.excluded),
            *(book.offsets, book.num_types, book.rank, book.source, book.target, book.num_edges),
            *(book.wide, form.disjoint, form.timed, form.excluding),
            *(plan, rules.coo, to_signed(seed), to_signed(epoch)),
        )

    def ask(self) -> RelayQuestions:
        """Returns the requests of the next hop."""
        return RelayQuestions(*kernels.relay_ask(self._state, thread_count()))

    def merge(self, own: Tensor, words: Tensor, counts: Sequence[int]) -> RelayFault | None:
        """Adds the responses to the minibatches. Returns None, or the first fault in them, after
        which the relay cannot continue.

        Args:
            own: [n] int64, this rank's response to itself.
            words: [sum(counts)] int64, the other ranks' responses, by rank.
            counts: words of each rank.
        """
        return _fault(kernels.relay_merge(self._state, own, words, list(counts), thread_count()))

    def take(self) -> tuple[list[Tensor], Tensor]:
        """Returns the minibatches, as `sample` does, with internal node ids."""
        arrays, counts = kernels.relay_take(self._state)
        return arrays, counts


def relay_answer(
    owned: OwnedGraph,
    words: Tensor,
    counts: Sequence[int],
    rules: SamplingRules,
    form: QuestionForm,
    hop: int,
) -> RelayAnswers | RelayFault:
    """Returns the responses to the requests of one hop, or the first fault in these.

    Args:
        words: [sum(counts)] of the dtype of node ids, the requests by rank.
        counts: words of each rank.
        hop: the number of the hop; the one after the last is for an induced subgraph.
    """
    arrays = owned.arrays
    plan = rules.held(len(arrays.target))
    if not arrays.target:  # nothing can be asked for, whatever the type of node ids
        return RelayAnswers(torch.empty(0, dtype=torch.int64), [0] * len(counts), [0] * len(counts))
    if words.dtype != arrays.indices[0].dtype:
        raise TypeError(f"questions name nodes as {words.dtype}, and the graph as {arrays.indices[0].dtype}")
    answers, to, picks, fault = kernels.relay_answer(
        *(owned.held(), owned.node, owned.first, owned.all_nodes, owned.num_edges),
        *(words, list(counts), form.disjoint, form.timed, form.excluding),
        *(hop, plan, thread_count()),
    )
    return _fault(fault) or RelayAnswers(answers, to, picks)


# Answers from files ###############################################################################


@dataclass(frozen=True)
class OpenSection:
    """The picked edges of one relation; sources and edge ids are still to be written."""

    relation: int  # its number
    position: Tensor  # [n] int64, the place of each picked edge in ``indices``
    sources: Tensor  # [n] of the type of ``indices``, to be written
    edges: Tensor | None  # [n] int32 or int64, to be written; None if edge ids are not wanted


@dataclass(frozen=True)
class OpenAnswers:
    """The responses for one hop, with sections to be written."""

    words: Tensor  # [w] int64, in which the arrays of the sections lie
    sections: list[OpenSection]


def relay_answer_open(
    graph: SampledGraph, book: RelayBook, question: Tensor, rules: SamplingRules, form: QuestionForm, hop: int
) -> OpenAnswers:
    """Picks the edges of one hop of a whole graph. The caller reads sources and edge ids, except
    for nodes with excluded pairs.

    Args:
        graph: the graph. The ids of a type follow those of the types before it in the requests.
        book: of one rank.
        question: the relay's own request.
        hop: the number of the hop, none of an induced subgraph.
    """
    held, plan = graph.held(), rules.held(len(graph.target))
    words, position, numbers, fault = kernels.relay_answer_open(
        *(held, book.num_nodes, book.num_edges, question, form.disjoint, form.timed, form.excluding),
        *(hop, plan, thread_count()),
    )
    assert not fault[0], fault  # the relay of this process has asked
    sections, first = [], 0
    for relation, picks, edges_at, sources_at, edge_bytes in zip(
        *(numbers[at::5] for at in range(5)), strict=True
    ):
        sections.append(
            OpenSection(
                relation,
                position[first : first + picks],
                _part(words, sources_at, picks, graph.indices[relation].dtype),
                _part(words, edges_at, picks, _EDGE_TYPES[edge_bytes]) if edge_bytes else None,
            )
        )
        first += picks
    return OpenAnswers(words, sections)


#: The types of edge ids in answers, by their bytes.
_EDGE_TYPES = {4: torch.int32, 8: torch.int64}


def _part(words: Tensor, at: int, count: int, dtype: torch.dtype) -> Tensor:
    """Returns ``count`` entries of ``dtype`` from word ``at`` on."""
    begin = at * 8 // dtype.itemsize
    return words.view(dtype)[begin : begin + count]
