"""Classes with the interface of PyG's and OGB's data sets, over generated graphs."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from benchmark.pyg_scripts.stand_ins.graphs import SHAPES, Splits, homogeneous, mag, movies, symmetric
from benchmark.support.mag import NODES

#: The environment variable that holds the size of the graphs, as a share of the real ones.
SCALE = "PYG_SCRIPTS_SCALE"
Transform = Callable[[Any], Any] | None


def scale() -> float:
    """Returns the size of the graphs, as a share of the real ones."""
    return float(os.environ.get(SCALE, "0.01"))


class StandIn:
    """A data set of one graph.

    Args:
        data: the graph.
        labels: [N] or [N, 1], its class numbers.
        transform: what the user does to the graph when it is asked for.
    """

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
        data.x = (data.x > 2.5).float()  # words that a document has
        data.update(splits.masks(data.num_nodes))
        super().__init__(data, data.y, transform)


class OgbMag(StandIn):
    """Stands for ``torch_geometric.datasets.OGB_MAG``.

    With ``preprocess`` all types have features, else papers alone.
    """

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
        """Returns the nodes for training, validation and testing."""
        splits: Splits = self._splits
        return {"train": splits.train, "valid": splits.val, "test": splits.test}
