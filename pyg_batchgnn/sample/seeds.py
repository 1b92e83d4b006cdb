"""The seeds of one minibatch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.data import Relation, Schema


@dataclass(frozen=True, eq=False)
class ExcludedPairs:
    """Pairs of nodes of one relation; their edges are left out of a minibatch.

    Attributes:
        pairs: [2, n] int64, sources above targets, ids within their types. All parallel edges of a
            pair are excluded.
        example: [n] int64, the number of the example that each pair is excluded for; None: for all.
            Ignored unless sampling is disjoint.
    """

    pairs: Tensor
    example: Tensor | None = None


@dataclass(frozen=True, eq=False)
class Seeds:
    """The seeds of one minibatch, of any node types.

    Attributes:
        nodes: [S_t] int64 node ids, for each node type of the schema.
        types: the numbers of the types that were given, in the order in which they were given.
            ``time`` and ``example`` follow this order.
        key: the digest of the seeds, in [0, 2**64).
        time: [S] int64, the time of each seed, or None.
        example: [S] int64, in disjoint sampling the number of each seed's example; None: 0 to
            S - 1.
        excluded: by number of the relation, the pairs whose edges must not be used.
    """

    nodes: tuple[Tensor, ...]
    types: tuple[int, ...]
    key: int
    time: Tensor | None = None
    example: Tensor | None = None
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
        """Returns the seeds given by the name of their types.

        Args:
            schema: the schema of the graph.
            nodes: [S_t] int64 node ids by name of the type. Types that are missing have no seeds.
            key: the digest of the seeds; None: that of the node ids (`seeds_key`).
            time, example: see the attributes; in the order of ``nodes``.
            excluded: by relation, the pairs whose edges must not be used.
        """
        by_type = [_NONE] * schema.num_types
        for name, ids in nodes.items():
            by_type[schema.type_number(name)] = ids.contiguous() if isinstance(ids, Tensor) else ids
        types = tuple(map(schema.type_number, nodes))
        for number in types:
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
        """The number of seeds of all types."""
        return sum(ids.numel() for ids in self.nodes)


def seeds_key(schema: Schema, nodes: Sequence[Tensor]) -> int:
    """Returns the digest of the seeds of a minibatch, in [0, 2**64).

    In a graph of one node type this is `minibatch_key`. With more types, each type that has seeds
    adds a digest of its name and that of its seeds, in ascending order of the names' UTF-8 bytes.
    So the key does not depend on the order of the types.

    Args:
        schema: the schema of the graph.
        nodes: [S_t] int64 by node type.
    """
    if schema.num_types == 1:
        return ops.minibatch_key(nodes[0])
    key = 0
    given = ((name, ids) for name, ids in zip(schema.node_types, nodes, strict=True) if ids.numel())
    for name, ids in sorted(given, key=lambda one: one[0].encode()):
        key = ops.fold_key(ops.fold_key(key, ops.names_key((name,))), ops.minibatch_key(ids))
    return key


_NONE = torch.empty(0, dtype=torch.int64)
