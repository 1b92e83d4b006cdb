"""The sources of attributes in one process: a ``Data`` or a feature store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from torch import Tensor
from torch.utils.data import get_worker_info
from torch_geometric.data import Data, FeatureStore
from torch_geometric.sampler import SamplerOutput

from pyg_batchgnn.fetch import BlockFetcher, Fetched, Fetcher, FetchGroup, InPlaceFetcher, as_table, is_mapped
from pyg_batchgnn.loader.filter import filter_data, filter_store, read_store
from pyg_batchgnn.loader.gather import Gatherer
from pyg_batchgnn.loader.reading import Features, Reading
from pyg_batchgnn.store import group_of


class Source(Protocol):
    """The attributes of both forms of a batch, read from the user's object when a batch is made."""

    def batch(self, out: SamplerOutput, gather: Gatherer) -> Data:
        """Makes a PyG batch with every attribute of a sample's nodes and edges."""

    def block(self, node: Tensor, gather: Gatherer) -> dict[str, Tensor]:
        """Copies the wanted node attributes of the given nodes, by name."""

    def tables(self, num_nodes: int) -> dict[str, Tensor] | None:
        """Returns the wanted node attributes of all nodes where they lie.

        It returns None if they are to be copied.

        Raises:
            ValueError: the user wants tables read in place that cannot be.
        """


class SourceFetcher:
    """Reads in place what can be read so when a fetch group is made, and copies else.

    Args:
        source: where attributes come from.
        num_nodes: the number of nodes of the graph.
        threads: at most this many threads copy rows.
    """

    def __init__(self, source: Source, num_nodes: int, threads: int | None) -> None:
        self._source, self._num_nodes, self._threads = source, num_nodes, threads

    def fetch(self, group: FetchGroup) -> Fetched:
        """Returns the group's minibatches with their attributes; see `Fetcher`."""
        tables = self._source.tables(self._num_nodes)
        fetcher: Fetcher = (
            InPlaceFetcher(tables) if tables is not None else BlockFetcher(self._read, self._num_nodes)
        )
        return fetcher.fetch(group)

    def _read(self, node: Tensor) -> dict[str, Tensor]:
        return self._source.block(node, Gatherer(self._threads))


class DataSource:
    """The attributes of a ``Data``.

    Args:
        data: the user's object.
        reading: which attributes native batches carry, and where those lie.
        aggregates: tables that native batches carry as well, with one row per node of the graph.
    """

    def __init__(self, data: Data, reading: Reading, aggregates: Mapping[str, Tensor]) -> None:
        self.data = data
        self.reading, self.aggregates = reading, aggregates
        self._mapped: dict[str, tuple[int, bool]] = {}  # each table's address, and whether it is a file's

    def batch(self, out: SamplerOutput, gather: Gatherer) -> Data:
        """Makes a PyG batch; see `Source`."""
        return filter_data(self.data, out, gather)

    def block(self, node: Tensor, gather: Gatherer) -> dict[str, Tensor]:
        """Copies rows; see `Source`."""
        return {name: gather(value, node) for name, value in self._wanted().items()}

    def tables(self, num_nodes: int) -> dict[str, Tensor] | None:
        """Returns whole tables; see `Source`.

        A worker process copies: what it hands over travels through shared memory.
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
        """Asks the system only if the table is another one than before."""
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
        return {**{name: held[name] for name in self.reading.chosen(held)}, **self.aggregates}


class StoreSource:
    """The attributes of a feature store.

    Args:
        store: the user's object.
        reading: which attributes native batches carry, and where those lie.
        aggregates: tables that native batches carry as well, with one row per node of the graph.
        custom_cls: the class of PyG batches; ``Data`` if None.
    """

    def __init__(
        self,
        store: FeatureStore,
        reading: Reading,
        aggregates: Mapping[str, Tensor],
        custom_cls: Any = None,
    ) -> None:
        self.store = store
        self.reading, self.aggregates = reading, aggregates
        self.custom_cls = custom_cls

    def batch(self, out: SamplerOutput, gather: Gatherer) -> Data:
        """Makes a PyG batch; see `Source`."""
        return filter_store(self.store, out, gather, self.custom_cls)

    def block(self, node: Tensor, gather: Gatherer) -> dict[str, Tensor]:
        """Copies rows; see `Source`."""
        read = read_store(self.store, node, None, gather, self.reading.attributes)
        return {**read, **{name: gather(table, node) for name, table in self.aggregates.items()}}

    def tables(self, num_nodes: int) -> dict[str, Tensor] | None:  # noqa: ARG002
        """Returns None: a store answers requests and shows no table."""
        if self.reading.features is Features.IN_PLACE:
            raise ValueError("a feature store hands out copies; use features='auto' or 'copy', or a Data")
        attrs = self.store.get_all_tensor_attrs()
        self.reading.chosen(attr.attr_name for attr in attrs if group_of(attr).is_node)
        return None
