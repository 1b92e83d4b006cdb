"""The seeds of minibatches, as users give them and as kernels take them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.store import TypedGraph
from pyg_batchgnn.types import Relation, Schema

if TYPE_CHECKING:
    from pyg_batchgnn.partition import Part


@dataclass(frozen=True, eq=False)
class ExcludedPairs:
    """Node pairs of one relation between which a minibatch picks no edge."""

    pairs: Tensor  # [2, n] int64, sources above targets, ids within their types
    # [n] int64, the number of the example that each pair is excluded for; None: for all. Ignored
    # unless sampling is disjoint.
    example: Tensor | None = None
    # [n] int64, the input id of the only edge of each pair that is left out; None: all edges are.
    edge: Tensor | None = None


@dataclass(frozen=True, eq=False)
class Seeds:
    """The seeds of one minibatch, of any node types."""

    nodes: tuple[Tensor, ...]  # [S_t] int64 node ids, for each node type of the schema
    # The numbers of the types in the order in which they were given, as `time` and `example` are.
    types: tuple[int, ...]
    key: int  # the digest of the seeds, in [0, 2**64)
    time: Tensor | None = None  # [S] int64, the time of each seed, or None
    # [S] int64, in disjoint sampling the number of each seed's example; None: 0 to S - 1.
    example: Tensor | None = None
    #: By number of the relation, the pairs whose edges must not be used.
    excluded: Mapping[int, ExcludedPairs] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        schema: Schema,
        nodes: Mapping[str, Tensor],
        *,
        key: int | None = None,
        time: Tensor | None = None,
        example: Tensor | None = None,
        excluded: Mapping[Relation, ExcludedPairs] | None = None,
    ) -> Seeds:
        """Returns seeds from [S_t] int64 node ids by name of the type. ``key``: their digest; None
        computes it (`seeds_key`). ``time, example``: as the attributes, in this order."""
        by_type = [_NONE] * schema.num_types
        types = tuple(map(schema.type_number, nodes))
        for number, ids in zip(types, nodes.values(), strict=True):
            by_type[number] = ids.contiguous() if getattr(ids, "layout", None) is torch.strided else ids
            ops.check_vector(f"seeds of type {schema.node_types[number]!r}", by_type[number], (torch.int64,))
        return cls(
            tuple(by_type),
            types,
            seeds_key(schema, by_type) if key is None else key,
            time,
            example,
            {schema.relation_number(name): pairs for name, pairs in (excluded or {}).items()},
        )

    @cached_property
    def count(self) -> int:
        return sum(ids.numel() for ids in self.nodes)


def seeds_key(schema: Schema, nodes: Sequence[Tensor]) -> int:
    """Returns the digest of a minibatch's seeds, [S_t] int64 by node type, in [0, 2**64). In a
    graph of one node type this is `minibatch_key`. Else each type with seeds adds a digest of its
    name and one of its seeds, in order of the names' UTF-8 bytes, whatever the order of the
    types."""
    if schema.num_types == 1:
        return ops.minibatch_key(nodes[0])
    key = 0
    given = ((name, ids) for name, ids in zip(schema.node_types, nodes, strict=True) if ids.numel())
    for name, ids in sorted(given, key=lambda one: one[0].encode()):
        key = ops.fold_key(ops.fold_key(key, ops.names_key((name,))), ops.minibatch_key(ids))
    return key


_NONE = torch.empty(0, dtype=torch.int64)


def named_seeds(schema: Schema, number: int, seeds: Tensor | Seeds) -> Seeds:
    if isinstance(seeds, Seeds):
        return seeds
    name = f"seeds of minibatch {number}"
    if schema.num_types != 1:
        raise TypeError(
            f"{name}: the graph has the node types {list(schema.node_types)}; give Seeds, for instance "
            f"Seeds.of(schema, {{{schema.node_types[0]!r}: ids}})"
        )
    ids = seeds.contiguous() if getattr(seeds, "layout", None) is torch.strided else seeds
    ops.check_vector(name, ids, (torch.int64,))
    return Seeds((ids,), (0,), ops.minibatch_key(ids))


def checked_seeds(graph: TypedGraph, number: int, seeds: Tensor | Seeds) -> Seeds:
    found = named_seeds(graph.schema, number, seeds)
    for type_number in found.types:
        nodes, most = found.nodes[type_number], graph.num_nodes[type_number]
        ops.check_range(f"seeds of minibatch {number}", nodes, most)
    return found


def gather_seeds(
    seeds: Sequence[Seeds], disjoint: bool, timed: bool, freeze: int | None = None
) -> ops.SampledSeeds:
    parts, ptr = _nodes(seeds)
    times = [_NONE, *(_times(number, one) for number, one in enumerate(seeds))] if timed else []
    return ops.SampledSeeds(
        torch.cat(parts) if parts else _NONE,
        ptr,
        torch.tensor([ops.to_signed(one.key) for one in seeds], dtype=torch.int64),
        torch.cat([_NONE, *(_examples(number, one) for number, one in enumerate(seeds))])
        if disjoint
        else None,
        frozen(torch.cat(times), freeze) if timed else None,
        _excluded(seeds, disjoint),
    )


def _nodes(seeds: Sequence[Seeds]) -> tuple[list[Tensor], Tensor]:
    """Returns all seeds by minibatch and type, and where each minibatch and type begins."""
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
    _check_count(f"example numbers of minibatch {number}", seeds.example, seeds.count)
    ops.check_range(f"example numbers of minibatch {number}", seeds.example, 1 << 31, "examples")
    return _by_type(seeds.example, seeds)


def _times(number: int, seeds: Seeds) -> Tensor:
    if seeds.time is None:
        raise ValueError(
            f"minibatch {number} has no seed times; sampling by time needs one for each seed (input_time)"
        )
    _check_count(f"seed times of minibatch {number}", seeds.time, seeds.count)
    return _by_type(seeds.time, seeds)


def frozen(time: Tensor | None, freeze: int | None) -> Tensor | None:
    """Returns the times of seeds or links, none later than ``freeze``."""
    return time if time is None or freeze is None else time.clamp(max=freeze)


def _check_count(name: str, values: Tensor, count: int) -> None:
    ops.check_vector(name, values, (torch.int64,))
    if values.numel() != count:
        raise ValueError(f"{name}: {values.numel()} for {count} seeds; give one for each seed")


def _by_type(values: Tensor, seeds: Seeds) -> Tensor:
    if list(seeds.types) == sorted(seeds.types):
        return values
    parts = values.split([seeds.nodes[number].numel() for number in seeds.types])
    by_type = dict(zip(seeds.types, parts, strict=True))
    return torch.cat([by_type[number] for number in sorted(by_type)])


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
            example = torch.full((count,), -1) if own is None else own  # -1: all
            where = torch.tensor([[minibatch], [relation]]).expand(2, count)
            source = pairs[:1] if excluded.edge is None else ~excluded.edge[None]
            columns.append(torch.cat([where, example[None], pairs[1:], source]))
    if not columns:
        return None
    table = torch.cat(columns, dim=1)
    for row in reversed(range(5)):
        table = table[:, torch.argsort(table[row], stable=True)]
    return table.contiguous()


def internal_seeds(number: int, seeds: Seeds, internal: Tensor, part: Part) -> Seeds:
    """Returns a minibatch's seeds with internal ids. The ends of excluded pairs must be seeds."""
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
    nodes, excluded = tuple(internal.split(sizes)), {}
    for relation, one in seeds.excluded.items():
        ends = part.schema.source_types[relation], part.schema.target_types[relation]
        pairs = zip(ends, one.pairs, strict=True)
        ids = [_among(what, seeds.nodes[end], nodes[end], original) for end, original in pairs]
        excluded[relation] = replace(one, pairs=torch.stack(ids))
    return replace(seeds, nodes=nodes, excluded=excluded)


def _among(what: str, original: Tensor, internal: Tensor, wanted: Tensor) -> Tensor:
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
