"""The command line: ``batchgnn train``, ``predict``, ``datasets``, ``generate`` and ``verify``."""

from pyg_batchgnn.train.cli.app import app, main

__all__ = ["app", "main"]
