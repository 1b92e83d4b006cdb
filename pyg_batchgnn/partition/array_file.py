"""Tensors in .npy files, checked against what META.json promises."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pyg_batchgnn.data.errors import broken
from pyg_batchgnn.data.meta import CHECKSUM_BYTES, META_FILE, check_sha256, file_sha256
from pyg_batchgnn.data.npy_read import open_npy
from pyg_batchgnn.partition.folder_meta import ArrayPromise

_REMEDY = "the file was altered or belongs to another partition: restore it or partition again"


def write_tensor(path: Path, tensor: Tensor) -> ArrayPromise:
    """Writes a tensor; returns what to promise of the file."""
    name = str(tensor.dtype).removeprefix("torch.")
    stored = tensor.contiguous()
    if tensor.dtype == torch.bfloat16:
        stored = stored.view(torch.int16)
    np.save(path, stored.numpy(), allow_pickle=False)
    return ArrayPromise(name, tuple(tensor.shape), file_sha256(path))


def map_tensor(path: Path, array: str, promise: ArrayPromise) -> Tensor:
    """Maps a file; writing to the tensor changes this process's copy, never the file.

    Raises:
        DatasetNotFoundError, DatasetError: not there, damaged, or not what was promised.
    """
    values = open_npy(path, array)
    dtype = getattr(torch, promise.dtype, None)
    if not isinstance(dtype, torch.dtype):
        raise broken(path, array, f"{META_FILE} gives it the unknown dtype {promise.dtype!r}", _REMEDY)
    stored = torch.int16 if dtype == torch.bfloat16 else dtype
    if values.dtype.name != str(stored).removeprefix("torch."):
        fact = f"dtype is {values.dtype}, {META_FILE} says {promise.dtype}"
        raise broken(path, array, fact, _REMEDY)
    tensor = torch.from_numpy(values)
    if tuple(tensor.shape) != promise.shape:
        fact = f"shape is {list(tensor.shape)}, {META_FILE} says {list(promise.shape)}"
        raise broken(path, array, fact, _REMEDY)
    if path.stat().st_size <= CHECKSUM_BYTES:
        verify_tensor(path, array, promise)
    return tensor.view(dtype)


def verify_tensor(path: Path, array: str, promise: ArrayPromise) -> None:
    """Compares a file with its checksum."""
    check_sha256(path, array, promise.sha256, META_FILE, _REMEDY)
