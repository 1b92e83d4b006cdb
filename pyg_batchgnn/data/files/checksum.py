"""Checksums of files, computed once per file and process."""

from __future__ import annotations

import hashlib
from pathlib import Path

from pyg_batchgnn.data.errors import broken

# Path, bytes, mtime and sha256 of the files that this process has hashed.
_verified: set[tuple[str, int, int, str]] = set()


def check_sha256(path: Path, array: str, expected: str, says: str, remedy: str) -> None:
    """Raises unless a file's sha256 is `expected`.

    A file that was found right is not hashed again by this process.

    Args:
        path: the file.
        array: what it holds, for the error.
        expected: 64 hexadecimal digits.
        says: what promises the checksum, for the error.
        remedy: what the user can do.

    Raises:
        DatasetError: the checksum differs.
    """
    stat = path.stat()
    key = (str(path.resolve()), stat.st_size, stat.st_mtime_ns, expected)
    if key in _verified:
        return
    seen = file_sha256(path)
    if seen != expected:
        raise broken(path, array, f"sha256 is {seen[:16]}..., {says} says {expected[:16]}...", remedy)
    _verified.add(key)


def file_sha256(path: Path) -> str:
    """Returns the sha256 of a file, as 64 hexadecimal digits."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while piece := stream.read(1 << 22):
            digest.update(piece)
    return digest.hexdigest()
