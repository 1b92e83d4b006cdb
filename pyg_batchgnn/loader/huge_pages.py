"""Huge pages under the user's tables, whose rows batches read at random."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.fetch import are_mapped, as_table

#: In bytes. A TLB holds most pages of a smaller table.
_LEAST = 16 << 20


def advise_tables(values: Iterable[Any]) -> None:
    """Asks for huge pages under the larger ones of the user's tables.

    Contents and addresses stay as they are. Mapped files are left alone, as they would be read into
    memory.

    Args:
        values: attributes of any kind; those that are no dense tables in memory are left alone.
    """
    found = [as_table(value, 0) for value in values]
    tables = [table for table in found if isinstance(table, Tensor) and table.nbytes >= _LEAST]
    for table, in_file in zip(tables, are_mapped(tables), strict=True):
        if not in_file:
            ops.advise_huge_pages(table)
