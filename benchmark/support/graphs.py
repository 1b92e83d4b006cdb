"""The graphs that are measured: folders of ``.npy`` arrays, CSC by destination.

A folder holds ``colptr`` int64 [N+1], ``row`` int64 [E], ``x`` float32 [N, F], ``y`` int64 [N] and
index arrays ``train_idx``, ``val_idx``, ``test_idx``. Every contestant reads the same folder, with
NumPy and torch alone, so that interpreters without the project take part on equal terms. Times and
weights of edges, and links to predict, are drawn when they are asked for, the same in every
process.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from benchmark.support.jobs import Options
from benchmark.support.machine import CACHE

if TYPE_CHECKING:
    from typing_extensions import Self

REQUIRED = ("colptr", "row", "x", "y", "train_idx")


@dataclass(frozen=True, eq=False)
class ArrayFolder:
    """A graph at rest. Arrays are read when first asked for."""

    path: Path

    @classmethod
    def open(cls, path: str | Path) -> Self:
        """The graph in a folder; a missing array is a FileNotFoundError that names it.

        The same object every time, so that jobs that follow each other in a process share its
        arrays.
        """
        found: Self = _opened(cls, Path(path))  # type: ignore[arg-type]  # a class is hashable
        return found

    def read(self, name: str) -> Tensor:
        return torch.from_numpy(np.load(self.path / f"{name}.npy", allow_pickle=False))

    def seeds(self, count: int, seed: int) -> Tensor:
        """Returns [count] int64 training nodes in an order of their own for each seed, again and
        again where there are fewer."""
        order = np.random.default_rng(seed).permutation(self.read("train_idx").long().numpy())
        return torch.from_numpy(np.resize(order, count))


@cache
def _opened(kind: type[ArrayFolder], path: Path) -> Any:
    return kind(path)


class GraphFolder(ArrayFolder):
    """A graph of one node type."""

    def __post_init__(self) -> None:
        missing = [name for name in REQUIRED if not (self.path / f"{name}.npy").is_file()]
        if missing:
            raise FileNotFoundError(
                f"{self.path} lacks {', '.join(f'{name}.npy' for name in missing)}; "
                "name a graph folder with --graph, or leave --graph out to have one generated"
            )

    @cached_property
    def colptr(self) -> Tensor:
        return self.read("colptr")

    @cached_property
    def row(self) -> Tensor:
        return self.read("row")

    @cached_property
    def x(self) -> Tensor:
        return self.read("x")

    @cached_property
    def y(self) -> Tensor:
        return self.read("y")

    @cached_property
    def edge_index(self) -> Tensor:
        """[2, E] int64, sorted by destination: what a PyG user holds."""
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
        size = (self.num_nodes, self.num_nodes)
        return torch.sparse_csr_tensor(self.colptr, self.row, torch.ones(self.row.numel()), size)

    @property
    def num_nodes(self) -> int:
        return self.colptr.numel() - 1

    @property
    def num_features(self) -> int:
        return int(np.load(self.path / "x.npy", mmap_mode="r", allow_pickle=False).shape[1])

    @property
    def num_classes(self) -> int:
        return int(self.y.max()) + 1

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


def seed_lists(graph: ArrayFolder, options: Options) -> list[Tensor]:
    return list(graph.seeds(options.seeds, options.seed).split(options.batch_size))


def by_destination(edge_index: np.ndarray, nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the CSC of an edge list: indptr [N+1] int64 and sources [E] int64."""
    source, destination = edge_index.astype(np.int64)
    order = np.argsort(destination, kind="stable")
    colptr = np.zeros(nodes + 1, dtype=np.int64)
    np.cumsum(np.bincount(destination, minlength=nodes), out=colptr[1:])
    return colptr, source[order]


def dataset_folder(tag: str, name: str, **options: Any) -> GraphFolder:
    """The folder of a data set of the project, written on first use."""
    folder = CACHE / "graphs" / tag
    if (folder / "meta.json").is_file():
        return GraphFolder.open(folder)
    from pyg_batchgnn.data import load_dataset

    dataset = load_dataset(name, **options)
    tables = dataset.nodes.tables
    if "x" not in tables:
        raise ValueError(f"{name} has no features; the benchmarks need some")
    colptr, row = by_destination(dataset.edge_index.numpy(), dataset.num_nodes)
    folder.mkdir(parents=True, exist_ok=True)
    arrays = {
        "colptr": colptr,
        "row": row,
        "x": tables["x"].float().numpy(),
        "y": tables["y"].numpy(),
        "train_idx": dataset.split("train").numpy(),
        "val_idx": dataset.split("val").numpy(),
        "test_idx": dataset.split("test").numpy(),
    }
    for key, array in arrays.items():
        np.save(folder / f"{key}.npy", array)
    (folder / "meta.json").write_text(json.dumps({"name": tag, "source": dataset.source}))
    return GraphFolder.open(folder)


def chosen_graph(folder: Path | None, nodes: int) -> GraphFolder:
    if folder:
        return GraphFolder.open(folder)
    return dataset_folder(f"generated-{nodes}", "generated", nodes=nodes, degree=50.0, features=100)


#: Times are below this.
LATEST = 1_000_000_000


def edge_times(graph: GraphFolder, seed: int) -> Tensor:
    """Returns a time for each edge, [E] int64, uniform in [0, `LATEST`)."""
    generator = torch.Generator().manual_seed(seed)
    degree = graph.colptr.diff()
    gaps = torch.empty(graph.row.numel(), dtype=torch.float64).exponential_(generator=generator)
    last = torch.empty(degree.numel(), dtype=torch.float64).exponential_(generator=generator)
    sums = gaps.cumsum_(0)
    ends = torch.cat([sums.new_zeros(1), sums])[graph.colptr]
    whole = (ends[1:] - ends[:-1] + last).repeat_interleave(degree, output_size=sums.numel())
    sums -= ends[:-1].repeat_interleave(degree, output_size=sums.numel())
    return sums.div_(whole).mul_(LATEST).long()


def edge_weights(graph: GraphFolder, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed + 1)
    return 1 - torch.rand(graph.row.numel(), generator=generator)


def seed_times(count: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed + 2)
    return torch.randint(LATEST // 2, LATEST, (count,), generator=generator)


def links(graph: GraphFolder, count: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed + 3)
    chosen = torch.randint(graph.row.numel(), (count,), generator=generator)
    return torch.stack([graph.row[chosen], torch.searchsorted(graph.colptr, chosen, right=True) - 1])
