"""The job of ranks in test_example.py: runs the example."""

from __future__ import annotations

import contextlib
import io
import runpy

import torch._dynamo  # noqa: F401 (DistributedDataParallel imports it: once here, not in every rank)

from tests.support.ranks import ROOT


def run() -> str:
    """Runs the script. Returns what it printed."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        runpy.run_path(str(ROOT / "examples" / "embeddings.py"), run_name="__main__")
    return out.getvalue()
