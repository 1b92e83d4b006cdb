"""Tensors in .npy files, compared with what META.json promises of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pyg_batchgnn.data.errors import broken, missing
from pyg_batchgnn.data.files.checksum import check_sha256, file_sha256
from pyg_batchgnn.data.files.file_write import write_bytes, writing
from pyg_batchgnn.data.files.npy_read import as_tensor, open_npy, read_header

META_FILE = "META.json"
#: Larger files are not hashed when they are opened, only when the whole folder is verified.
CHECKSUM_BYTES = 1 << 30

_ANEW = "restore it or make the folder again"
_REMEDY = f"the file was altered or belongs to another folder: {_ANEW}"
#: Types that NumPy lacks are stored as integers of their width.
_FLOAT8 = (torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.float8_e5m2, torch.float8_e5m2fnuz)
_STORED_AS = {torch.bfloat16: torch.int16, **dict.fromkeys(_FLOAT8, torch.int8)}


@dataclass(frozen=True)
class ArrayPromise:
    """The promise of META.json about one file.

    Attributes:
        dtype: the name of torch's type. Types that NumPy lacks, such as bfloat16, are stored as
            integers of their width.
        shape: the sizes.
        sha256: the checksum of the whole file, 64 hexadecimal digits.
    """

    dtype: str
    shape: tuple[int, ...]
    sha256: str

    def to_json(self) -> dict[str, Any]:
        """Returns plain JSON values."""
        return {"dtype": self.dtype, "shape": list(self.shape), "sha256": self.sha256}

    @classmethod
    def from_json(cls, said: Any) -> ArrayPromise:
        """Reads what `to_json` wrote.

        Raises:
            KeyError, TypeError, ValueError: an entry is missing or of the wrong type.
        """
        return cls(str(said["dtype"]), tuple(map(int, said["shape"])), str(said["sha256"]))


def stored_dtype(dtype: torch.dtype) -> torch.dtype:
    """Returns the type of the elements in a file: the type itself where NumPy has it."""
    return _STORED_AS.get(dtype, dtype)


def write_tensor(path: Path, tensor: Tensor) -> ArrayPromise:
    """Writes a tensor and returns what to promise of the file."""
    stored = tensor.detach().contiguous().view(stored_dtype(tensor.dtype))
    values = stored.numpy()
    with writing(path), path.open("wb") as stream:
        np.lib.format.write_array_header_1_0(stream, np.lib.format.header_data_from_array_1_0(values))
        write_bytes(stream, path, values)
    return ArrayPromise(_name(tensor.dtype), tuple(tensor.shape), file_sha256(path))


def promise_of(path: Path) -> ArrayPromise:
    """Returns what to promise of a .npy file of one of NumPy's types.

    Raises:
        DatasetError: the file is not a .npy file.
    """
    with path.open("rb") as stream:
        header = read_header(stream, path, path.stem)
    return ArrayPromise(header.dtype.name, header.shape, file_sha256(path))


def map_tensor(path: Path, array: str, promise: ArrayPromise) -> Tensor:
    """Maps a file; writing to the tensor changes this process's copy, never the file.

    Raises:
        DatasetNotFoundError: the file does not exist.
        DatasetError: the file is damaged, or is not what was promised.
    """
    values = open_npy(path, array)
    dtype = getattr(torch, promise.dtype, None)
    if not isinstance(dtype, torch.dtype):
        raise broken(path, array, f"{META_FILE} gives it the unknown dtype {promise.dtype!r}", _REMEDY)
    if values.dtype.name != _name(stored_dtype(dtype)):
        fact = f"dtype is {values.dtype}, {META_FILE} says {promise.dtype}"
        raise broken(path, array, fact, _REMEDY)
    tensor = as_tensor(values, path, array)
    if tuple(tensor.shape) != promise.shape:
        fact = f"shape is {list(tensor.shape)}, {META_FILE} says {list(promise.shape)}"
        raise broken(path, array, fact, _REMEDY)
    if path.stat().st_size <= CHECKSUM_BYTES:
        verify_tensor(path, array, promise)
    return tensor.view(dtype)


def verify_tensor(path: Path, array: str, promise: ArrayPromise) -> None:
    """Compares a file with its checksum.

    Raises:
        DatasetNotFoundError: the file does not exist.
        DatasetError: the checksum differs.
    """
    if not path.is_file():
        raise missing(path, array, _ANEW)
    check_sha256(path, array, promise.sha256, META_FILE, _REMEDY)


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
