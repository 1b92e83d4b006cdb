"""The table of a node type: a rank's rows, and the state of the optimizer beside them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.data import Group, Schema

_EMBEDDING = int.from_bytes(b"embed", "little")


@dataclass(eq=False)
class EmbeddingTable:
    """The rows of one node type that a rank holds. No rank holds all of them.

    Attributes:
        group: the nodes.
        node_type: the number of their type.
        node: [n] int64, the original id of each row's node.
        weight: [n, F] float32 or float64, the rows.
        state: [n, F] each, what the optimizer keeps for each number.
        frozen: [n] bool, the rows that no optimizer changes; None if there are none.
    """

    group: Group
    node_type: int
    node: Tensor
    weight: Tensor
    state: tuple[Tensor, ...] = ()
    frozen: Tensor | None = field(default=None)

    @property
    def columns(self) -> int:
        """The number of columns, F."""
        return self.weight.size(1)

    @property
    def rows(self) -> ops.RowTable:
        """The rows and their state as operators take them."""
        return ops.RowTable(self.weight, self.state, self.frozen)


@dataclass(frozen=True)
class InitialRows:
    """The rule of initial rows: keyed uniform numbers in [-bound, bound).

    A number is a function of (seed, node type, original id, column). So initial rows do not depend
    on ranks or threads.

    Attributes:
        seed: any integer, taken modulo 2**64.
        bound: the largest absolute value; None is 1 / sqrt(F) of a table of F columns.
    """

    seed: int
    bound: float | None = None

    def fill(self, table: EmbeddingTable, schema: Schema) -> None:
        """Writes the initial rows of a table."""
        bound = 1 / math.sqrt(max(table.columns, 1)) if self.bound is None else self.bound
        key = ops.fold_key(ops.fold_key(0, self.seed % 2**64), _EMBEDDING)
        if schema.num_types > 1:
            key = ops.fold_key(key, ops.names_key([schema.node_types[table.node_type]]))
        ops.fill_uniform(table.weight, table.node, key, bound)


def make_table(
    schema: Schema, node_type: int, node: Tensor, columns: int, dtype: torch.dtype
) -> EmbeddingTable:
    """Makes a table whose rows are not yet written."""
    weight = torch.empty(node.numel(), columns, dtype=dtype)
    ops.advise_huge_pages(weight)
    return EmbeddingTable(schema.node_groups[node_type], node_type, node, weight)
