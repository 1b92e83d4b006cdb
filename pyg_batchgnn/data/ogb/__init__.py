"""The Open Graph Benchmark's data sets of nodes and links, read from OGB's raw files."""

from pyg_batchgnn.data.ogb.facts import OGB_TABLES, OgbTable
from pyg_batchgnn.data.ogb.read import read_ogb

__all__ = ["OGB_TABLES", "OgbTable", "read_ogb"]
