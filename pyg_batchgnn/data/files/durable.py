"""Files and names that survive a power cut."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np

from pyg_batchgnn.data.errors import DatasetError, broken


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turns an `OSError` in the block into a `DatasetError` with ``path``, cause and remedy."""
    try:
        yield
    except DatasetError:
        raise
    except OSError as error:
        cause, remedy = error.strerror or str(error), "free space on the disk, or choose another folder"
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.EEXIST):
            there = next((one for one in path.absolute().parents if one.exists()), Path("/"))
            what = "takes no new files and folders" if there.is_dir() else "is no folder"
            cause, remedy = f"{there} {what}", "choose another path"
        raise DatasetError(f"{path}: cannot be written ({cause}); {remedy}") from error


#: Remedies for a file that could be read before.
_REMEDIES = {
    errno.EIO: "check the disk and restore the file",
    errno.ESTALE: "restore it, and let nothing change it while it is read",
}


def system_message(error: OSError) -> str:
    """Returns a message for an `OSError`: file, cause in words, remedy."""
    if error.filename is None or error.strerror is None:
        return str(error)
    remedy = _REMEDIES.get(error.errno or 0, "give another path")
    return f"{error.filename}: {error.strerror[0].lower()}{error.strerror[1:]}; {remedy}"


def write_bytes(stream: IO[bytes], path: Path, values: np.ndarray) -> None:
    """Writes the elements of an array in C order. NumPy's `tofile` would not tell why it failed."""
    flat = np.ascontiguousarray(values).reshape(-1)
    with writing(path):
        stream.write(flat.view(np.uint8).data if flat.size else b"")


def new_file(folder: Path, array: str) -> Path:
    """Returns the file of an array, ``folder/array.npy``, after making its parent folder."""
    file = folder / f"{array}.npy"
    file.parent.mkdir(parents=True, exist_ok=True)
    return file


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Writes ``content`` as JSON. Raises `DatasetError` if it cannot be written."""
    with writing(path):
        path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def begin_folder(path: Path, temporary: Path) -> None:
    """Makes the empty folder ``temporary``, which is to become ``path``; what a killed save left
    there goes. Raises `DatasetError` if ``path`` exists."""
    refuse_existing_path(path)
    shutil.rmtree(temporary, ignore_errors=True)
    with writing(path):
        temporary.mkdir(parents=True)


def refuse_existing_path(path: Path) -> None:
    """Raises `DatasetError` if ``path`` exists."""
    if path.exists():
        raise DatasetError(f"{path}: exists already; remove it or choose another folder")


def sync_file(path: Path) -> None:
    """Waits until a file's contents are on disk. Raises `DatasetError` if writing fails."""
    with writing(path), path.open("rb") as file:
        os.fsync(file.fileno())


def sync_folder(path: Path) -> None:
    """Waits until the names of a folder's files are on disk, if the system can open folders."""
    with contextlib.suppress(OSError):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def sync_tree(folder: Path) -> None:
    """Waits until all files of a folder are on disk. Raises `DatasetError` if writing fails."""
    for path in folder.rglob("*"):
        if path.is_dir():
            sync_folder(path)
        elif path.is_file():
            sync_file(path)
    sync_folder(folder)


def rename_whole(temporary: Path, path: Path) -> None:
    """Renames the complete folder ``temporary``, which is on disk, to ``path``."""
    temporary.rename(path)
    sync_folder(path.parent)


def read_json(path: Path) -> dict[str, Any]:
    """Reads a JSON object. Raises `DatasetError` for other contents, NaN and infinity included."""

    def refuse(constant: str) -> None:
        raise ValueError(f"it holds {constant}")

    try:
        content = json.loads(path.read_text(encoding="utf-8"), parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        raise DatasetError(f"{path}: not valid JSON ({error}); restore the file") from error
    if not isinstance(content, dict):
        raise DatasetError(
            f"{path}: holds a {type(content).__name__}, expected a JSON object; restore the file"
        )
    return content


# Path, bytes, mtime and sha256 of the files that this process has hashed.
_verified: set[tuple[str, int, int, str]] = set()


def check_sha256(path: Path, array: str, expected: str, says: str, remedy: str) -> None:
    """Raises `DatasetError` unless a file has the SHA-256 `expected`. A file that was right is not
    hashed again in this process. ``array``, ``says``, ``remedy``: for the message; ``says`` is the
    file that holds `expected`."""
    stat = path.stat()
    key = (str(path.resolve()), stat.st_size, stat.st_mtime_ns, expected)
    if key in _verified:
        return
    seen = file_sha256(path)
    if seen != expected:
        raise broken(path, array, f"sha256 is {seen[:16]}..., {says} says {expected[:16]}...", remedy)
    _verified.add(key)


def file_sha256(path: Path) -> str:
    """Returns the SHA-256 of a file, 64 hexadecimal digits."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while piece := stream.read(1 << 22):
            digest.update(piece)
    return digest.hexdigest()
