"""The command line: ``batchgnn train``, ``plan``, ``predict``, ``datasets``, ``generate``,
``partition``, ``verify``."""

from pyg_batchgnn.train.cli.app import app, main

__all__ = ["app", "main"]
