"""Partitioning of growing graphs."""
