"""Files and names that survive a power cut."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from pyg_batchgnn.data.files.file_write import writing


def sync_file(path: Path) -> None:
    """Waits until the contents of a file are on disk.

    Raises:
        DatasetError: they cannot be written, as on a full disk.
    """
    with writing(path), path.open("rb") as file:
        os.fsync(file.fileno())


def sync_folder(path: Path) -> None:
    """Waits until the names in a folder are on disk, where folders can be opened."""
    with contextlib.suppress(OSError):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def sync_tree(folder: Path) -> None:
    """Waits until all files and names in a folder, and in the folders within it, are on disk.

    Raises:
        DatasetError: as `sync_file`.
    """
    for path in folder.rglob("*"):
        if path.is_dir():
            sync_folder(path)
        elif path.is_file():
            sync_file(path)
    sync_folder(folder)


def rename_whole(temporary: Path, path: Path) -> None:
    """Gives a folder, all of which is on disk, its name for good."""
    temporary.rename(path)
    sync_folder(path.parent)
