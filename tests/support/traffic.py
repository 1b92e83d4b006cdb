"""The rows that sampling over ranks sends, by the formulas."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from pyg_batchgnn.sample import SampledMinibatch, SamplingPlan


def asked_nodes(plan: SamplingPlan, batch: SampledMinibatch, away: Sequence[Tensor]) -> int:
    """Returns the expanded nodes of others that a relation with a fanout leads into.

    ``away``: by type, for each node of the minibatch, whether another rank owns it.
    """
    count, schema = 0, batch.schema
    for number, nodes in enumerate(batch.nodes):
        ends = [0, *torch.tensor(nodes.nodes_per_hop).cumsum(0).tolist()]
        into = [schema.relations[one] for one in schema.relations_into[number]]
        for hop in range(plan.num_hops):
            if any(plan.fanouts_of(relation)[hop] for relation in into):
                count += int(away[number][ends[hop] : ends[hop + 1]].sum())
    return count


def remote_edges(batch: SampledMinibatch, away: Sequence[Tensor]) -> int:
    """Returns the edges of a minibatch whose targets others own; see `asked_nodes`."""
    count = 0
    for target, edges in zip(batch.schema.target_types, batch.edges, strict=True):
        degrees = edges.indptr.diff()
        count += int(degrees[away[target][: degrees.numel()]].sum())
    return count
