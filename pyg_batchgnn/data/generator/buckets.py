"""Sorts more edges than fit memory.

Keys go to files by range of source; each file is then sorted alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

import numpy as np

from pyg_batchgnn.data.files import write_bytes, writing
from pyg_batchgnn.data.generator.edges import ID_BITS

_MOST_FILES = 256  # all are open at once, and a process may often open only 1,024


class EdgeBuckets:
    """The temporary files of edge keys, one for each range of source ids.

    Args:
        folder: where to put them; it must exist.
        num_nodes: number of nodes.
        piece_nodes: sources per file; more where there would be too many files.
    """

    def __init__(self, folder: Path, num_nodes: int, piece_nodes: int) -> None:
        piece_nodes = max(piece_nodes, -(-num_nodes // _MOST_FILES))
        starts = np.arange(0, num_nodes, piece_nodes, dtype=np.uint64)
        self._first_keys = starts << np.uint64(ID_BITS)
        self._paths = [folder / f"edges-{number:04d}.keys" for number in range(len(starts))]
        with writing(folder):
            self._files = [path.open("wb") for path in self._paths]

    def __len__(self) -> int:
        return len(self._paths)

    def add(self, keys: np.ndarray) -> None:
        """Adds sorted uint64 keys."""
        cuts = np.append(np.searchsorted(keys, self._first_keys), len(keys))
        for file, path, start, end in zip(self._files, self._paths, cuts[:-1], cuts[1:], strict=True):
            if end > start:
                write_bytes(file, path, keys[start:end])

    def drain(self) -> Iterator[np.ndarray]:
        """Yields the sorted keys of each range in ascending order, repeats included.

        Each file is removed when it has been read.
        """
        self._close()
        for path in self._paths:
            keys = np.fromfile(path, np.uint64)
            path.unlink()
            keys.sort()
            yield keys

    def __enter__(self) -> EdgeBuckets:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()
        for path in self._paths:
            path.unlink(missing_ok=True)

    def _close(self) -> None:
        for file, path in zip(self._files, self._paths, strict=True):
            with writing(path):
                file.close()
