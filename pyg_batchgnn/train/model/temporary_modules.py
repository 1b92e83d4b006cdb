"""PyG writes a module to the folder of temporary files for every class of convolutions, in every process, and
leaves it there."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator


@contextlib.contextmanager
def removed_templates() -> Iterator[None]:
    """Removes what is written there in the block, which makes models; PyG has loaded it by then."""
    before = tempfile.tempdir
    with tempfile.TemporaryDirectory(prefix="pyg_batchgnn-") as folder:
        tempfile.tempdir = folder
        try:
            yield
        finally:
            tempfile.tempdir = before
