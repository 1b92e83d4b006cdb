"""The job of ranks in test_pages.py: runs the example several times."""

from __future__ import annotations

import contextlib
import io
import runpy
import sys
from unittest import mock

import torch._dynamo  # noqa: F401 (DistributedDataParallel imports it: once here, not in every rank)

from tests.support.ranks import ROOT

SCRIPT = ROOT / "examples" / "distributed.py"


def run(commands: list[list[str]]) -> list[str]:
    """Runs the script once for each list of arguments. Returns what each run printed."""
    printed = []
    for arguments in commands:
        out = io.StringIO()
        with mock.patch.object(sys, "argv", [str(SCRIPT), *arguments]), contextlib.redirect_stdout(out):
            runpy.run_path(str(SCRIPT), run_name="__main__")
        printed.append(out.getvalue())
    return printed
