"""Multilevel partitioning over ranks: the graph is coarsened by clusters again and again, the
coarsest graph is cut, and the cut is refined on the way back."""

from pyg_batchgnn.partition.multilevel.owners import balanced_owners as balanced_owners
from pyg_batchgnn.partition.multilevel.owners import has_metis as has_metis
