"""Writing of files whose errors name the file and the cause, such as a full disk."""

from __future__ import annotations

import contextlib
import errno
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np

from pyg_batchgnn.data.errors import DatasetError


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turns errors of the system that the block meets into a DatasetError that names the path."""
    try:
        yield
    except DatasetError:
        raise
    except OSError as error:
        cause, remedy = _cause_and_remedy(path, error)
        raise DatasetError(f"{path}: cannot be written ({cause}); {remedy}") from error


def system_message(error: OSError) -> str:
    """Returns what an error of the system says: the file and the cause, without its number."""
    if error.filename is None or error.strerror is None:
        return str(error)
    return f"{error.filename}: {error.strerror[0].lower()}{error.strerror[1:]}; give another path"


def _cause_and_remedy(path: Path, error: OSError) -> tuple[str, str]:
    if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.EEXIST):
        return error.strerror or str(error), "free space on the disk, or choose another folder"
    there = next((one for one in path.absolute().parents if one.exists()), Path("/"))
    cause = "takes no new files and folders" if there.is_dir() else "is no folder"
    return f"{there} {cause}", "choose another path"


def write_bytes(stream: IO[bytes], path: Path, values: np.ndarray) -> None:
    """Writes the elements of an array in C order. `tofile` would not tell why it failed."""
    flat = np.ascontiguousarray(values).reshape(-1)
    with writing(path):
        stream.write(flat.view(np.uint8).data if flat.size else b"")


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Writes a JSON object.

    Raises:
        DatasetError: the file cannot be written.
    """
    with writing(path):
        path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
