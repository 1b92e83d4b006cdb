"""A part of a graph that asks other parts and answers them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.ops import (
    OwnedGraph,
    QuestionForm,
    Relay,
    RelayAnswers,
    RelayBook,
    RelayFault,
    relay_answer,
)
from pyg_batchgnn.partition import Part
from pyg_batchgnn.sample.gather_seeds import gather_seeds
from pyg_batchgnn.sample.kernel_graph import kernel_arrays
from pyg_batchgnn.sample.plan import SamplingPlan, Subgraph
from pyg_batchgnn.sample.sampled import SampledMinibatch
from pyg_batchgnn.sample.sampled_parts import Layout
from pyg_batchgnn.sample.seeds import Seeds
from pyg_batchgnn.sample.unpack import Unpacker
from pyg_batchgnn.store import TimeOrder, WeightSums


class RelayPart:
    """A rank's side of the relays of a sampler, without the exchanges.

    Args:
        part: this rank's part.
        plan: fanouts and the rules of picking.
        layout: form of the edges.
        times: by relation, the time order of the part's own edges, or None; see
            `PartitionedSampler`.
        weights: by relation, the weights of the part's own edges, or None.
        excluding: True if seeds may have excluded pairs.
    """

    def __init__(
        self,
        part: Part,
        plan: SamplingPlan,
        layout: Layout,
        times: Sequence[TimeOrder | None] = (),
        weights: Sequence[WeightSums | None] = (),
        *,
        excluding: bool = False,
    ) -> None:
        self.part, self.plan = part, plan
        timed = any(one is not None for one in times)
        self.form = QuestionForm(plan.disjoint or timed, timed, excluding)
        self._rules = plan.rules(part.schema, layout is Layout.COO)
        self._unpacker = Unpacker(part.schema, plan, layout, self.form.disjoint)
        self._owned = _owned_graph(part, times, weights)
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
        """The number of relays of a macrobatch: one per hop, and one for an induced subgraph."""
        return self.plan.num_hops + (self.plan.subgraph is Subgraph.INDUCED)

    def begin(self, seeds: Sequence[Seeds], seed: int, epoch: int) -> Relay:
        """Begins to sample one minibatch for each list of seeds, by internal id."""
        gathered = gather_seeds(seeds, self.form.disjoint, self.form.timed)
        return Relay(gathered, self._book, self._rules, self.form, seed, epoch)

    def answer(
        self, words: Tensor, counts: Sequence[int], hop: int, threads: int
    ) -> RelayAnswers | RelayFault:
        """Answers the questions of a relay; see `ops.relay_answer`."""
        return relay_answer(self._owned, words, counts, self._rules, self.form, hop, threads)

    def finish(self, relay: Relay, seeds: Sequence[Seeds], seed: int, epoch: int) -> list[SampledMinibatch]:
        """Returns the minibatches, whose ``node`` holds internal ids. ``seeds``: by original id."""
        return self._unpacker.minibatches(*relay.take(), seeds, seed, epoch)


def _owned_graph(
    part: Part, times: Sequence[TimeOrder | None], weights: Sequence[WeightSums | None]
) -> OwnedGraph:
    """Returns the part's arrays, as far as the kernels trust them, checked."""
    schema, book = part.schema, part.book
    num_nodes = [len(book.nodes_of(part.number, number)) for number in range(book.num_types)]
    ops.check_vector("part.node", part.node, (torch.int64,))
    for number, edges in enumerate(part.relations):
        nodes, ids = num_nodes[schema.target_types[number]], edges.explicit_edge_ids()
        ops.check_vector("part.indptr", edges.indptr, (torch.int64,))
        ops.check_vector("part.indices", edges.indices, (book.id_dtype,))
        ops.check_vector("part.edge_ids", ids)
        sizes = (part.node.numel(), edges.num_targets, ids.numel())
        if sizes != (sum(num_nodes), nodes, edges.num_edges):
            raise ValueError(
                f"the book gives part {part.number} {sum(num_nodes)} nodes, {nodes} of them targets of "
                f"{schema.relations[number]}, but it has {sizes[0]} original ids, {sizes[1]} lists of "
                f"in-edges, {edges.num_edges} sources and {sizes[2]} edge ids"
            )
    explicit = [ops.InEdges(one.indptr, one.indices, one.explicit_edge_ids()) for one in part.relations]
    owned = OwnedGraph(
        kernel_arrays(schema, num_nodes, explicit, times, weights),
        part.node,
        part.first,
        book.num_nodes,
        list(part.edge_counts),
    )
    owned.held()
    return owned
