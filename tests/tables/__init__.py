"""Tests of `pyg_batchgnn.tables`."""
