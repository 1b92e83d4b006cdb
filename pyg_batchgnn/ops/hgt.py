"""Sampling minibatches by budgets, as the Heterogeneous Graph Transformer does.

The kernel trusts its arguments, which are checked here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from pyg_batchgnn.ops.library import kernels, memory_errors, to_signed
from pyg_batchgnn.ops.sample import SampledGraph, SampledSeeds
from pyg_batchgnn.ops.sample_checks import check_seeds


@dataclass(frozen=True, eq=False)
class BudgetRules:
    """The rules of sampling by budgets.

    Attributes:
        hops: the number of hops.
        samples: [types * hops] nodes to sample, hops of type 0 first; -1 for all.
        type_digest: by type, the digest of its name, signed.
        cap: the neighbours of a node that count in a relation; -1 for all.
        return_edge: True if the ids of the edges are wanted.
        coo: True returns sources and targets as int64, else sources by target as int32.
    """

    hops: int
    samples: list[int]
    type_digest: list[int]
    cap: int
    return_edge: bool
    coo: bool


def sample_by_budgets(
    graph: SampledGraph, seeds: SampledSeeds, rules: BudgetRules, seed: int, epoch: int, threads: int
) -> tuple[Sequence[Tensor], Tensor]:
    """Samples one minibatch for each list of seeds; see `sample` for what is returned.

    Edges have no hops, so that their counts are zero.
    """
    types = len(graph.num_nodes)
    held = graph.held()
    check_seeds(seeds.node, seeds.ptr, seeds.keys, graph.num_nodes)
    if len(rules.samples) != types * rules.hops or any(one < -1 for one in rules.samples):
        raise ValueError(
            f"there must be {types * rules.hops} numbers of samples, each at least -1, got {rules.samples}"
        )
    if len(rules.type_digest) != types:
        raise ValueError(f"{len(rules.type_digest)} digests came for {types} node types")
    if rules.cap < -1 or rules.cap == 0:
        raise ValueError(f"the cap of neighbours must be positive, or -1 for none, got {rules.cap}")
    with memory_errors(
        f"not enough memory to sample {seeds.node.numel()} seeds with num_samples {rules.samples}; use "
        f"smaller samples, batches or macrobatches"
    ):
        return kernels.sample_hgt(
            *(held, seeds.node, seeds.ptr, seeds.keys),
            *(rules.hops, rules.samples, rules.type_digest, rules.cap, rules.return_edge, rules.coo),
            *(to_signed(seed), to_signed(epoch), threads),
        )
