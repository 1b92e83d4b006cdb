"""The backends that tests run with."""

from __future__ import annotations

import os

import pytest

from pyg_batchgnn.comm.ccl import missing

#: CI installs ccl and says so: there its tests cannot be skipped.
_REQUIRED = os.environ.get("PYG_BATCHGNN_CCL") == "1"
_LACKS = missing()

needs_ccl = pytest.mark.skipif(_LACKS is not None and not _REQUIRED, reason=f"ccl: {_LACKS}")

#: For `pytest.mark.parametrize("backend", BACKENDS)`.
BACKENDS = ["gloo", pytest.param("ccl", marks=needs_ccl)]
