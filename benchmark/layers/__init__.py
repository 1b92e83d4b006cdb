"""Aggregation and dense layers alone."""
