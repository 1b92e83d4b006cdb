"""The Open Graph Benchmark's data sets of nodes and links, read from OGB's raw files."""

from pyg_batchgnn.data.ogb.facts import OGB_TABLES as OGB_TABLES
from pyg_batchgnn.data.ogb.facts import OgbTable as OgbTable
from pyg_batchgnn.data.ogb.read import read_ogb as read_ogb
