"""Multilevel partitioning over ranks: the graph is coarsened by clusters again and again, the
coarsest graph is cut, and the cut is refined on the way back."""

from pyg_batchgnn.partition.multilevel.owners import balanced_owners, has_metis

__all__ = ["balanced_owners", "has_metis"]
