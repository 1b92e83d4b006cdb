"""The schema; it lives in `pyg_batchgnn.types`."""

from pyg_batchgnn.types import HOMOGENEOUS, Relation, Schema

__all__ = ["HOMOGENEOUS", "Relation", "Schema"]
