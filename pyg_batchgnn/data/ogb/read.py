"""Finds an OGB data set's raw files, converts them the first time, and maps the result."""

from __future__ import annotations

import enum
import os
import shutil
import socket
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyg_batchgnn.data.dataset import Dataset
from pyg_batchgnn.data.errors import DatasetError, DatasetNotFoundError
from pyg_batchgnn.data.folder import read_folder
from pyg_batchgnn.data.meta import read_meta
from pyg_batchgnn.data.ogb.convert import convert, raw_files, raw_sizes
from pyg_batchgnn.data.ogb.facts import OGB_TABLES, OgbTable
from pyg_batchgnn.data.places import DATA_VARIABLE

CONVERTED = "pyg_batchgnn"  # folder beside raw/ and split/


class Download(enum.Enum):  # whether a data set that is not on disk may be downloaded
    IF_MISSING = "if_missing"
    NEVER = "never"


def read_ogb(
    name: str,
    root: str | Path | None = None,
    *,
    download: Download = Download.IF_MISSING,
    converted: str | Path | None = None,
) -> Dataset:
    """Reads an OGB data set from OGB's raw layout. The first call converts it to arrays, which
    later calls map.

    Edges of ogbn-products and ogbl-collab come in both directions; those of ogbn-arxiv,
    ogbn-papers100M and ogbl-citation2 are directed (citing, cited). ogbn-mag has four node types
    and four relations, as directed by OGB, and the attributes "node_year" of papers and
    "edge_reltype" of edges. The ogbl data sets have links in splits (see `LinkSplit`), with OGB's
    negatives.

    Args:
        name: "ogbn-arxiv", "ogbn-products", "ogbn-papers100M", "ogbn-mag", "ogbl-collab" or
            "ogbl-citation2".
        root: folder that holds, or shall hold, `ogbn_arxiv` and so on; or that folder itself. None:
            the folder in PYG_BATCHGNN_DATA, else `dataset` in the working directory, where the
            package ogb puts data sets.
        download: whether to download a data set that is not there (needs the package `ogb`).
        converted: folder for the converted arrays; None: `pyg_batchgnn` beside the raw files.

    Raises:
        DatasetError: a file is missing or damaged, or the download failed.
    """
    table = OGB_TABLES[name]
    root = _root(root)
    folder = _find(table, root)
    if folder is None:
        if download is Download.NEVER:
            raise DatasetNotFoundError(
                f"{root / table.folder}: {name} is not there; put OGB's folder there or allow download"
            )
        folder = download_ogb(table, root)
    target = folder / CONVERTED if converted is None else Path(converted).expanduser()
    sizes = raw_sizes(table, folder)  # none where the raw files were deleted to save room
    is_current = not sizes or read_meta(target).origin.get("raw_bytes") == sizes
    if not (target.is_dir() and is_current):
        for file in raw_files(table, folder):
            if not file.is_file():
                raise DatasetNotFoundError(f"{file}: the file does not exist; download {name} again")
        _make_room(target)
        convert(table, folder, target)
    return read_folder(target)


def find_ogb(name: str, root: str | Path | None = None) -> Path | None:
    return _find(OGB_TABLES[name], _root(root))


def _root(root: str | Path | None) -> Path:
    return Path(root or os.environ.get(DATA_VARIABLE) or "dataset").expanduser()


def _find(table: OgbTable, root: Path) -> Path | None:
    if root.name in (table.folder, table.archive_folder) and (root / "raw").is_dir():
        return root
    folder = root / table.folder
    return folder if (folder / "raw").is_dir() or (folder / CONVERTED).is_dir() else None


def _make_room(target: Path) -> None:
    """Removes an outdated conversion. Raises `DatasetError` if the folder is something else."""
    if not target.exists():
        return
    if "raw_bytes" not in read_meta(target).origin:
        raise DatasetError(
            f"{target}: is not a converted OGB data set; remove it or choose another converted="
        )
    shutil.rmtree(target)


def download_ogb(table: OgbTable, root: Path) -> Path:
    """Downloads a data set, unpacks it to `root`/`table.folder`, and returns that folder, which
    appears only when it is complete. Only `download_url` and `extract_zip` of `ogb` are used: its
    data set classes, and `decide_download`, ask at the prompt before large downloads."""
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
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(60.0)  # seconds of silence
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)
