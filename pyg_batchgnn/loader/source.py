"""The sources of attributes in one process, and the fetcher that reads them."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from operator import is_
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import get_worker_info
from torch_geometric.data import Data, FeatureStore, HeteroData
from torch_geometric.sampler import HeteroSamplerOutput, SamplerOutput

from pyg_batchgnn import ops
from pyg_batchgnn.disk import are_mapped, is_mapped
from pyg_batchgnn.fetch import BlockFetcher, Fetched, FetchGroup, InPlaceFetcher, as_table
from pyg_batchgnn.loader.filter import Gatherer, filter_data, filter_hetero_data, filter_store, read_store
from pyg_batchgnn.loader.options import TOPOLOGY, Export, Features, LoaderOptions
from pyg_batchgnn.sample import (
    AttributeRows,
    Minibatch,
    MinibatchPlan,
    Placement,
    SampledMinibatch,
    SamplingPlan,
)
from pyg_batchgnn.store import AttributeGroups, TypedGraph
from pyg_batchgnn.types import Group, Schema

if TYPE_CHECKING:
    from pyg_batchgnn.cache import AggregationCache
    from pyg_batchgnn.loader.on_disk import MappedTables


#: The ids of the edges of each minibatch, and the rows of their attributes, by relation.
_EdgeIds: TypeAlias = Mapping[Group, list[Tensor]]
_EdgeRows: TypeAlias = dict[Group, list[AttributeRows]]


@dataclass(frozen=True, eq=False)
class Tables:
    """Attributes that are read where they lie, by group and name."""

    nodes: Mapping[Group, Mapping[str, Tensor]]  # those of nodes, one row per node of the graph
    #: those of edges, one row per edge of the graph; None if they are to be copied
    edges: Mapping[Group, Mapping[str, Tensor]] | None


class SourceFetcher:
    """Reads attributes in place if possible, else copies them into a block."""

    def __init__(self, source: Source, graph: TypedGraph) -> None:
        self._source, self._num_nodes, self._counts = source, graph.rows_by_group, graph.num_nodes
        source.tables(self._num_nodes)  # refuses what cannot be read before anything is sampled
        self._last: tuple[Tables, bool, InPlaceFetcher] | None = None

    def fetch(self, group: FetchGroup) -> Fetched:
        tables = self._source.tables(self._num_nodes)
        if tables is None:
            return self._copied(group, _edge_ids(group))
        reached = (one for minibatch in group.minibatches for one in minibatch.reached_edges.values())
        have_ids = all(one.edge is not None for one in reached)
        fetched = self._in_place(tables, have_ids).fetch(group)
        if tables.edges is not None or not have_ids:
            return fetched
        edges = _edge_ids(group)
        found = self._read(_together(edges))
        copied = sum(table.nbytes for named in found.values() for table in named.values())
        return _joined(replace(fetched, bytes=fetched.bytes + copied), _split(found, edges))

    def _in_place(self, tables: Tables, have_ids: bool) -> InPlaceFetcher:
        """Returns a fetcher that reads these tables in place, the last one if they are the same."""
        if self._last is None or self._last[0] is not tables or self._last[1] != have_ids:
            edges = (tables.edges or {}) if have_ids else {}
            held = {group: named for group, named in edges.items() if named}
            self._last = tables, have_ids, InPlaceFetcher({**tables.nodes, **held})
        return self._last[2]

    def _copied(self, group: FetchGroup, edges: _EdgeIds) -> Fetched:
        found: dict[Group, dict[str, Tensor]] = {}

        def read(nodes: Mapping[Group, Tensor]) -> dict[Group, dict[str, Tensor]]:
            found.update(self._read({**nodes, **_together(edges)}))
            return found

        return _joined(BlockFetcher(read, self._counts).fetch(group), _split(found, edges))

    def _read(self, ids: Mapping[Group, Tensor]) -> dict[Group, dict[str, Tensor]]:
        return self._source.block(ids, self._source.gatherer(None))


def _edge_ids(group: FetchGroup) -> _EdgeIds:
    """Returns the edge ids of each minibatch by relation; nothing if they have none."""
    if not group.minibatches:
        return {}
    found = {}
    for number, name in enumerate(group.minibatches[0].schema.edge_groups):
        ids = [minibatch.edges[number].edge for minibatch in group.minibatches]
        known = [one for one in ids if one is not None]
        if len(known) == len(ids):
            found[name] = known
    return found


def _together(edges: _EdgeIds) -> dict[Group, Tensor]:
    return {name: torch.cat(ids) for name, ids in edges.items()}


def _split(found: Mapping[Group, Mapping[str, Tensor]], edges: _EdgeIds) -> _EdgeRows:
    rows: _EdgeRows = {}
    for group, ids in edges.items():
        pieces = {name: table.split(list(map(len, ids))) for name, table in found[group].items()}
        rows[group] = [
            AttributeRows({name: own[at] for name, own in pieces.items()}, None, Placement.MINIBATCH)
            for at in range(len(ids))
        ]
    return rows


def _joined(fetched: Fetched, edges: _EdgeRows) -> Fetched:
    held = {group: rows for group, rows in edges.items() if rows[0].tables}
    if not held:
        return fetched
    ready = [
        replace(
            minibatch,
            attributes={**minibatch.attributes, **{group: rows[at] for group, rows in held.items()}},
        )
        for at, minibatch in enumerate(fetched.minibatches)
    ]
    return replace(fetched, minibatches=ready)


class DataSource:
    """The attributes of a ``Data`` or a ``HeteroData``."""

    def __init__(
        self,
        data: Data | HeteroData,
        schema: Schema,
        options: LoaderOptions,
        aggregates: Mapping[Group, Mapping[str, Tensor]],
        budget: Callable[[], int] | None = None,
    ) -> None:
        self.data, self._schema = data, schema
        self.options, self.aggregates = options, aggregates
        self._is_pyg = options.export is Export.PYG
        self._mapped: dict[tuple[Group, str], tuple[int, bool]] = {}  # addresses; True for a file's
        self._seen: Contents | None = None
        self._wanted: dict[Group, dict[str, Any]] = {}
        self._tables: Tables | None = None
        self._refuse_what_is_no_table()
        self._refuse_other_layouts()
        self.mapped = None if budget is None else _mapped_tables(self._wanted, budget)
        advise_tables(value for wanted in self._wanted.values() for value in wanted.values())

    def batch(self, out: SamplerOutput | HeteroSamplerOutput, gather: Gatherer) -> Data | HeteroData:
        if isinstance(out, HeteroSamplerOutput):
            return filter_hetero_data(self.data, out, gather)
        return filter_data(self.data, out, gather)

    def gatherer(self, minibatch: SampledMinibatch | None) -> Gatherer:
        if self.mapped is None or get_worker_info() is not None:
            return Gatherer()
        from pyg_batchgnn.loader.on_disk import BlockReader

        return Gatherer(BlockReader(self.mapped, minibatch if isinstance(minibatch, Minibatch) else None))

    def block(self, ids: Mapping[Group, Tensor], gather: Gatherer) -> dict[Group, dict[str, Tensor]]:
        """Gathers rows. int8 codes of nodes stay codes; codes of edges are decoded."""
        self._look()
        return {
            group: {
                name: gather.narrow(value, index) if group.is_node else gather(value, index)
                for name, value in self._wanted[group].items()
            }
            for group, index in ids.items()
        }

    def attributes(self) -> Mapping[Group, Mapping[str, Any]]:
        """Returns the wanted attributes by group, the same object while the data is the same."""
        self._look()
        return self._wanted

    def held(self, value: Any) -> Any:
        """Returns the copy of an attribute in memory, else the attribute itself."""
        return value if self.mapped is None else self.mapped.held(value)

    def beside(self) -> dict[Group, dict[str, Tensor]]:
        """Returns the tables in memory of groups that also have tables in files."""
        self._look()
        found: dict[Group, dict[str, Tensor]] = {}
        for group in self._on_disk:
            found[group] = {
                name: self._in_memory(name, value)
                for name, value in self._wanted[group].items()
                if self.mapped is None or not self.mapped.places(value)
            }
        return found

    def others(self, minibatch: SampledMinibatch) -> dict[Group, AttributeRows]:
        """Returns attributes by group (type or relation) where none of its tables is in a file."""
        self._look()
        schema, found = self._schema, {}
        for groups, ids in (
            (schema.node_groups, [one.node for one in minibatch.nodes]),
            (schema.edge_groups, [one.edge for one in minibatch.edges]),
        ):
            for group, index in zip(groups, ids, strict=True):
                if index is None or group in self._on_disk:
                    continue
                tables = {name: self._in_memory(name, value) for name, value in self._wanted[group].items()}
                if tables or group.is_node:
                    found[group] = AttributeRows.in_place(tables, index)
        return found

    @property
    def _on_disk(self) -> Collection[Group]:
        return () if self.mapped is None or self.mapped.rows is None else self.mapped.rows.tables

    def _in_memory(self, name: str, value: Any) -> Tensor:
        table = as_table(self.held(value), 0)
        if isinstance(table, str):
            raise ValueError(
                f"{name!r} cannot lie beside attributes that are read from files: {table}; make it a dense "
                f"tensor in memory"
            )
        return table

    def row_bytes(self, group: Group) -> int:
        """Returns the bytes of a node's or edge's attributes, as they are stored."""
        self._look()
        return sum(int(value.nbytes) // max(1, len(value)) for value in self._wanted[group].values())

    def batch_bytes(self, group: Group) -> int:
        """Returns the bytes of a node's or edge's attributes in a PyG batch, int8 codes decoded."""
        tables = [value for value in self._wanted[group].values() if isinstance(value, ops.QuantizedTensor)]
        return self.row_bytes(group) + sum(map(bytes_more, tables))

    def tables(self, num_nodes: Mapping[Group, int]) -> Tables | None:
        """Returns the tables to be read in place; None copies rows, as worker processes must, whose
        batches travel through shared memory."""
        if self.options.features is Features.COPY or get_worker_info() is not None:
            return None
        self._look()
        if self._tables is None:
            nodes = self._node_tables(num_nodes)
            self._tables = None if nodes is None else Tables(nodes, self._edge_tables())
        return self._tables

    def _look(self) -> None:
        """Finds the wanted attributes again if a script has changed the data."""
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
        """Returns the tables of edges. If one cannot be read in place, all of them are copied."""
        tables: dict[Group, dict[str, Tensor]] = {}
        for group in self._schema.edge_groups:
            found = {name: as_table(self.held(value), 0) for name, value in self._wanted[group].items()}
            tables[group] = {name: one for name, one in found.items() if isinstance(one, Tensor)}
            mapped = (self._is_mapped((group, name), one) for name, one in tables[group].items())
            if len(tables[group]) < len(found) or (self.options.features is Features.AUTO and any(mapped)):
                return None
        return tables

    def _refuse_what_is_no_table(self) -> None:
        """Raises TypeError for an attribute with an entry per row that batches cannot carry. Lists
        are left out of native batches."""
        names, lists = self.options.attributes, (list, tuple) if self._is_pyg else ()
        for group in (*self._schema.node_groups, *self._schema.edge_groups):
            store, kind = self._store_of(group), group.kind.value
            belongs = store.is_node_attr if group.is_node else store.is_edge_attr
            for name, value in store.items():
                if isinstance(value, np.ndarray) and (
                    value.dtype.kind not in "biufc" or not value.dtype.isnative
                ):
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
        if isinstance(self.data, Data):
            return self.data._store
        stores: Any = self.data._node_store_dict if group.is_node else self.data._edge_store_dict
        return stores[group.name]  # PyG is slow to look one up by name

    def _refuse_other_layouts(self) -> None:
        # Native layers read dense rows.
        layouts = (torch.strided, torch.sparse_coo) if self._is_pyg else (torch.strided,)
        self._look()
        for group, wanted in self._wanted.items():
            for name, value in wanted.items():
                if isinstance(value, Tensor) and value.layout not in layouts:
                    raise ValueError(
                        f"the {group.kind.value} attribute {name!r} is {value.layout}, of which rows cannot "
                        f"be selected here; make it dense: data.{name} = data.{name}.to_dense()"
                    )

    def _table(self, group: Group, name: str, value: Any, num_nodes: int) -> Tensor | None:
        """Returns an attribute as a table to be read in place; None if it must be copied."""
        features = self.options.features
        table = as_table(self.held(value), num_nodes)
        if features is Features.IN_PLACE and isinstance(table, str):
            raise ValueError(f"{name!r} cannot be read in place: {table}; or use features='copy'")
        if isinstance(table, str) or (features is Features.AUTO and self._is_mapped((group, name), table)):
            return None
        return table

    def _is_mapped(self, key: tuple[Group, str], table: Tensor) -> bool:
        address, mapped = self._mapped.get(key, (None, False))
        rows = ops.as_stored(table)
        if address != rows.data_ptr():
            mapped = is_mapped(rows)
            self._mapped[key] = (rows.data_ptr(), mapped)
        return mapped

    def _find_wanted(self) -> dict[Group, dict[str, Any]]:
        groups = (*self._schema.node_groups, *self._schema.edge_groups)
        held = {group: self._held(group) for group in groups}
        chosen = set(self.options.chosen(dict.fromkeys(name for named in held.values() for name in named)))
        wanted = {
            group: {name: value for name, value in named.items() if name in chosen}
            for group, named in held.items()
        }
        for group, tables in self.aggregates.items():
            wanted[group].update(tables)
        return wanted

    def _held(self, group: Group) -> dict[str, Any]:
        """Returns the attributes of one group that have a row per node or edge."""
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


def bytes_more(table: Tensor) -> int:
    """Returns how many bytes more a decoded row takes than its int8 codes; 0 for other tables."""
    return math.prod(table.shape[1:]) * (table.dtype.itemsize - ops.as_stored(table).dtype.itemsize)


def _mapped_tables(
    wanted: Mapping[Group, Mapping[str, Any]], budget: Callable[[], int]
) -> MappedTables | None:
    values = [value for named in wanted.values() for value in named.values()]
    values = [ops.as_stored(value) for value in values]
    tables = [value for value in values if isinstance(value, Tensor) and value.device.type == "cpu"]
    dense = [table for table in tables if table.layout is torch.strided]
    if not any(are_mapped(dense)) and not any(isinstance(value, np.ndarray) for value in values):
        return None
    from pyg_batchgnn.loader.on_disk import MappedTables

    return MappedTables.of(wanted, budget())


class StoreSource:
    """The attributes of a feature store."""

    def __init__(
        self,
        store: FeatureStore,
        graph: TypedGraph,
        options: LoaderOptions,
        aggregates: Mapping[Group, Mapping[str, Tensor]],
        custom_cls: Any = None,
    ) -> None:
        self.store, self._groups = store, AttributeGroups(store, graph)
        self.options, self.aggregates = options, aggregates
        self.custom_cls = custom_cls

    def batch(self, out: SamplerOutput | HeteroSamplerOutput, gather: Gatherer) -> Data | HeteroData:
        return filter_store(self.store, self._groups, out, gather, self.custom_cls)

    def gatherer(self, minibatch: SampledMinibatch | None) -> Gatherer:  # noqa: ARG002
        return Gatherer()

    def block(self, ids: Mapping[Group, Tensor], gather: Gatherer) -> dict[Group, dict[str, Tensor]]:
        blocks = read_store(self.store, self._groups, ids, gather, self.options.attributes)
        for group in self.aggregates.keys() & ids.keys():
            tables = self.aggregates[group]
            blocks[group].update({name: gather(table, ids[group]) for name, table in tables.items()})
        return blocks

    def tables(self, num_nodes: Mapping[Group, int]) -> None:  # noqa: ARG002
        """Returns None: a feature store has no tables to read in place."""
        if self.options.features is Features.IN_PLACE:
            raise ValueError("a feature store hands out copies; use features='auto' or 'copy', or a Data")
        attrs = self.store.get_all_tensor_attrs()
        self.options.chosen(dict.fromkeys(attr.attr_name for attr in attrs))


#: Reads attributes from the user's object when a batch is made.
Source: TypeAlias = DataSource | StoreSource


_ANEW = "make one of it: AggregationCache.build(data, kind)"


def cached_tables(
    cache: AggregationCache, data: Any, graph: TypedGraph
) -> Mapping[Group, Mapping[str, Tensor]]:
    """Returns the aggregates of all nodes by group and name, in one process. Raises ValueError if
    the cache was made of other data."""
    if cache.store is not None:
        raise ValueError(f"cache holds one rank's aggregates, but data is a graph held whole; {_ANEW}")
    _check_schema(graph.schema)
    nodes = graph.schema.node_groups[0]
    if isinstance(data, (Data, HeteroData)):
        store = data if isinstance(data, Data) else data[nodes.name]
        if graph.num_nodes[0] != len(cache.rows):
            raise ValueError(
                f"cache is of {len(cache.rows)} nodes of a graph, but data has {graph.num_nodes[0]}; {_ANEW}"
            )
        cache.check_data(data, graph)
        if cache.attribute in store:
            raise ValueError(f"data has an attribute {cache.attribute!r} already; rename it")
    return {nodes: {cache.attribute: cache.rows}}


def without_cached_hop(plan: MinibatchPlan, schema: Schema) -> SamplingPlan:
    """Returns a plan without its last hop, which cached aggregates replace. Raises ValueError if
    the graph has several types or relations, or the plan fewer than two hops."""
    _check_schema(schema)
    assert isinstance(plan, SamplingPlan)
    return plan.without_last_hop()


def _check_schema(schema: Schema) -> None:
    if not schema.is_plain:
        raise ValueError(
            f"an aggregation cache is of a graph with one node type and one relation, but data has "
            f"{list(schema.relations)}; {_ANEW}"
        )


class Contents:
    """The names and objects of all attributes of a ``Data`` or ``HeteroData`` at one moment, to
    notice changes. Writing into a tensor is not one."""

    def __init__(self, data: Data | HeteroData) -> None:
        # The mappings themselves: a call of a method per store would take longer than all the rest.
        held = [store._mapping for store in data.stores]
        self._names = [name for one in held for name in one]
        self._objects: list[Any] = [*held, *(value for one in held for value in one.values())]

    def is_same(self, other: Contents) -> bool:
        one, another = self._objects, other._objects
        return len(one) == len(another) and self._names == other._names and all(map(is_, one, another))


#: In bytes. A TLB holds most pages of a smaller table.
_LEAST = 16 << 20


def advise_tables(values: Iterable[Any]) -> None:
    """Asks for huge pages under the larger dense tables of the user. Values and addresses do not
    change. Mapped files are left alone, since this would read them."""
    found = [as_table(ops.as_stored(value), 0) for value in values]
    tables = [table for table in found if isinstance(table, Tensor) and table.nbytes >= _LEAST]
    for table, in_file in zip(tables, are_mapped(tables), strict=True):
        if not in_file:
            ops.advise_huge_pages(table)
