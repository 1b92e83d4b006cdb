"""Rows of tables that lie in files and are read past the page cache (design, section 10)."""

from typing import TYPE_CHECKING

from pyg_batchgnn.late_imports import late_names

if TYPE_CHECKING:
    from pyg_batchgnn.disk.mapped_tables import DiskTable, are_mapped, is_mapped, is_written
    from pyg_batchgnn.disk.reader import GAP, DiskReader, ReadCounters, read_whole
    from pyg_batchgnn.disk.scratch import ScratchTable, read_rows, read_span
else:
    __getattr__ = late_names(__name__)

__all__ = [
    "GAP",
    "DiskReader",
    "DiskTable",
    "ReadCounters",
    "ScratchTable",
    "are_mapped",
    "is_mapped",
    "is_written",
    "read_rows",
    "read_span",
    "read_whole",
]
