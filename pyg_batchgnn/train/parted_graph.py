"""The graph of a run in parts, one a rank."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from pyg_batchgnn.data import Dataset
from pyg_batchgnn.loader import MacrobatchNeighborLoader
from pyg_batchgnn.train.config import TrainConfig
from pyg_batchgnn.train.errors import TrainError
from pyg_batchgnn.train.graphs import Batches
from pyg_batchgnn.train.network import Network
from pyg_batchgnn.train.ranks import Ranks


@dataclass(frozen=True)
class PartedGraph:
    """What a rank holds of the graph: its part, of which the others ask."""

    config: TrainConfig

    @classmethod
    def of(cls, dataset: Dataset, config: TrainConfig, ranks: Ranks) -> PartedGraph:  # noqa: ARG003
        """Partitions `dataset`; collective."""
        raise TrainError("training on several ranks is still to come")

    def loader(self, nodes: Tensor, batches: Batches) -> MacrobatchNeighborLoader:
        """See `RunGraph`."""
        raise NotImplementedError

    def labels(self, network: Network, batch: Any) -> Tensor:
        """See `Labels`; they come with the features."""
        return network.fetched(batch, "y")
