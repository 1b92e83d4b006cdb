"""Turns tables with keys of any kind into data folders, larger than memory: `convert`."""

from typing import TYPE_CHECKING

from pyg_batchgnn.late_imports import late_names

if TYPE_CHECKING:
    from pyg_batchgnn.tables.conversion import Conversion, apply, convert, notes_on
    from pyg_batchgnn.tables.description import (
        ColumnFeature,
        EdgeTable,
        ForeignKey,
        GraphDescription,
        LabelColumn,
        NodeTable,
        TableOptions,
        TableSplit,
        TimeColumn,
    )
    from pyg_batchgnn.tables.examine import TableCheck, check
    from pyg_batchgnn.tables.guess import draft, write_draft
else:
    __getattr__ = late_names(__name__)

__all__ = [
    "ColumnFeature",
    "Conversion",
    "EdgeTable",
    "ForeignKey",
    "GraphDescription",
    "LabelColumn",
    "NodeTable",
    "TableCheck",
    "TableOptions",
    "TableSplit",
    "TimeColumn",
    "apply",
    "check",
    "convert",
    "draft",
    "notes_on",
    "write_draft",
]
