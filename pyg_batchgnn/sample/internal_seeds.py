"""Seeds by the internal ids of a partition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.data import Schema
from pyg_batchgnn.partition import Part
from pyg_batchgnn.sample.seeds import ExcludedPairs, Seeds


def named_seeds(schema: Schema, seeds: Sequence[Tensor | Seeds]) -> list[Seeds]:
    """Returns the seeds of minibatches by original id.

    Args:
        schema: the schema of the graph.
        seeds: of each minibatch; [S_b] int64 node ids do where there is one node type.

    Raises:
        TypeError: node ids came without a type that they could be of.
    """
    named = []
    for number, one in enumerate(seeds):
        if isinstance(one, Seeds):
            named.append(one)
            continue
        what = f"original ids of seeds of minibatch {number}"
        if schema.num_types != 1:
            raise TypeError(f"{what}: the graph has the node types {list(schema.node_types)}; give Seeds")
        ids = one.contiguous() if isinstance(one, Tensor) else one
        ops.check_vector(what, ids, (torch.int64,))
        named.append(Seeds((ids,), (0,), ops.minibatch_key(ids)))
    return named


def internal_seeds(number: int, seeds: Seeds, internal: Tensor, part: Part) -> Seeds:
    """Returns the seeds of a minibatch by internal id.

    The ends of excluded pairs are found among the seeds.

    Args:
        number: the number of the minibatch, for errors.
        seeds: the seeds by original id.
        internal: [S] int64, their internal ids, by type in the order of the schema.
        part: this rank's.

    Raises:
        TypeError, ValueError, IndexError: the internal ids are of another dtype or number, or not
            ids of the seeds' types; or an end of an excluded pair is no seed.
    """
    what, book = f"seeds of minibatch {number}", part.book
    internal = internal.contiguous() if isinstance(internal, Tensor) else internal
    ops.check_vector(what, internal, (torch.int64,))
    if internal.numel() != seeds.count:
        raise ValueError(f"{what}: {internal.numel()} with {seeds.count} original ids")
    ops.check_range(what, internal, book.num_nodes)
    sizes = [ids.numel() for ids in seeds.nodes]
    if len(sizes) > 1:
        wanted = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
        wrong = book.type_of(internal) != wanted
        if bool(wrong.any()):
            at = int(wrong.nonzero()[0])
            raise ValueError(
                f"{what}: internal id {int(internal[at])} is not of a node of type "
                f"{part.schema.node_types[int(wanted[at])]!r}; give ids by type in the order of the schema"
            )
    nodes = tuple(internal.split(sizes))
    excluded = _excluded(what, part.schema, seeds, nodes)
    return replace(seeds, nodes=nodes, excluded=excluded)


def _excluded(
    what: str, schema: Schema, seeds: Seeds, internal: Sequence[Tensor]
) -> Mapping[int, ExcludedPairs]:
    found = {}
    for relation, excluded in seeds.excluded.items():
        ends = zip(
            (schema.source_types[relation], schema.target_types[relation]), excluded.pairs, strict=True
        )
        ids = [_among(what, seeds.nodes[end], internal[end], original) for end, original in ends]
        found[relation] = ExcludedPairs(torch.stack(ids), excluded.example)
    return found


def _among(what: str, original: Tensor, internal: Tensor, wanted: Tensor) -> Tensor:
    """Returns the internal ids of nodes that are seeds, [n] int64."""
    if not wanted.numel():
        return wanted
    ascending, order = original.sort()
    at = torch.searchsorted(ascending, wanted).clamp(max=max(original.numel() - 1, 0))
    known = ascending[at] == wanted if original.numel() else torch.zeros(wanted.numel(), dtype=torch.bool)
    if not bool(known.all()):
        node = int(wanted[~known][0])
        raise ValueError(
            f"{what}: node {node} of an excluded pair is no seed; over ranks both ends of each pair must be"
        )
    return internal[order[at]]
