"""The kernel that reads rows of the host, interpreted where Triton is installed."""

from __future__ import annotations

import importlib.util

import pytest

from tests.support.programs import run_python


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
@pytest.mark.parametrize("interpret", ["1", ""], ids=["interpreted, with loaders", "compiled"])
def test_the_kernel(interpret: str) -> None:
    """In a process of its own, as Triton decides once whether it interprets."""
    done = run_python("-m", "tests.device.job_triton", timeout=250, TRITON_INTERPRET=interpret)
    assert done.returncode == 0 and done.stdout == "right\n", done.stderr
