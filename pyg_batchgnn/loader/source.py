"""Where attributes come from: a ``Data`` in memory, or a feature store that answers requests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from torch import Tensor
from torch.utils.data import get_worker_info
from torch_geometric.data import Data, FeatureStore
from torch_geometric.sampler import SamplerOutput

from pyg_batchgnn.fetch import as_table, is_mapped
from pyg_batchgnn.loader.filter import Gatherer, filter_data, filter_store, read_store
from pyg_batchgnn.loader.reading import Features, Reading


class Source(Protocol):
    """Both forms of a batch, read from the user's object when they are made."""

    def batch(self, out: SamplerOutput, gather: Gatherer) -> Data:
        """A PyG batch with every attribute of a sample's nodes and edges."""

    def block(self, node: Tensor, gather: Gatherer) -> dict[str, Tensor]:
        """The wanted node attributes of the given nodes, by name."""

    def tables(self, num_nodes: int) -> dict[str, Tensor] | None:
        """The wanted node attributes of all nodes, where they lie; None where they are to be copied."""


class DataSource:
    def __init__(self, data: Data, reading: Reading, beside: Mapping[str, Tensor]) -> None:
        self.data = data
        self.reading, self.beside = reading, beside
        self._mapped: dict[str, tuple[int, bool]] = {}  # where each table lies, and whether that is a file

    def batch(self, out: SamplerOutput, gather: Gatherer) -> Data:
        return filter_data(self.data, out, gather)

    def block(self, node: Tensor, gather: Gatherer) -> dict[str, Tensor]:
        return {name: gather(value, node) for name, value in self._wanted().items()}

    def tables(self, num_nodes: int) -> dict[str, Tensor] | None:
        """See `Source`. A worker process copies: what it hands over travels through shared memory.

        Raises:
            ValueError: the user wants a table read in place that cannot be.
        """
        features = self.reading.features
        if features is Features.COPY or get_worker_info() is not None:
            return None
        tables = {}
        for name, value in self._wanted().items():
            table = as_table(value, num_nodes)
            if features is Features.IN_PLACE and isinstance(table, str):
                raise ValueError(f"{name!r} cannot be read in place: {table}; or use features='copy'")
            if isinstance(table, str) or (features is Features.AUTO and self._is_mapped(name, table)):
                return None
            tables[name] = table
        return tables

    def _is_mapped(self, name: str, table: Tensor) -> bool:
        """Asks the system only where the table is another one than before."""
        address, mapped = self._mapped.get(name, (None, False))
        if address != table.data_ptr():
            mapped = is_mapped(table)
            self._mapped[name] = (table.data_ptr(), mapped)
        return mapped

    def _wanted(self) -> dict[str, Any]:
        store = self.data._store
        held = {
            key: value
            for key, value in store.items()
            if isinstance(value, (Tensor, np.ndarray))
            and store.is_node_attr(key)
            and self.data.__cat_dim__(key, value, store) == 0
        }
        return {**{name: held[name] for name in self.reading.chosen(held)}, **self.beside}


class StoreSource:
    def __init__(
        self, store: FeatureStore, reading: Reading, beside: Mapping[str, Tensor], custom_cls: Any = None
    ) -> None:
        self.store = store
        self.reading, self.beside = reading, beside
        self.custom_cls = custom_cls

    def batch(self, out: SamplerOutput, gather: Gatherer) -> Data:
        return filter_store(self.store, out, gather, self.custom_cls)

    def block(self, node: Tensor, gather: Gatherer) -> dict[str, Tensor]:
        read = read_store(self.store, node, None, gather, self.reading.attributes)
        return {**read, **{name: gather(table, node) for name, table in self.beside.items()}}

    def tables(self, num_nodes: int) -> dict[str, Tensor] | None:  # noqa: ARG002
        """See `Source`. A store answers requests; it shows no table.

        Raises:
            ValueError: the user wants tables read in place.
        """
        if self.reading.features is Features.IN_PLACE:
            raise ValueError("a feature store hands out copies; use features='auto' or 'copy', or a Data")
        attrs = self.store.get_all_tensor_attrs()
        self.reading.chosen(attr.attr_name for attr in attrs if not isinstance(attr.group_name, tuple))
        return None
