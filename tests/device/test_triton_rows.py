"""The kernel that reads rows of the host, interpreted where Triton is installed."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
@pytest.mark.parametrize("interpret", ["1", ""], ids=["interpreted, with loaders", "compiled"])
def test_the_kernel(interpret: str) -> None:
    """In a process of its own, as Triton decides once whether it interprets."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.device.job_triton"],
        env={**os.environ, "TRITON_INTERPRET": interpret},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=250,
    )
    assert done.returncode == 0 and done.stdout == "right\n", done.stderr
