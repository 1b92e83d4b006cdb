"""Reads the splits of OGB's link data sets, which `torch.save` wrote."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import IO, Any

import numpy as np

from pyg_batchgnn.data.errors import broken, missing
from pyg_batchgnn.data.ogb.pickled_arrays import PickleRefusedError, read_pickled_arrays

_AGAIN = "download the data set again"
#: The first number in a file of torch before 1.6, which holds pickles one after the other.
_OLD_MAGIC = 0x1950A86A20F9469CFC6C


def read_split_file(path: Path) -> dict[str, np.ndarray]:
    """Reads a dict of NumPy arrays by name. Nothing that the file names is run.

    A file takes about three times its size in memory while it is read.

    Args:
        path: a file of `torch.save`, in the form of torch 1.6 and later or in the one before.

    Raises:
        DatasetNotFoundError: there is no such file.
        DatasetError: the file is damaged, or holds something else.
    """
    name = path.stem
    if not path.is_file():
        raise missing(path, name, _AGAIN)
    try:
        with path.open("rb") as stream:
            found = _read_zip(stream) if zipfile.is_zipfile(stream) else _read_old(stream)
    except (ValueError, zipfile.BadZipFile, EOFError, RuntimeError, OSError) as error:
        raise broken(path, name, f"not a dict of NumPy arrays ({error})", _AGAIN) from error
    if not isinstance(found, dict) or not all(isinstance(one, np.ndarray) for one in found.values()):
        raise broken(path, name, "not a dict of NumPy arrays", _AGAIN)
    return {str(key): values for key, values in found.items()}


def _read_zip(stream: IO[bytes]) -> Any:
    """Reads the one pickle in an archive."""
    with zipfile.ZipFile(stream) as archive:
        members = [one for one in archive.infolist() if one.filename.rpartition("/")[2] == "data.pkl"]
        if len(members) != 1:
            raise PickleRefusedError(f"the archive has {len(members)} files data.pkl, expected one")
        if members[0].compress_type != zipfile.ZIP_STORED:
            raise PickleRefusedError("data.pkl is compressed, which torch.save never does")
        with archive.open(members[0]) as member:
            return read_pickled_arrays(member)


def _read_old(stream: IO[bytes]) -> Any:
    """Reads the fourth pickle of a file, after the magic number, the version and facts of the
    machine."""
    stream.seek(0)
    if read_pickled_arrays(stream) != _OLD_MAGIC:
        raise PickleRefusedError("it does not begin as files of torch.save do")
    read_pickled_arrays(stream)
    read_pickled_arrays(stream)
    return read_pickled_arrays(stream)
