"""Classes with the interface of PyG's and OGB's data sets, over generated graphs."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from benchmark.pyg_scripts.stand_ins.graphs import MAG_NODES, SHAPES, Splits, homogeneous, mag, symmetric

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
        featured: Sequence[str] = ("paper",) if preprocess is None else tuple(MAG_NODES)
        data = mag(scale(), featured)
        super().__init__(data, data["paper"].y, transform)


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
