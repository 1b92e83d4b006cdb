"""The arrays of a prediction folder, mapped from their files so that they need not fit memory."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from torch import Tensor

from pyg_batchgnn.data.files import writing
from pyg_batchgnn.train.errors import TrainError
from pyg_batchgnn.train.ranks import Ranks
from pyg_batchgnn.train.task import count_not_finite


class PredictionArrays:
    """Arrays with equal numbers of rows, which all ranks fill. The first rank makes the files.

    They are refused as a whole if an output that they come from is not finite.

    Args:
        folder: receives the ``<name>.npy`` files. All ranks see it.
        num_rows: of each array.
        ranks: of the run.
        given: [num_rows, ...] by name, arrays that are known whole, the same on every rank.
    """

    def __init__(
        self, folder: Path, num_rows: int, ranks: Ranks, given: Mapping[str, Tensor] | None = None
    ) -> None:
        self.num_rows = num_rows
        self._folder, self._ranks = folder, ranks
        self._given = given or {}
        self._arrays: dict[str, np.memmap] = {}
        self._not_finite = 0

    def add(self, positions: Tensor, rows: Mapping[str, Tensor], outputs: Tensor) -> None:
        """Fills some rows. The first call is collective.

        Args:
            positions: [S] int64, the positions of the rows in the arrays.
            rows: [S, ...] by the name of the array, the same names in every call.
            outputs: [S, ...], the model's outputs, from which the rows come.
        """
        self._not_finite += count_not_finite(outputs)
        if not self._arrays:
            self._open(rows)
        for name, values in rows.items():
            self._arrays[name][positions.numpy()] = values.numpy()

    def described(self) -> dict[str, dict[str, object]]:
        """Returns the shape and dtype of each array by its name."""
        return {name: {"shape": list(a.shape), "dtype": str(a.dtype)} for name, a in self._arrays.items()}

    def flush(self) -> None:
        """Writes what is left to disk, on all ranks; collective.

        Raises:
            TrainError: an output is not finite.
        """
        for array in self._arrays.values():
            array.flush()
        bad = int(self._ranks.table([self._not_finite]).sum())
        if bad:
            with self._ranks.one_error():
                raise TrainError(
                    f"outputs of {bad:,} of {self.num_rows:,} rows are not finite, so nothing is written; "
                    f"look for NaN and huge values in the features, or train with a lower --lr"
                )

    def _open(self, rows: Mapping[str, Tensor]) -> None:
        """Makes the files for such rows, and opens them."""
        like = {**self._given, **rows}

        def make() -> None:
            for name, values in like.items():
                shape, path = (self.num_rows, *values.shape[1:]), self._path(name)
                with writing(path):
                    array = np.lib.format.open_memmap(path, "w+", values.numpy().dtype, shape)
                    _take_room(path)
                    if name in self._given:
                        array[:] = values.numpy()
                    array.flush()

        self._ranks.from_first(make)
        for name in like:
            self._arrays[name] = np.lib.format.open_memmap(self._path(name), "r+")

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.npy"


def _take_room(path: Path) -> None:
    """Takes the room of a file on disk. A full disk would else end the process with a signal."""
    with path.open("r+b") as file:
        os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
