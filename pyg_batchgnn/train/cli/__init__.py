"""The command line, with one module per command."""

from pyg_batchgnn.train.cli.app import app, main

__all__ = ["app", "main"]
