"""Rows of tables that lie in files and are read past the page cache (design, section 10)."""

from typing import TYPE_CHECKING

from pyg_batchgnn.late_imports import late_names

if TYPE_CHECKING:
    from pyg_batchgnn.disk.mapped_tables import DiskTable as DiskTable
    from pyg_batchgnn.disk.mapped_tables import are_mapped as are_mapped
    from pyg_batchgnn.disk.mapped_tables import is_mapped as is_mapped
    from pyg_batchgnn.disk.mapped_tables import is_written as is_written
    from pyg_batchgnn.disk.reader import DiskReader as DiskReader
    from pyg_batchgnn.disk.reader import ReadCounters as ReadCounters
    from pyg_batchgnn.disk.reader import read_whole as read_whole
    from pyg_batchgnn.disk.scratch import ScratchTable as ScratchTable
    from pyg_batchgnn.disk.scratch import read_rows as read_rows
    from pyg_batchgnn.disk.scratch import read_span as read_span
else:
    __getattr__ = late_names(__name__)
