"""Where attributes come from: a ``Data`` in memory, or a feature store that answers requests."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from torch import Tensor
from torch_geometric.data import Data, FeatureStore
from torch_geometric.sampler import SamplerOutput

from pyg_batchgnn.loader.filter import Gatherer, filter_data, filter_store, read_store


class Source(Protocol):
    """Both forms of a batch, read from the user's object when they are made."""

    def batch(self, out: SamplerOutput, gather: Gatherer) -> Data:
        """A PyG batch with every attribute of a sample's nodes and edges."""

    def block(self, node: Tensor, gather: Gatherer) -> dict[str, Tensor]:
        """Every node attribute of the given nodes, by name."""


class DataSource:
    def __init__(self, data: Data) -> None:
        self.data = data

    def batch(self, out: SamplerOutput, gather: Gatherer) -> Data:
        return filter_data(self.data, out, gather)

    def block(self, node: Tensor, gather: Gatherer) -> dict[str, Tensor]:
        store = self.data._store
        return {
            key: gather(value, node)
            for key, value in store.items()
            if isinstance(value, (Tensor, np.ndarray))
            and store.is_node_attr(key)
            and self.data.__cat_dim__(key, value, store) == 0
        }


class StoreSource:
    def __init__(self, store: FeatureStore, custom_cls: Any = None) -> None:
        self.store = store
        self.custom_cls = custom_cls

    def batch(self, out: SamplerOutput, gather: Gatherer) -> Data:
        return filter_store(self.store, out, gather, self.custom_cls)

    def block(self, node: Tensor, gather: Gatherer) -> dict[str, Tensor]:
        return read_store(self.store, node, None, gather)
