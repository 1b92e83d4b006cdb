"""The backends that tests run with."""

from __future__ import annotations

import os

import pytest

from pyg_batchgnn.comm.ccl import why_unavailable

#: CI installs ccl and says so: there its tests cannot be skipped.
_REQUIRED = os.environ.get("PYG_BATCHGNN_CCL") == "1"
_PROBLEM = why_unavailable()

needs_ccl = pytest.mark.skipif(_PROBLEM is not None and not _REQUIRED, reason=f"ccl: {_PROBLEM}")

#: For `pytest.mark.parametrize("backend", BACKENDS)`.
BACKENDS = ["gloo", pytest.param("ccl", marks=needs_ccl)]
