"""The attributes of a feature store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor
from torch_geometric.data import Data, FeatureStore, HeteroData
from torch_geometric.sampler import HeteroSamplerOutput, SamplerOutput

from pyg_batchgnn.data import Group
from pyg_batchgnn.loader.filter_stores import filter_hetero_store, filter_store, read_store
from pyg_batchgnn.loader.gather import Gatherer
from pyg_batchgnn.loader.reading import Features, Reading
from pyg_batchgnn.store import AttributeGroups, TypedGraph


class StoreSource:
    """The attributes of a feature store; see `Source`.

    Args:
        store: the user's object.
        graph: the graph.
        reading: which attributes native batches carry, and where those lie.
        aggregates: tables that native batches carry as well, by group of nodes, with one row per
            node of the graph.
        custom_cls: the class of PyG batches; ``Data`` or ``HeteroData`` if None.
    """

    def __init__(
        self,
        store: FeatureStore,
        graph: TypedGraph,
        reading: Reading,
        aggregates: Mapping[Group, Mapping[str, Tensor]],
        custom_cls: Any = None,
    ) -> None:
        self.store, self._groups = store, AttributeGroups(store, graph)
        self.reading, self.aggregates = reading, aggregates
        self.custom_cls = custom_cls

    def batch(self, out: SamplerOutput | HeteroSamplerOutput, gather: Gatherer) -> Data | HeteroData:
        """Makes a PyG batch; see `Source`."""
        if isinstance(out, HeteroSamplerOutput):
            return filter_hetero_store(self.store, self._groups, out, gather, self.custom_cls)
        return filter_store(self.store, self._groups, out, gather, self.custom_cls)

    def block(self, ids: Mapping[Group, Tensor], gather: Gatherer) -> dict[Group, dict[str, Tensor]]:
        """Copies rows; see `Source`. All of them come in one request."""
        blocks = read_store(self.store, self._groups, ids, gather, self.reading.attributes)
        for group in self.aggregates.keys() & ids.keys():
            tables = self.aggregates[group]
            blocks[group].update({name: gather(table, ids[group]) for name, table in tables.items()})
        return blocks

    def tables(self, num_nodes: Mapping[Group, int]) -> None:  # noqa: ARG002
        """Returns None: a store answers requests and shows no table."""
        if self.reading.features is Features.IN_PLACE:
            raise ValueError("a feature store hands out copies; use features='auto' or 'copy', or a Data")
        attrs = self.store.get_all_tensor_attrs()
        self.reading.chosen(dict.fromkeys(attr.attr_name for attr in attrs))
