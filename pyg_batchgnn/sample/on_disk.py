"""Sampling a graph whose edges lie in files that do not fit memory.

Which edges are picked for a node follows from its degree and the key of its choice, so it is known
before an edge is read. In each hop the picks of all minibatches of a macrobatch are read together.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.disk import DiskReader, DiskTable, ReadCounters, read_whole
from pyg_batchgnn.ops import InEdges, OpenSection, QuestionForm, Relay, RelayBook
from pyg_batchgnn.sample.macrobatch import MacrobatchSampler, kernel_arrays
from pyg_batchgnn.sample.sampling_plan import SamplingPlan, Subgraph
from pyg_batchgnn.sample.seeds import Seeds
from pyg_batchgnn.store import TypedGraph
from pyg_batchgnn.types import Layout, SampledMinibatch

#: The bytes of a pick beside the minibatch that it becomes: its answer, and its place in the file.
_ANSWER_BYTES = 24
#: The bytes of a pick while it is read: the place among the sorted ones, and what sorting takes.
_READ_BYTES = 32
#: The share of the budget that picks may take which are read together.
_SHARE = 1 / 2


@dataclass(frozen=True, eq=False)
class EdgeFiles:
    """The in-edges of one relation, in mapped files or in memory."""

    indptr: Tensor  # [n + 1] int64, in memory
    # sources, edge_ids: read from files, or taken from memory; no ids where positions are ids.
    sources: DiskReader | Tensor
    edge_ids: DiskReader | Tensor | None

    @classmethod
    def of(cls, edges: InEdges) -> EdgeFiles:
        """Opens the files of in-edges, once for all samplers of the same edges."""
        found = _opened.get(edges)
        if found is None:
            ids = None if edges.edge_ids is None else _reader(edges.edge_ids)
            found = _opened.setdefault(edges, cls(_in_memory(edges.indptr), _reader(edges.indices), ids))
        return found

    def read(self, section: OpenSection, most: int) -> ReadCounters:
        """Reads the sources and edge ids of the picked edges, ``most`` at a time. Raises OSError,
        with file and byte, if reading fails."""
        counters = ReadCounters()
        pieces = [section.position.split(most), section.sources.split(most)]
        edges = [None] * len(pieces[0]) if section.edges is None else section.edges.split(most)
        for position, sources, ids in zip(*pieces, edges, strict=True):
            files = [one for one in (self.sources, self.edge_ids) if isinstance(one, DiskReader)]
            ordered = _Ordered(*position.sort()) if files else None
            counters.add(_take(self.sources, position, ordered, sources))
            if ids is None:
                continue
            if self.edge_ids is None:
                ids.copy_(position)
            else:
                counters.add(_take(self.edge_ids, position, ordered, ids))
        return counters


#: By in-edges, for as long as they are used.
_opened: weakref.WeakKeyDictionary[InEdges, EdgeFiles] = weakref.WeakKeyDictionary()


def bytes_in_files(graph: TypedGraph) -> int:
    arrays = [one for edges in graph.relations for one in (edges.indptr, edges.indices, edges.edge_ids)]
    tables = [DiskTable.of(one) for one in arrays if one is not None]
    return sum(one.nbytes for one in tables if one is not None)


@dataclass(frozen=True)
class _Ordered:
    row: Tensor  # [n] ascending rows of a file
    place: Tensor  # [n] where each of them goes


def _take(
    source: DiskReader | Tensor, position: Tensor, ordered: _Ordered | None, out: Tensor
) -> ReadCounters:
    if isinstance(source, Tensor):
        out.copy_(source[position])
        return ReadCounters()
    assert ordered is not None
    if source.table.dtype is out.dtype:
        return source.read(ordered.row, out, ordered.place)
    found = torch.empty(len(out), dtype=source.table.dtype)
    counters = source.read(ordered.row, found, ordered.place)
    out.copy_(found)
    return counters


def _reader(array: Tensor) -> DiskReader | Tensor:
    table = DiskTable.of(array)
    return array if table is None else DiskReader(table)


def _in_memory(array: Tensor) -> Tensor:
    table = DiskTable.of(array)
    return array if table is None else read_whole(table)


class DiskSampler(MacrobatchSampler):
    """Samples as the sampler ``made`` does, but reads the picked edges of a hop from their files.

    Each hop takes one pass over the files for all minibatches, or a few if ``budget`` (bytes) is
    small. The page cache stays as it is. In-edges of nodes with excluded pairs, and induced
    subgraphs, are read through the mapping.
    """

    def __init__(self, made: MacrobatchSampler, budget: int) -> None:
        rules = made.plan, made.seed, made.threads, made.layout
        super().__init__(made.graph, *rules, times=made.times, weights=made.weights)
        self.budget, self._made, self._counters = budget, made, ReadCounters()
        self._most_picks = max(1 << 16, int(budget * _SHARE) // _READ_BYTES)  # at least some
        schema, graph = self.schema, self.typed
        relations = [
            InEdges(EdgeFiles.of(edges).indptr, edges.indices, edges.edge_ids) for edges in graph.relations
        ]
        self._arrays = kernel_arrays(schema, graph.num_nodes, relations, made.times, made.weights)
        #: The first id of each type in questions, where the ids of all types follow each other.
        self._first = torch.tensor([0, *graph.num_nodes]).cumsum(0)
        self._book = RelayBook(
            self._first.tolist(),
            schema.num_types,
            0,
            list(schema.source_types),
            list(schema.target_types),
            [edges.num_edges for edges in relations],
            relations[0].indices.dtype is torch.int64,
        )

    @classmethod
    def wanted(cls, made: MacrobatchSampler, budget: int | None) -> MacrobatchSampler:
        """Returns a sampler that reads the files of its edges, if they take more bytes than the
        budget. Else returns ``made``, as for edges in memory, without a budget, and for induced
        subgraphs, LABOR and HGT."""
        whole = type(made) is not MacrobatchSampler or made.plan.subgraph is Subgraph.INDUCED
        if budget is None or whole or made.plan.labor is not None:
            return made
        graph = made.typed
        fits_ids = ops.id_dtype(sum(graph.num_nodes)) is torch.int32
        if not fits_ids and any(one.indices.dtype is torch.int32 for one in graph.relations):
            return made
        return cls(made, budget) if bytes_in_files(graph) > budget else made

    def take_counters(self) -> ReadCounters:
        found, self._counters = self._counters, ReadCounters()
        return found

    def reading_bytes(self, minibatch: SampledMinibatch) -> int:
        return (_ANSWER_BYTES + _READ_BYTES) * minibatch.num_edges

    def with_plan(self, plan: SamplingPlan, layout: Layout) -> MacrobatchSampler:
        return DiskSampler.wanted(self._made.with_plan(plan, layout), self.budget)

    def sample(self, seed_lists: Sequence[Tensor | Seeds], epoch: int) -> list[SampledMinibatch]:
        minibatches = super().sample(seed_lists, epoch)
        if self.schema.num_types > 1:
            for minibatch in minibatches:
                for number, nodes in minibatch.reached_nodes.items():
                    nodes.node.sub_(self._first[number])
        return minibatches

    def _sample(self, seeds: ops.SampledSeeds, epoch: int) -> tuple[Sequence[Tensor], Tensor]:
        form = QuestionForm(seeds.example is not None, seeds.time is not None, seeds.excluded is not None)
        relay = Relay(self._in_one_row(seeds), self._book, self._rules, form, self.seed, epoch)
        nothing = torch.empty(0, dtype=torch.int64)
        for hop in range(self._rules.hops):
            question = relay.ask().own
            answers = ops.relay_answer_open(self._arrays, self._book, question, self._rules, form, hop)
            for section in answers.sections:
                self._read(section)
            fault = relay.merge(answers.words, nothing, [0])
            if fault is not None:
                raise ValueError(
                    f"a file of edges names node {fault.value}, but there are {self._book.num_nodes}; it was "
                    f"written to since it was checked"
                )
        return relay.take()

    def _read(self, section: OpenSection) -> None:
        files = EdgeFiles.of(self.typed.relations[section.relation])
        self._counters.add(files.read(section, self._most_picks))
        first = self._book.offsets[self.schema.source_types[section.relation]]
        if first:
            section.sources.add_(first)

    def _in_one_row(self, seeds: ops.SampledSeeds) -> ops.SampledSeeds:
        """Returns the seeds in one numbering of all types: a node's number is its id within its
        type plus the number of nodes of all types before."""
        types, excluded = self.schema.num_types, seeds.excluded
        if types == 1:
            return seeds
        by_list = self._first[:-1].repeat(seeds.keys.numel())
        node = seeds.node + by_list.repeat_interleave(seeds.ptr.diff())
        if excluded is not None:
            targets = torch.tensor(self.schema.target_types)[excluded[1]]
            excluded = excluded.clone()
            excluded[3] += self._first[targets]
        return replace(seeds, node=node, excluded=excluded)
