"""Generated data sets in the places of those that PyG's scripts download.

Graphs have the schema and the shape of the real ones; sizes are those times a scale. A node's class
shows in its features and in its neighbours, so that models learn something.
"""

from __future__ import annotations

import copy
import importlib.util
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch
import torch_geometric.datasets
from torch import Tensor
from torch_geometric.data import Data, HeteroData
from torch_geometric.utils import to_undirected

from benchmark.support.mag import CLASSES, EDGES, FEATURES, NODES

#: The share of edges that stay within a class.
WITHIN_CLASS = 0.7
#: A node has at most this share of the nodes as neighbours: small graphs are not complete ones.
LARGEST_DEGREE = 0.05
#: Standard deviation of the noise in features; that between classes is one.
NOISE = 4.0
#: The least number of nodes of a type, per class.
LEAST_PER_CLASS = 4


@dataclass(frozen=True)
class Shape:
    """The size of a real data set of one node type."""

    nodes: int  # the number of nodes
    degree: float
    features: int
    classes: int
    train: float
    val: float


SHAPES = {
    "Reddit": Shape(232_965, 492.0, 602, 41, 0.66, 0.10),
    "ogbn-products": Shape(2_449_029, 50.5, 100, 47, 0.08, 0.016),
    "ogbn-arxiv": Shape(169_343, 6.9, 128, 40, 0.54, 0.18),
    "Cora": Shape(2_708, 3.9, 1_433, 7, 0.052, 0.185),
    "PPI": Shape(56_944, 28.8, 50, 121, 0.8, 0.1),
}


#: The size of MovieLens.
USERS, MOVIES, RATINGS, MOVIE_FEATURES = 610, 9_742, 100_836, 404
#: The kinds of movies that users like; they take the place of classes.
TASTES = 10


@dataclass(frozen=True)
class Splits:
    """The nodes for training, validation and testing, [n] int64 each."""

    train: Tensor
    val: Tensor
    test: Tensor

    @classmethod
    def draw(cls, nodes: int, train: float, val: float, generator: torch.Generator) -> Splits:
        """Draws splits; each has a node at least."""
        order = torch.randperm(nodes, generator=generator)
        first = max(1, round(train * nodes))
        second = first + max(1, round(val * nodes))
        return cls(*(part.sort().values for part in order.tensor_split([first, second])))

    def masks(self, nodes: int) -> dict[str, Tensor]:
        """Returns the splits as boolean masks, by the names that PyG's data sets have."""
        out = {}
        for name, ids in (("train_mask", self.train), ("val_mask", self.val), ("test_mask", self.test)):
            out[name] = torch.zeros(nodes, dtype=torch.bool)
            out[name][ids] = True
        return out


def homogeneous(name: str, scale: float, seed: int = 0) -> tuple[Data, Splits]:
    """Returns a graph with the shape of a data set of `SHAPES`: ``x``, ``y`` and directed edges."""
    shape, generator = SHAPES[name], torch.Generator().manual_seed(seed)
    nodes = _scaled(shape.nodes, scale, shape.classes)
    degree = min(shape.degree, LARGEST_DEGREE * nodes)
    classes = torch.randint(shape.classes, (nodes,), generator=generator)
    data = Data(
        x=_features(classes, shape.features, shape.classes, generator),
        edge_index=_edges(classes, classes, round(degree * nodes), generator),
        y=classes,
    )
    return data, Splits.draw(nodes, shape.train, shape.val, generator)


def symmetric(data: Data) -> Data:
    data.edge_index = to_undirected(data.edge_index[:, : data.num_edges // 2], num_nodes=data.num_nodes)
    return data


def mag(scale: float, featured: Sequence[str], seed: int = 0) -> HeteroData:
    """Returns a graph with the shape of ogbn-mag."""
    generator, data = torch.Generator().manual_seed(seed), HeteroData()
    kinds = max(2, round(CLASSES * min(1.0, 20 * scale)))  # small graphs have fewer classes
    classes = {}
    for node_type, full in NODES.items():
        nodes = _scaled(full, scale, kinds)
        classes[node_type] = torch.randint(kinds, (nodes,), generator=generator)
        if node_type in featured:
            data[node_type].x = _features(classes[node_type], FEATURES, kinds, generator)
        else:
            data[node_type].num_nodes = nodes
    papers = classes["paper"]
    data["paper"].year = torch.randint(2010, 2020, papers.shape, generator=generator)
    data["paper"].y = papers
    splits = Splits.draw(papers.numel(), 0.855, 0.088, generator)
    for name, mask in splits.masks(papers.numel()).items():
        data["paper"][name] = mask
    for relation, full in EDGES.items():
        count = max(1, round(full * scale))
        data[relation].edge_index = _edges(classes[relation[0]], classes[relation[2]], count, generator)
    return data


def movies(scale: float, seed: int = 0) -> HeteroData:
    """Returns a graph with the shape of MovieLens: users, movies, and ratings with times."""
    generator, data = torch.Generator().manual_seed(seed), HeteroData()
    users, films = (
        torch.randint(TASTES, (_scaled(count, scale, TASTES),), generator=generator)
        for count in (USERS, MOVIES)
    )
    data["user"].num_nodes = users.numel()
    data["movie"].x = _features(films, MOVIE_FEATURES, TASTES, generator)
    edges = _edges(users, films, max(2000, round(RATINGS * scale)), generator)
    every = torch.arange(max(users.numel(), films.numel()))
    favourites = torch.stack([every % users.numel(), every % films.numel()])
    edges = torch.cat([edges, favourites], dim=1)
    liked = users[edges[0]] == films[edges[1]]
    liked[-every.numel() :] = True
    rates = data["user", "rates", "movie"]
    rates.edge_index = edges
    rates.edge_label = torch.where(liked, 5, torch.randint(1, 5, liked.shape, generator=generator))
    rates.time = torch.randint(800_000_000, 1_500_000_000, liked.shape, generator=generator)
    return data


def _scaled(nodes: int, scale: float, classes: int) -> int:
    return max(LEAST_PER_CLASS * classes, round(nodes * scale))


def _features(classes: Tensor, columns: int, count: int, generator: torch.Generator) -> Tensor:
    directions = torch.randn(count, columns, generator=generator)
    noise = torch.randn(classes.numel(), columns, generator=generator)
    return (directions[classes] + NOISE * noise) / (1 + NOISE**2) ** 0.5


def _edges(sources: Tensor, targets: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Draws edges between two types, whose classes are given, [2, count]; some nodes have many."""
    skewed = torch.rand(count, generator=generator) ** 2
    source = torch.randperm(sources.numel(), generator=generator)[(skewed * sources.numel()).long()]
    by_class = targets.argsort(stable=True)
    sizes = targets.bincount(minlength=int(sources.max()) + 1)
    begins = sizes.cumsum(0) - sizes
    same = sources[source]
    drawn = torch.rand(count, generator=generator)
    near = by_class[(begins[same] + (drawn * sizes[same]).long()).clamp(max=targets.numel() - 1)]
    far = (drawn * targets.numel()).long()
    within = (torch.rand(count, generator=generator) < WITHIN_CLASS) & (sizes[same] > 0)
    return torch.stack([source, torch.where(within, near, far)])


#: The environment variable that holds the size of the graphs, as a share of the real ones.
SCALE = "PYG_SCRIPTS_SCALE"
Transform = Callable[[Any], Any] | None


def scale() -> float:
    return float(os.environ.get(SCALE, "0.01"))


class StandIn:
    """A data set of one graph."""

    def __init__(self, data: Any, labels: Tensor, transform: Transform) -> None:
        self._data, self._transform = data, transform
        self.num_classes = int(labels.max()) + 1
        self.num_features = self.num_node_features = data.num_features

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> Any:
        if index != 0:
            raise IndexError(f"the data set has one graph, whose index is 0, not {index}")
        data = copy.copy(self._data)
        return data if self._transform is None else self._transform(data)


class Reddit(StandIn):
    """Stands for ``torch_geometric.datasets.Reddit``: edges in both directions, and masks."""

    def __init__(self, root: str, transform: Transform = None, **_: Any) -> None:
        del root
        data, splits = homogeneous("Reddit", scale())
        data = symmetric(data)
        data.update(splits.masks(data.num_nodes))
        super().__init__(data, data.y, transform)


class Planetoid(StandIn):
    """Stands for ``torch_geometric.datasets.Planetoid``: a citation graph of the real size."""

    def __init__(self, root: str, name: str, transform: Transform = None, **_: Any) -> None:
        del root
        data, splits = homogeneous(name, 1.0)
        data = symmetric(data)
        data.x = (data.x > 2.5).to(data.x.dtype)  # words that a document has
        data.update(splits.masks(data.num_nodes))
        super().__init__(data, data.y, transform)


class OgbMag(StandIn):
    """Stands for ``torch_geometric.datasets.OGB_MAG``."""

    def __init__(
        self, root: str, preprocess: str | None = None, transform: Transform = None, **_: Any
    ) -> None:
        del root
        featured: Sequence[str] = ("paper",) if preprocess is None else tuple(NODES)
        data = mag(scale(), featured)
        super().__init__(data, data["paper"].y, transform)


class MovieLens(StandIn):
    """Stands for ``torch_geometric.datasets.MovieLens``: edges have ratings and times."""

    def __init__(self, root: str, transform: Transform = None, **_: Any) -> None:
        del root
        data = movies(max(scale(), 0.02))
        super().__init__(data, data["user", "rates", "movie"].edge_label, transform)


class PPI:
    """Stands for ``torch_geometric.datasets.PPI``: several graphs with several labels per node."""

    num_features = 50

    def __init__(self, root: str, split: str = "train", **_: Any) -> None:
        del root
        self._graphs = []
        for number in range(3 if split == "train" else 1):
            data, _splits = homogeneous("PPI", 0.02, seed=number)
            data = symmetric(data)
            data.y = torch.nn.functional.one_hot(data.y, 121).float()
            self._graphs.append(data)

    def __len__(self) -> int:
        return len(self._graphs)

    def __getitem__(self, index: int) -> Any:
        return self._graphs[index]


class PygNodePropPredDataset(StandIn):
    """Stands for ``ogb.nodeproppred.PygNodePropPredDataset``: labels [N, 1], and splits."""

    def __init__(self, name: str, root: str = "dataset", transform: Transform = None, **_: Any) -> None:
        del root
        if name not in SHAPES:
            raise ValueError(f"no stand-in for {name!r}; there are those of {sorted(SHAPES)}")
        data, self._splits = homogeneous(name, scale())
        data.y = data.y[:, None]
        data.num_nodes = len(data.y)
        if name == "ogbn-arxiv":
            data.node_year = torch.full((len(data.y), 1), 2015)
        else:
            data = symmetric(data)
        super().__init__(data, data.y, transform)

    def get_idx_split(self) -> dict[str, Tensor]:
        splits: Splits = self._splits
        return {"train": splits.train, "valid": splits.val, "test": splits.test}


#: PyG's data sets, and what stands for them.
STAND_INS = {"Reddit": Reddit, "OGB_MAG": OgbMag, "Planetoid": Planetoid, "MovieLens": MovieLens, "PPI": PPI}


class LogisticRegression:
    """Stands for scikit-learn's where that is absent: a linear classifier by least squares."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self._weight = torch.empty(0)

    def fit(self, x: Any, y: Any) -> LogisticRegression:
        wanted = torch.nn.functional.one_hot(torch.as_tensor(y).long()).float()
        self._weight = torch.linalg.lstsq(_with_one(x), wanted, driver="gelsd").solution
        return self

    def score(self, x: Any, y: Any) -> float:
        return float((_with_one(x) @ self._weight).argmax(dim=1).eq(torch.as_tensor(y)).float().mean())


def _with_one(x: Any) -> Tensor:
    values = torch.as_tensor(x).float()
    return torch.cat([values, torch.ones(len(values), 1)], dim=1)


def install_data_sets() -> None:
    """Lets PyG's data sets, OGB's, and scikit-learn where it is absent, be the stand-ins."""
    for name, stand_in in STAND_INS.items():
        setattr(torch_geometric.datasets, name, stand_in)
    _install("ogb.nodeproppred", PygNodePropPredDataset=PygNodePropPredDataset)
    if importlib.util.find_spec("sklearn") is None:
        _install("sklearn.linear_model", LogisticRegression=LogisticRegression, SGDClassifier=None)
        _install("sklearn.metrics", f1_score=None)  # for evaluation, which runs end before
        _install("sklearn.multioutput", MultiOutputClassifier=None)


def _install(path: str, **names: Any) -> None:
    package, _, _ = path.partition(".")
    sys.modules.setdefault(package, ModuleType(package))
    module = ModuleType(path)
    vars(module).update(names)
    sys.modules[path] = module
    setattr(sys.modules[package], path.rpartition(".")[2], module)
