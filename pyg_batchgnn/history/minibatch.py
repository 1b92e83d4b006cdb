"""A minibatch of a part and its halo."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.data import NODES
from pyg_batchgnn.history.caches import HistoricalCaches
from pyg_batchgnn.history.forward_pass import HistoricalPass
from pyg_batchgnn.ops import InEdges
from pyg_batchgnn.sample import (
    AttributeRows,
    Minibatch,
    Placement,
    SampledEdges,
    SampledMinibatch,
    SampledNodes,
)


@dataclass(frozen=True, eq=False, repr=False)
class HistoricalMinibatch(Minibatch):
    """A minibatch sampled within a part and its halo.

    ``node``, ``nodes_per_hop`` and the attributes are those of the part's own nodes. In ``indices``
    the halo nodes follow the own ones. Halo nodes are not expanded. What layers read of them comes
    from caches when the model runs: see `begin_pass`.

    Attributes:
        halo: the halo nodes, by original id, and how many of them each hop found.
        halo_number: [H] int64, the number of each of them among the halo nodes of the part.
        own: [N] int64, the row of each own node in the part.
        caches: the caches of the rank.
    """

    halo: SampledNodes = field(kw_only=True)
    halo_number: Tensor = field(kw_only=True)
    own: Tensor = field(kw_only=True)
    caches: HistoricalCaches = field(kw_only=True)

    @classmethod
    def of_part(
        cls, sampled: SampledMinibatch, caches: HistoricalCaches, tables: Mapping[str, Tensor]
    ) -> HistoricalMinibatch:
        """Returns a minibatch of a `HaloSampler` with its own nodes first.

        Args:
            sampled: the minibatch, whose ``node`` holds local ids.
            caches: of the rank.
            tables: attributes by name, one row per node of the part. They are read in place.
        """
        nodes, edges, known = sampled.nodes[0], sampled.edges[0], caches.halo
        is_own = nodes.node < known.num_own
        own, halo = nodes.node[is_own], nodes.node[~is_own]
        per_hop = [int(hop.sum()) for hop in is_own.split(nodes.nodes_per_hop)]
        indptr, indices = edges.indptr, edges.indices
        if halo.numel():
            indices = _own_first(is_own, own.numel()).index_select(0, indices)
            begins = indptr[:-1][is_own[: indptr.numel() - 1]]
            indptr = torch.cat([begins, indptr[-1:]])
        left = [all_ - own for all_, own in zip(nodes.nodes_per_hop, per_hop, strict=True)]
        original = SampledNodes(ops.gather_rows(known.original, own), per_hop)
        return cls(
            sampled.schema,
            (original,),
            (SampledEdges(indptr, indices, edges.edge, edges.edges_per_hop),),
            sampled.key,
            sampled.input_id,
            sampled.seed,
            sampled.epoch,
            attributes={NODES: AttributeRows(tables, own, Placement.IN_PLACE)},
            halo=SampledNodes(ops.gather_rows(known.original, halo), left),
            halo_number=halo - known.num_own,
            own=own,
            caches=caches,
        )

    @property
    def in_edges(self) -> InEdges:
        """The edges into own nodes."""
        return InEdges(self.indptr, self.indices)

    def begin_pass(self) -> HistoricalPass:
        """Looks for the rows of halo nodes in the caches, for one forward pass."""
        return HistoricalPass(self, self.caches)


def _own_first(is_own: Tensor, own: int) -> Tensor:
    """Returns the new local id of each node, [N] int32, if own nodes come first."""
    rank = is_own.cumsum(0)
    return torch.where(is_own, rank - 1, own + torch.arange(is_own.numel()) - rank).to(torch.int32)
