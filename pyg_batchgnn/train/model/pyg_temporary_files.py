"""A guard against files that PyG leaves behind.

For every class of convolution PyG writes a Python module to the folder of temporary files, in every
process, and does not remove it.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator


@contextlib.contextmanager
def pyg_files_removed() -> Iterator[None]:
    """Removes the files that PyG writes while the block makes a model. PyG has loaded them by
    then."""
    before = tempfile.tempdir
    with tempfile.TemporaryDirectory(prefix="pyg_batchgnn-") as folder:
        tempfile.tempdir = folder
        try:
            yield
        finally:
            tempfile.tempdir = before
