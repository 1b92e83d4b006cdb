"""Makes tensors of node ids, labels and features from arrays of users and of OGB."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pyg_batchgnn.data.errors import broken
from pyg_batchgnn.data.files.npy import as_tensor
from pyg_batchgnn.ops import QuantizedTensor


def to_index(values: np.ndarray, file: str | Path, array: str) -> Tensor:
    """Returns node ids as int32 or int64; integers of other dtypes become int64. ``file``,
    ``array``: the names in a `DatasetError`, here and in the functions below."""
    if values.dtype.kind not in "iu":
        raise broken(file, array, f"dtype is {values.dtype}, expected int32 or int64", "store integers")
    if values.dtype == np.uint64 and values.size and int(values.max()) > np.iinfo(np.int64).max:
        raise broken(file, array, f"value {values.max()} does not fit int64", "store ids below 2^63")
    kept = values.dtype in (np.dtype(np.int32), np.dtype(np.int64))
    return torch.from_numpy(values if kept else values.astype(np.int64))


def to_labels(values: np.ndarray, file: str | Path, array: str) -> Tensor:
    """Returns class numbers, [N] int64. [N, 1] is flattened; NaN means no label, -1."""
    values = _one_column(values)
    if values.dtype.kind != "f":
        return to_index(values, file, array).to(torch.int64)
    known = ~np.isnan(values)
    if len(bad := values[known & ~_is_whole(values)]):
        raise broken(file, array, f"label {bad[0]} is not a whole number", "store class numbers 0..C-1")
    return torch.from_numpy(np.where(known, values, -1).astype(np.int64))


def to_targets(values: np.ndarray, file: str | Path, array: str) -> Tensor:
    """Returns class numbers as `to_labels`; other targets keep shape and dtype."""
    column = _one_column(values)
    whole = column.dtype.kind in "iu" or (
        column.dtype.kind == "f" and bool((_is_whole(column) | np.isnan(column)).all())
    )
    if column.ndim == 1 and whole:
        return to_labels(values, file, array)
    return as_tensor(values, file, array)


def _one_column(values: np.ndarray) -> np.ndarray:
    return values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values


def _is_whole(values: np.ndarray) -> np.ndarray:
    return np.asarray(np.isfinite(values) & (values == np.floor(values)))


def to_features(values: np.ndarray, file: str | Path, array: str) -> Tensor:
    """Returns features in float16 or float32; other dtypes become float32."""
    if values.dtype.kind not in "fiub":
        raise broken(file, array, f"dtype is {values.dtype}, expected float16 or float32", "store numbers")
    kept = values.dtype in (np.dtype(np.float16), np.dtype(np.float32))
    return torch.from_numpy(values if kept else values.astype(np.float32))


def to_codes(codes: Tensor, decoding: Tensor, file: str | Path, array: str) -> QuantizedTensor:
    """Returns an int8-quantised table of ``codes`` [N, F] int8 and ``decoding`` [2, F] float32.
    ``file``, ``array``: the names of the decoding in a `DatasetError`."""
    try:
        return QuantizedTensor(codes, decoding)
    except (TypeError, ValueError) as error:
        raise broken(file, array, str(error), "restore the file or quantise again") from error
