"""Downloads an OGB data set with the `ogb` package, without ever asking a question."""

from __future__ import annotations

import socket
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyg_batchgnn.data.errors import DatasetError, DatasetNotFoundError
from pyg_batchgnn.data.ogb.tables import OgbTable

_SILENCE_SECONDS = 60.0


def download_ogb(table: OgbTable, root: Path) -> Path:
    """Downloads and unpack a data set to `root`/`table.folder`; returns that folder.

    Of `ogb` only `download_url` and `extract_zip` are used: its data set classes, and
    `decide_download`, ask at the prompt before large downloads. Everything happens in a temporary
    folder, renamed at the end.

    Raises:
        DatasetNotFoundError: `ogb` is not installed.
        DatasetError: no network, or the download or the archive is broken.
    """
    place = root / table.folder
    try:
        from ogb.utils.url import download_url, extract_zip
    except ImportError as error:
        raise DatasetNotFoundError(
            f"{place}: {table.name} is not there; pip install ogb to download it, or {_by_hand(table, place)}"
        ) from error
    try:
        root.mkdir(parents=True, exist_ok=True)
        with (
            tempfile.TemporaryDirectory(prefix=f".{table.folder}.", suffix=".partial", dir=root) as folder,
            _impatient_sockets(),
        ):
            extract_zip(download_url(table.url, folder), folder)
            (Path(folder) / table.archive_folder).rename(place)
    # ogb turns whatever stops a download, Ctrl-C too, into RuntimeError, and chokes with TypeError
    # on an answer without a length.
    except (OSError, RuntimeError, TypeError, zipfile.BadZipFile) as error:
        if isinstance(error.__context__, KeyboardInterrupt):
            raise KeyboardInterrupt from error
        raise DatasetError(
            f"{place}: {table.name} could not be downloaded from {table.url} ({error}); "
            f"check the network and the disk, or {_by_hand(table, place)}"
        ) from error
    return place


def _by_hand(table: OgbTable, place: Path) -> str:
    return f"unpack {table.url} and rename its folder {table.archive_folder} to {place}"


@contextmanager
def _impatient_sockets() -> Iterator[None]:
    """Gives up on a silent network: ogb sets no time limit."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(_SILENCE_SECONDS)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)
