"""The arrays of a prediction folder, mapped from their files so that they need not fit memory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from torch import Tensor


class PredictionArrays:
    """The arrays, filled from the first row to the last, one minibatch at a time.

    Args:
        folder: receives the ``<name>.npy`` files.
        ids: [n] int64 node ids, n > 0; row i of every array belongs to node ``ids[i]``.
    """

    def __init__(self, folder: Path, ids: Tensor) -> None:
        self._folder = folder
        self._rows = len(ids)
        self._filled = 0
        self._arrays: dict[str, np.memmap] = {}
        self._array("node_ids", ids)[:] = ids.numpy()

    def add(self, rows: Mapping[str, Tensor]) -> None:
        """Fills the next rows.

        Args:
            rows: [S, ...] by the name of the array, the same names in every call.
        """
        begin = self._filled
        for name, values in rows.items():
            self._filled = begin + len(values)
            self._array(name, values)[begin : self._filled] = values.numpy()

    def described(self) -> dict[str, dict[str, object]]:
        """Returns the shape and dtype of each array by its name."""
        return {name: {"shape": list(a.shape), "dtype": str(a.dtype)} for name, a in self._arrays.items()}

    def flush(self) -> None:
        """Writes what is left to disk."""
        for array in self._arrays.values():
            array.flush()

    def _array(self, name: str, like: Tensor) -> np.memmap:
        """Returns the array of that name, which is made when it is first used."""
        if name not in self._arrays:
            path, shape = self._folder / f"{name}.npy", (self._rows, *like.shape[1:])
            self._arrays[name] = np.lib.format.open_memmap(path, "w+", like.numpy().dtype, shape)
        return self._arrays[name]
