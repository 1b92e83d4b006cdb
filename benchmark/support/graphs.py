"""The graphs that are measured: folders of ``.npy`` arrays, CSC by destination.

A folder holds ``colptr`` int64 [N+1], ``row`` int64 [E], ``x`` float32 [N, F], ``y`` int64 [N] and
index arrays ``train_idx``, ``val_idx``, ``test_idx``. Every contestant reads the same folder, with
NumPy and torch alone, so that interpreters without the project take part on equal terms.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

REQUIRED = ("colptr", "row", "x", "y", "train_idx")


@dataclass(frozen=True, eq=False)
class GraphFolder:
    """A graph at rest.

    Arrays are read when first asked for, into ordinary memory of the process.
    """

    path: Path

    def __post_init__(self) -> None:
        missing = [name for name in REQUIRED if not (self.path / f"{name}.npy").is_file()]
        if missing:
            raise FileNotFoundError(
                f"{self.path} lacks {', '.join(f'{name}.npy' for name in missing)}; "
                "name a graph folder with --graph, or leave --graph out to have one generated"
            )

    @classmethod
    def open(cls, path: str | Path) -> GraphFolder:
        """The graph in the folder ``path``; a missing array is a FileNotFoundError that names it.

        The same object every time, so that jobs that follow each other in a process share its
        arrays.
        """
        return _opened(Path(path))

    def read(self, name: str) -> Tensor:
        """One array as a tensor that owns its memory."""
        return torch.from_numpy(np.load(self.path / f"{name}.npy", allow_pickle=False))

    @cached_property
    def colptr(self) -> Tensor:
        """[N+1] int64, where each destination's edges begin."""
        return self.read("colptr")

    @cached_property
    def row(self) -> Tensor:
        """[E] int64, source of each edge."""
        return self.read("row")

    @cached_property
    def x(self) -> Tensor:
        """[N, F] float32."""
        return self.read("x")

    @cached_property
    def y(self) -> Tensor:
        """[N] int64."""
        return self.read("y")

    @cached_property
    def edge_index(self) -> Tensor:
        """[2, E] int64, sorted by destination: what a PyG user holds.

        It is a mapped file, made on first use, so that the processes of all contestants share it.
        """
        file = self.path / "edge_index.npy"
        if not file.is_file():
            degree = np.diff(np.load(self.path / "colptr.npy", mmap_mode="r", allow_pickle=False))
            partial = file.with_suffix(f".{os.getpid()}")
            shape = (2, int(degree.sum()))
            edges = np.lib.format.open_memmap(partial, mode="w+", dtype=np.int64, shape=shape)
            edges[0] = np.load(self.path / "row.npy", mmap_mode="r", allow_pickle=False)
            edges[1] = np.repeat(np.arange(len(degree)), degree)
            edges.flush()
            partial.replace(file)
        return torch.from_numpy(np.load(file, mmap_mode="c", allow_pickle=False))

    @cached_property
    def adjacency(self) -> Tensor:
        """Returns an [N, N] matrix of ones as compressed rows, one row per destination."""
        size = (self.num_nodes, self.num_nodes)
        return torch.sparse_csr_tensor(self.colptr, self.row, torch.ones(self.row.numel()), size)

    @property
    def num_nodes(self) -> int:
        """N."""
        return self.colptr.numel() - 1

    @property
    def num_features(self) -> int:
        """The number of feature columns, read from the file's header."""
        return int(np.load(self.path / "x.npy", mmap_mode="r", allow_pickle=False).shape[1])

    @property
    def num_classes(self) -> int:
        """The number of labels, counted from 0 to the largest."""
        return int(self.y.max()) + 1

    def seeds(self, count: int, seed: int) -> Tensor:
        """Returns ``count`` training nodes in an order that depends on ``seed`` alone.

        Returns:
            [count] int64
        """
        train = np.load(self.path / "train_idx.npy", allow_pickle=False).astype(np.int64)
        order = np.random.default_rng(seed).permutation(train)
        return torch.from_numpy(np.resize(order, count))

    def describe(self) -> dict[str, Any]:
        """Returns what result files say about the graph."""
        colptr = np.load(self.path / "colptr.npy", mmap_mode="r", allow_pickle=False)
        x = np.load(self.path / "x.npy", mmap_mode="r", allow_pickle=False)
        train = np.load(self.path / "train_idx.npy", mmap_mode="r", allow_pickle=False)
        meta = self.path / "meta.json"
        name = json.loads(meta.read_text())["name"] if meta.is_file() else self.path.name
        return {
            "name": name,
            "nodes": int(colptr.shape[0] - 1),
            "edges": int(colptr[-1]),
            "features": int(x.shape[1]),
            "train_nodes": int(train.shape[0]),
        }


@cache
def _opened(path: Path) -> GraphFolder:
    return GraphFolder(path)


def seed_lists(graph: GraphFolder, batches: int, batch_size: int, seed: int) -> list[Tensor]:
    """The round's minibatches: ``batches`` tensors of ``batch_size`` seed nodes each."""
    return list(graph.seeds(batches * batch_size, seed).split(batch_size))
