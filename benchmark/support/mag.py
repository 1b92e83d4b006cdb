"""A graph with the node types, the relations and the sizes of ogbn-mag, as a folder of arrays.

A folder holds ``num_nodes.json``, for each relation ``edges_SOURCE_NAME_TARGET.npy`` ([2, E] int64,
sources above targets), ``x_paper.npy`` ([N, F] float32), ``y_paper.npy`` ([N] int64) and
``train_idx.npy``. Only papers have features; `TypedFolder.features` draws those of other types.
This file needs NumPy and torch alone, so that every contestant's interpreter can read it.
"""

from __future__ import annotations

import json
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmark.support.graphs import ArrayFolder

Relation = tuple[str, str, str]

NODES = {"author": 1_134_649, "field_of_study": 59_965, "institution": 8_740, "paper": 736_389}
EDGES: dict[Relation, int] = {
    ("author", "affiliated_with", "institution"): 1_043_998,
    ("author", "writes", "paper"): 7_145_660,
    ("paper", "cites", "paper"): 5_416_271,
    ("paper", "has_topic", "field_of_study"): 7_505_078,
}
SEEDS = "paper"
FEATURES, CLASSES, TRAINING_SHARE = 128, 349, 0.855
_EXPONENT = 1.4  # of the power law of degrees


class TypedFolder(ArrayFolder):
    """A typed graph at rest."""

    def __post_init__(self) -> None:
        if not (self.path / "num_nodes.json").is_file():
            raise FileNotFoundError(f"{self.path} lacks num_nodes.json; name a folder with --typed-graph")

    @cached_property
    def num_nodes(self) -> dict[str, int]:
        found: dict[str, int] = json.loads((self.path / "num_nodes.json").read_text())
        return found

    @cached_property
    def edges(self) -> dict[Relation, Tensor]:
        """The edges of each relation, [2, E] int64."""
        stored = {names: self.read(f"edges_{'_'.join(names)}") for names in EDGES}
        both = {
            names: torch.cat([edges, edges.flip(0)], dim=1) if names[0] == names[2] else edges
            for names, edges in stored.items()
        }
        reverse = {
            (target, f"rev_{name}", source): edges.flip(0)
            for (source, name, target), edges in stored.items()
            if source != target
        }
        return {**both, **reverse}

    @cached_property
    def x(self) -> Tensor:
        return self.read("x_paper")

    @cached_property
    def features(self) -> dict[str, Tensor]:
        """[N, F] float32 by node type: those of papers, and random ones that are the same in every
        process."""
        found = {}
        for number, (name, count) in enumerate(sorted(self.num_nodes.items())):
            generator = torch.Generator().manual_seed(number)
            found[name] = self.x if name == SEEDS else torch.randn(count, FEATURES, generator=generator)
        return found

    @cached_property
    def y(self) -> Tensor:
        return self.read("y_paper")

    @property
    def num_classes(self) -> int:
        return CLASSES

    def describe(self) -> dict[str, Any]:
        """Returns what result files say about the graph."""
        counts = [np.load(file, mmap_mode="r").shape[1] for file in self.path.glob("edges_*.npy")]
        return {
            "name": self.path.name,
            "nodes": sum(self.num_nodes.values()),
            "edges": 2 * sum(counts),
            "features": FEATURES,
        }


def is_typed(folder: Path) -> bool:
    return (folder / "num_nodes.json").is_file()


def generate(folder: Path, scale: float, seed: int = 0) -> TypedFolder:
    """Writes a graph whose sizes are ``scale`` times those of ogbn-mag, unless it is there."""
    if (folder / "num_nodes.json").is_file():
        return TypedFolder.open(folder)
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    nodes = {name: max(CLASSES, int(count * scale)) for name, count in NODES.items()}
    pulls = {name: _pulls(rng, count) for name, count in nodes.items()}
    for (source, name, target), count in EDGES.items():
        edges = _edges(rng, pulls[source], pulls[target], max(1000, int(count * scale)))
        np.save(folder / f"edges_{source}_{name}_{target}.npy", edges)
    papers = nodes[SEEDS]
    np.save(folder / "x_paper.npy", rng.standard_normal((papers, FEATURES), dtype=np.float32))
    np.save(folder / "y_paper.npy", rng.integers(0, CLASSES, papers))
    np.save(folder / "train_idx.npy", np.sort(rng.permutation(papers)[: int(papers * TRAINING_SHARE)]))
    (folder / "num_nodes.json").write_text(json.dumps(nodes))  # last: the folder is complete
    return TypedFolder.open(folder)


def _pulls(rng: np.random.Generator, count: int) -> np.ndarray:
    pull = np.minimum(1 + rng.pareto(_EXPONENT, count), 5 * count**0.5)
    return np.cumsum(pull)


def _edges(rng: np.random.Generator, source: np.ndarray, target: np.ndarray, count: int) -> np.ndarray:
    keys = np.empty(0, dtype=np.int64)
    while keys.size < count:
        more = int(1.2 * (count - keys.size)) + 1000
        ends = [np.searchsorted(sums, rng.random(more) * sums[-1]) for sums in (source, target)]
        keys = np.unique(np.concatenate([keys, ends[0] * target.size + ends[1]]))
    keys = rng.permutation(keys)[:count]
    return np.stack([keys // target.size, keys % target.size])
