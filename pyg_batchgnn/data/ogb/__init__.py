"""The Open Graph Benchmark's data sets of nodes and links, read from OGB's raw files."""

from pyg_batchgnn.data.ogb.read import read_ogb
from pyg_batchgnn.data.ogb.tables import OGB_TABLES, OgbTable

__all__ = ["OGB_TABLES", "OgbTable", "read_ogb"]
