"""The arrays of a prediction folder, mapped from their files so that they need not fit memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
from torch import Tensor


class PredictionArrays:
    """The arrays, filled from the first row to the last, one minibatch at a time.

    Args:
        folder: receives the ``<name>.npy`` files.
        ids: [n] int64 node ids, n > 0; row i of every array belongs to node ``ids[i]``.
        classes: C.
        hidden: columns of the embeddings, or None to leave them out.
    """

    def __init__(self, folder: Path, ids: Tensor, classes: int, hidden: int | None) -> None:
        self._folder = folder
        self._rows = len(ids)
        self._filled = 0
        self._arrays: dict[str, np.memmap] = {}
        self._create("node_ids", np.int64)[:] = ids.numpy()
        self._create("predictions", np.int64)
        self._create("probabilities", np.float32, classes)
        if hidden is not None:
            self._create("embeddings", np.float32, hidden)

    def add(self, logits: Tensor, hidden: Tensor) -> None:
        """Fills the next rows.

        Args:
            logits: [S, C].
            hidden: [S, hidden], the last hidden layer.
        """
        rows = slice(self._filled, self._filled + len(logits))
        self._arrays["predictions"][rows] = logits.argmax(dim=1).numpy()
        self._arrays["probabilities"][rows] = logits.softmax(dim=1).numpy()
        if "embeddings" in self._arrays:
            self._arrays["embeddings"][rows] = hidden.float().numpy()
        self._filled = rows.stop

    def described(self) -> dict[str, dict[str, object]]:
        """Returns the shape and dtype of each array by its name."""
        return {name: {"shape": list(a.shape), "dtype": str(a.dtype)} for name, a in self._arrays.items()}

    def flush(self) -> None:
        """Writes what is left to disk."""
        for array in self._arrays.values():
            array.flush()

    def _create(self, name: str, dtype: npt.DTypeLike, *columns: int) -> np.memmap:
        path = self._folder / f"{name}.npy"
        array = np.lib.format.open_memmap(path, "w+", dtype, (self._rows, *columns))
        self._arrays[name] = array
        return array
