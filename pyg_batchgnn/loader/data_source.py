"""The attributes of a ``Data`` or a ``HeteroData``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import get_worker_info
from torch_geometric.data import Data, HeteroData
from torch_geometric.sampler import HeteroSamplerOutput, SamplerOutput

from pyg_batchgnn.data import Group, Schema
from pyg_batchgnn.fetch import as_table, is_mapped
from pyg_batchgnn.loader.arguments import TOPOLOGY
from pyg_batchgnn.loader.contents import Contents
from pyg_batchgnn.loader.filter import filter_data, filter_hetero_data
from pyg_batchgnn.loader.gather import Gatherer
from pyg_batchgnn.loader.huge_pages import advise_tables
from pyg_batchgnn.loader.reading import Features, Reading
from pyg_batchgnn.loader.source import Tables


class DataSource:
    """The attributes of a ``Data`` or a ``HeteroData``; see `Source`.

    Args:
        data: the user's object.
        schema: the schema of its graph.
        reading: which attributes native batches carry, and where those lie.
        aggregates: tables that native batches carry as well, by group of nodes, with one row per
            node of the graph.
        layouts: the layouts that attributes may have.
        carries_lists: True if lists would go into batches; else they are left out.

    Raises:
        TypeError: an attribute is a list, or an array of objects or texts.
        ValueError: an attribute has another layout.
    """

    def __init__(
        self,
        data: Data | HeteroData,
        schema: Schema,
        reading: Reading,
        aggregates: Mapping[Group, Mapping[str, Tensor]],
        layouts: Sequence[torch.layout] = (torch.strided,),
        carries_lists: bool = False,
    ) -> None:
        self.data, self._schema = data, schema
        self.reading, self.aggregates = reading, aggregates
        self._mapped: dict[tuple[Group, str], tuple[int, bool]] = {}  # addresses; True for a file's
        self._seen: Contents | None = None
        self._wanted: dict[Group, dict[str, Any]] = {}
        self._tables: Tables | None = None
        self._refuse_what_is_no_table(carries_lists)
        self._refuse_other_layouts(layouts)
        advise_tables(value for wanted in self._wanted.values() for value in wanted.values())

    def batch(self, out: SamplerOutput | HeteroSamplerOutput, gather: Gatherer) -> Data | HeteroData:
        """Makes a PyG batch; see `Source`."""
        if isinstance(out, HeteroSamplerOutput):
            return filter_hetero_data(self.data, out, gather)
        return filter_data(self.data, out, gather)

    def block(self, ids: Mapping[Group, Tensor], gather: Gatherer) -> dict[Group, dict[str, Tensor]]:
        """Copies rows; see `Source`."""
        self._look()
        return {
            group: {name: gather(value, index) for name, value in self._wanted[group].items()}
            for group, index in ids.items()
        }

    def tables(self, num_nodes: Mapping[Group, int]) -> Tables | None:
        """Returns whole tables; see `Source`.

        A worker process copies: what it hands over travels through shared memory.
        """
        if self.reading.features is Features.COPY or get_worker_info() is not None:
            return None
        self._look()
        if self._tables is None:
            nodes = self._node_tables(num_nodes)
            self._tables = None if nodes is None else Tables(nodes, self._edge_tables())
        return self._tables

    def _look(self) -> None:
        """Finds out what is wanted if a script has changed the data."""
        now = Contents(self.data)
        if self._seen is not None and self._seen.is_same(now):
            return
        self._seen = self._tables = None
        self._wanted = self._find_wanted()
        self._seen = now

    def _node_tables(self, num_nodes: Mapping[Group, int]) -> dict[Group, dict[str, Tensor]] | None:
        tables: dict[Group, dict[str, Tensor]] = {}
        for group in self._schema.node_groups:
            tables[group] = {}
            for name, value in self._wanted[group].items():
                table = self._table(group, name, value, num_nodes[group])
                if table is None:
                    return None
                tables[group][name] = table
        return tables

    def _edge_tables(self) -> dict[Group, dict[str, Tensor]] | None:
        """Returns the tables of edges.

        As with nodes, one table that cannot be read in place lets all of them be copied.
        """
        tables: dict[Group, dict[str, Tensor]] = {}
        for group in self._schema.edge_groups:
            found = {name: as_table(value, 0) for name, value in self._wanted[group].items()}
            tables[group] = {name: one for name, one in found.items() if isinstance(one, Tensor)}
            mapped = (self._is_mapped((group, name), one) for name, one in tables[group].items())
            if len(tables[group]) < len(found) or (self.reading.features is Features.AUTO and any(mapped)):
                return None
        return tables

    def _refuse_what_is_no_table(self, carries_lists: bool) -> None:
        """Raises TypeError if an attribute has an entry per row that no batch can carry."""
        names, lists = self.reading.attributes, (list, tuple) if carries_lists else ()
        for group in (*self._schema.node_groups, *self._schema.edge_groups):
            store, kind = self._store_of(group), group.kind.value
            belongs = store.is_node_attr if group.is_node else store.is_edge_attr
            for name, value in store.items():
                if isinstance(value, np.ndarray) and value.dtype.kind not in "biufc":
                    found = f"an array of {value.dtype}"
                elif isinstance(value, lists):
                    found = f"a {type(value).__name__}"
                else:
                    continue
                if name in TOPOLOGY or (names is not None and name not in names) or not belongs(name):
                    continue
                place = "data" if isinstance(self.data, Data) else f"data[{group.name!r}]"
                raise TypeError(
                    f"the {kind} attribute {name!r} is {found} with an entry for each {kind}; batches carry "
                    f"tensors, and PyG's loaders fail at their first batch: make it a tensor of numbers, or "
                    f"keep it outside of the data (del {place}.{name}) and look entries up by the batch's "
                    f"{'n_id' if group.is_node else 'e_id'}"
                )

    def _store_of(self, group: Group) -> Any:
        return self.data._store if isinstance(self.data, Data) else _stores(self.data, group)[group.name]

    def _refuse_other_layouts(self, layouts: Sequence[torch.layout]) -> None:
        self._look()
        for group, wanted in self._wanted.items():
            for name, value in wanted.items():
                if isinstance(value, Tensor) and value.layout not in layouts:
                    raise ValueError(
                        f"the {group.kind.value} attribute {name!r} is {value.layout}, of which rows cannot "
                        f"be selected here; make it dense: data.{name} = data.{name}.to_dense()"
                    )

    def _table(self, group: Group, name: str, value: Any, num_nodes: int) -> Tensor | None:
        """Returns a table that can be read in place, or None if all are to be copied."""
        features = self.reading.features
        table = as_table(value, num_nodes)
        if features is Features.IN_PLACE and isinstance(table, str):
            raise ValueError(f"{name!r} cannot be read in place: {table}; or use features='copy'")
        if isinstance(table, str) or (features is Features.AUTO and self._is_mapped((group, name), table)):
            return None
        return table

    def _is_mapped(self, key: tuple[Group, str], table: Tensor) -> bool:
        """Asks the system only if the table is another one than before."""
        address, mapped = self._mapped.get(key, (None, False))
        if address != table.data_ptr():
            mapped = is_mapped(table)
            self._mapped[key] = (table.data_ptr(), mapped)
        return mapped

    def _find_wanted(self) -> dict[Group, dict[str, Any]]:
        groups = (*self._schema.node_groups, *self._schema.edge_groups)
        held = {group: self._held(group) for group in groups}
        chosen = set(self.reading.chosen(dict.fromkeys(name for named in held.values() for name in named)))
        wanted = {
            group: {name: value for name, value in named.items() if name in chosen}
            for group, named in held.items()
        }
        for group, tables in self.aggregates.items():
            wanted[group].update(tables)
        return wanted

    def _held(self, group: Group) -> dict[str, Any]:
        """Returns the attributes of one group that have one row per node or edge."""
        data, store = self.data, self._store_of(group)
        belongs = store.is_node_attr if group.is_node else store.is_edge_attr
        return {
            key: value
            for key, value in store.items()
            if isinstance(value, (Tensor, np.ndarray))
            and key not in TOPOLOGY
            and belongs(key)
            and data.__cat_dim__(key, value, store) == 0
        }


def _stores(data: HeteroData, group: Group) -> Mapping[Any, Any]:
    """Returns the stores of all types or relations by name.

    PyG takes longer to look one up than to read it.
    """
    stores: Mapping[Any, Any] = data._node_store_dict if group.is_node else data._edge_store_dict
    return stores
