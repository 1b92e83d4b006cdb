"""The seeds of all minibatches of a macrobatch in the arrays that the kernel takes."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.sample.seeds import Seeds
from pyg_batchgnn.store import TypedGraph

_ALL_EXAMPLES = -1


def checked_seeds(graph: TypedGraph, number: int, seeds: Tensor | Seeds) -> Seeds:
    """Returns the seeds of a minibatch, whose nodes are checked.

    Args:
        graph: the graph.
        number: the number of the minibatch, for errors.
        seeds: the seeds; in a graph of one node type [S] int64 node ids do.

    Raises:
        TypeError, ValueError, IndexError: seeds of another dtype or shape, or outside the graph.
    """
    schema, name = graph.schema, f"seeds of minibatch {number}"
    if not isinstance(seeds, Seeds):
        if schema.num_types != 1:
            raise TypeError(
                f"{name}: the graph has the node types {list(schema.node_types)}; give Seeds, for instance "
                f"Seeds.of(schema, {{{schema.node_types[0]!r}: ids}})"
            )
        ids = seeds.contiguous() if isinstance(seeds, Tensor) else seeds
        ops.check_vector(name, ids, (torch.int64,))
        seeds = Seeds((ids,), (0,), ops.minibatch_key(ids))
    for type_number in seeds.types:
        ops.check_range(name, seeds.nodes[type_number], graph.num_nodes[type_number])
    return seeds


def gather_seeds(seeds: Sequence[Seeds], disjoint: bool, timed: bool) -> ops.SampledSeeds:
    """Returns the seeds of all minibatches, checked, as one list.

    Args:
        seeds: the seeds of each minibatch; their nodes are checked already.
        disjoint: True if every seed belongs to an example.
        timed: True if every seed has a time.

    Raises:
        TypeError, ValueError: times or examples that are missing or do not fit the seeds.
    """
    parts, ptr = _nodes(seeds)
    return ops.SampledSeeds(
        torch.cat(parts) if parts else _NONE,
        ptr,
        torch.tensor([ops.to_signed(one.key) for one in seeds], dtype=torch.int64),
        torch.cat([_NONE, *(_examples(number, one) for number, one in enumerate(seeds))])
        if disjoint
        else None,
        torch.cat([_NONE, *(_times(number, one) for number, one in enumerate(seeds))]) if timed else None,
        _excluded(seeds, disjoint),
    )


def _nodes(seeds: Sequence[Seeds]) -> tuple[list[Tensor], Tensor]:
    """Returns the seeds by minibatch and type, and where those of each minibatch and type begin.

    Types without seeds take no time of their own.
    """
    parts, places, sizes, first = [], [], [], 1
    for one in seeds:
        for number in sorted(one.types):
            parts.append(one.nodes[number])
            places.append(first + number)
            sizes.append(one.nodes[number].numel())
        first += len(one.nodes)
    ptr = torch.zeros(first, dtype=torch.int64)
    ptr[torch.tensor(places, dtype=torch.int64)] = torch.tensor(sizes, dtype=torch.int64)
    return parts, ptr.cumsum_(0)


def _examples(number: int, seeds: Seeds) -> Tensor:
    if seeds.example is None:
        return _by_type(torch.arange(seeds.count), seeds)
    _check(f"example numbers of minibatch {number}", seeds.example, seeds.count)
    ops.check_range(f"example numbers of minibatch {number}", seeds.example, 1 << 31, "examples")
    return _by_type(seeds.example, seeds)


def _times(number: int, seeds: Seeds) -> Tensor:
    if seeds.time is None:
        raise ValueError(
            f"minibatch {number} has no seed times; sampling by time needs one for each seed (input_time)"
        )
    _check(f"seed times of minibatch {number}", seeds.time, seeds.count)
    return _by_type(seeds.time, seeds)


def _check(name: str, values: Tensor, count: int) -> None:
    ops.check_vector(name, values, (torch.int64,))
    if values.numel() != count:
        raise ValueError(f"{name}: {values.numel()} for {count} seeds; give one for each seed")


def _by_type(values: Tensor, seeds: Seeds) -> Tensor:
    """Puts values in the order in which the seeds' types were given into the schema's order."""
    if all(a < b for a, b in zip(seeds.types, seeds.types[1:], strict=False)):
        return values
    parts = values.split([seeds.nodes[number].numel() for number in seeds.types])
    return torch.cat(
        [part for _, part in sorted(zip(seeds.types, parts, strict=True), key=lambda one: one[0])]
    )


def _excluded(seeds: Sequence[Seeds], disjoint: bool) -> Tensor | None:
    columns = []
    for minibatch, one in enumerate(seeds):
        for relation, excluded in one.excluded.items():
            pairs = excluded.pairs
            if pairs.dtype != torch.int64 or pairs.dim() != 2 or pairs.size(0) != 2:
                raise ValueError(
                    f"excluded pairs must be [2, n] int64, got {pairs.dtype} {list(pairs.shape)}"
                )
            count = pairs.size(1)
            own = excluded.example if disjoint else None
            example = torch.full((count,), _ALL_EXAMPLES) if own is None else own
            where = torch.tensor([[minibatch], [relation]]).expand(2, count)
            columns.append(torch.cat([where, example[None], pairs[1:], pairs[:1]]))
    if not columns:
        return None
    table = torch.cat(columns, dim=1)
    for row in (4, 3, 2):  # minibatches ascend already
        table = table[:, torch.argsort(table[row], stable=True)]
    table = table[:, torch.argsort(table[1], stable=True)]
    return table[:, torch.argsort(table[0], stable=True)].contiguous()


_NONE = torch.empty(0, dtype=torch.int64)
