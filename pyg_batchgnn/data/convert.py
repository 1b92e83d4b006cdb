"""Node ids, labels and features from arrays that users and OGB made."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pyg_batchgnn.data.errors import broken


def to_index(values: np.ndarray, file: str | Path, array: str) -> Tensor:
    """Node ids as an int32 or int64 tensor: shared where the type allows, converted from other integers."""
    if values.dtype.kind not in "iu":
        raise broken(file, array, f"dtype is {values.dtype}, expected int32 or int64", "store integers")
    if values.dtype == np.uint64 and values.size and int(values.max()) > np.iinfo(np.int64).max:
        raise broken(file, array, f"value {values.max()} does not fit int64", "store ids below 2^63")
    kept = values.dtype in (np.dtype(np.int32), np.dtype(np.int64))
    return torch.from_numpy(values if kept else values.astype(np.int64))


def to_labels(values: np.ndarray, file: str | Path, array: str) -> Tensor:
    """Labels as an int64 tensor [N]; [N, 1] is flattened, and NaN of a float array means no label, -1."""
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.dtype.kind == "f":
        known = ~np.isnan(values)
        rest = values[known]
        if not (np.isfinite(rest).all() and (rest == np.floor(rest)).all()):
            bad = rest[~(np.isfinite(rest) & (rest == np.floor(rest)))][0]
            raise broken(file, array, f"label {bad} is not a whole number", "store class numbers 0..C-1")
        return torch.from_numpy(np.where(known, values, -1).astype(np.int64))
    return to_index(values, file, array).to(torch.int64)


def to_features(values: np.ndarray, file: str | Path, array: str) -> Tensor:
    """Features as a float16 or float32 tensor: shared where the type allows, else converted to float32."""
    if values.dtype.kind not in "fiub":
        raise broken(file, array, f"dtype is {values.dtype}, expected float16 or float32", "store numbers")
    kept = values.dtype in (np.dtype(np.float16), np.dtype(np.float32))
    return torch.from_numpy(values if kept else values.astype(np.float32))
