"""Reads the splits of OGB's link data sets, which `torch.save` wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from pyg_batchgnn.data.errors import broken, missing

_AGAIN = "download the data set again"
_reconstruct: Any = np.array([0]).__reduce__()[0]


def _no_bytes() -> bytes:
    """Returns the contents of an array without elements, for which a pickle calls ``bytes()``."""
    return b""


#: What a pickle of an array of numbers names. NumPy 1 and 2 name the first one differently.
_ALLOWED: list[Any] = [
    (_reconstruct, "numpy.core.multiarray._reconstruct"),
    (_reconstruct, "numpy._core.multiarray._reconstruct"),
    (_no_bytes, "__builtin__.bytes"),
    (_no_bytes, "builtins.bytes"),
    np.ndarray,
    np.dtype,
    *{type(np.dtype(code)) for code in "?bhilqBHILQefd"},
]


def read_split_file(path: Path) -> dict[str, np.ndarray]:
    """Reads a dict of NumPy arrays by name. torch refuses whatever else the file names.

    ``path``: a file of `torch.save`.

    Raises:
        DatasetNotFoundError: there is no such file.
        DatasetError: the file is damaged, or holds something else.
    """
    name = path.stem
    if not path.is_file():
        raise missing(path, name, _AGAIN)
    try:
        with torch.serialization.safe_globals(_ALLOWED):
            found = torch.load(path, weights_only=True)
    except Exception as error:  # a damaged pickle may raise anything
        raise broken(path, name, f"not a dict of NumPy arrays ({_reason(error)})", _AGAIN) from error
    if not isinstance(found, dict) or not all(_is_numbers(one) for one in found.values()):
        raise broken(path, name, "not a dict of NumPy arrays", _AGAIN)
    return {str(key): values for key, values in found.items()}


def _is_numbers(values: Any) -> bool:
    return type(values) is np.ndarray and values.dtype.kind in "iufb"


def _reason(error: Exception) -> str:
    text = str(error).rpartition("WeightsUnpickler error:")[2].strip()
    return text.splitlines()[0] if text else type(error).__name__
