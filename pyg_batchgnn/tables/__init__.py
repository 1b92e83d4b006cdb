"""Turns tables with keys of any kind into data folders, larger than memory: `convert`."""

from typing import TYPE_CHECKING

from pyg_batchgnn.late_imports import late_names

if TYPE_CHECKING:
    from pyg_batchgnn.tables.conversion import Conversion as Conversion
    from pyg_batchgnn.tables.conversion import apply as apply
    from pyg_batchgnn.tables.conversion import convert as convert
    from pyg_batchgnn.tables.description import ColumnFeature as ColumnFeature
    from pyg_batchgnn.tables.description import EdgeTable as EdgeTable
    from pyg_batchgnn.tables.description import ForeignKey as ForeignKey
    from pyg_batchgnn.tables.description import GraphDescription as GraphDescription
    from pyg_batchgnn.tables.description import LabelColumn as LabelColumn
    from pyg_batchgnn.tables.description import NodeTable as NodeTable
    from pyg_batchgnn.tables.description import TableOptions as TableOptions
    from pyg_batchgnn.tables.description import TableSplit as TableSplit
    from pyg_batchgnn.tables.description import TimeColumn as TimeColumn
    from pyg_batchgnn.tables.examine import TableCheck as TableCheck
    from pyg_batchgnn.tables.examine import check as check
    from pyg_batchgnn.tables.guess import draft as draft
    from pyg_batchgnn.tables.guess import write_draft as write_draft
else:
    __getattr__ = late_names(__name__)
