"""The attributes of a minibatch's nodes or edges, and where they lie."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from pyg_batchgnn import ops


class Placement(enum.Enum):
    """What a row of a minibatch's attribute tables belongs to."""

    IN_PLACE = "in_place"  # a node of the graph: the tables are the user's own
    BLOCK = "block"  # a distinct node of the fetch group: its minibatches share the tables
    MINIBATCH = "minibatch"  # a node or an edge of this minibatch alone


@dataclass(frozen=True, eq=False)
class AttributeRows:
    """The attributes of a minibatch's nodes or edges: row ``row[i]`` of each table is node i's."""

    tables: Mapping[str, Tensor]  # attributes by name, [rows, ...] each
    # [n] int64, the row of each node or edge in every table; None if they are the rows in order.
    row: Tensor | None
    placement: Placement  # what one row belongs to

    @classmethod
    def in_place(cls, tables: Mapping[str, Tensor], ids: Tensor) -> AttributeRows:
        """Returns attributes that are read at ``ids`` [n] int64 from the graph's whole tables."""
        return cls(tables, ids, Placement.IN_PLACE)

    def gather(self, name: str, rows: int | None = None) -> Tensor:
        """Copies attribute ``name`` of the first ``rows`` nodes or edges, of all by default. int8
        codes are decoded. Raises ValueError if the table lacks one of the rows."""
        table = self.tables[name]
        # Else of a batch on a device, whose rows no kernel here reads.
        is_here = "cpu" in (table.device.type, "" if self.row is None else self.row.device.type)
        if is_here:
            ops.check_dense(f"attribute {name!r}", table)
        if is_here and table.dim() == 0:
            raise ValueError(f"attribute {name!r} is one number; give a table with a row per node or edge")
        if self.row is None:
            own = table[:rows]
            return own.dequantize() if isinstance(own, ops.QuantizedTensor) else own.clone()
        if not is_here:
            return table.index_select(0, self.row[:rows])
        ops.check_dense("row", self.row)
        sizes = {one: list(other.shape[:1]) for one, other in self.tables.items()}
        if self.placement is Placement.BLOCK and any(size != [len(table)] for size in sizes.values()):
            raise ValueError(f"the tables of one block have different numbers of rows, {sizes}")
        index = self.row[:rows]
        try:
            return ops.gather_rows(table, index) if _is_plain(table, index) else table.index_select(0, index)
        except (IndexError, RuntimeError) as error:
            raise ValueError(
                f"attribute {name!r} has {len(table)} rows, but rows are read that it has not ({error}); "
                "give a table with as many rows as the others"
            ) from error

    @property
    def nbytes(self) -> int:
        """The bytes of the minibatch's own tensors, without tables that it shares with others."""
        if self.placement is Placement.IN_PLACE:
            return 0
        if self.placement is Placement.BLOCK:
            return 0 if self.row is None else self.row.nbytes
        return sum(table.nbytes for table in self.tables.values())


def _is_plain(table: Tensor, index: Tensor) -> bool:
    """Returns whether the package's kernel, which reuses memory, should copy the rows. For rows of
    several numbers it is 2 to 7 times as fast as torch's. For single numbers it is half as fast on
    one thread, but torch has only one there, and no wide unsigned integers."""
    stored = ops.as_stored(table)
    is_wide = stored.itemsize > 1 and not stored.dtype.is_signed
    return (
        type(table) in (Tensor, ops.QuantizedTensor)
        and (table.dim() > 1 or torch.get_num_threads() >= 4 or is_wide)
        and len(table) > 0
        and stored[0].is_contiguous()
        and index.is_contiguous()
        and index.dtype in ops.INTEGERS
        and not (table.requires_grad or table.is_conj() or table.is_neg() or table.is_quantized)
    )
