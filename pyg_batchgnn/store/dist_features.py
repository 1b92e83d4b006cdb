"""Attributes that are spread over ranks, as a PyG `FeatureStore`."""

from __future__ import annotations

import copy
import functools
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import torch
from torch import Tensor
from torch_geometric.data import FeatureStore, TensorAttr

from pyg_batchgnn import ops
from pyg_batchgnn.comm import Communicator, Field, Header, MessageKind
from pyg_batchgnn.disk import ReadCounters
from pyg_batchgnn.partition import Part, PartitionBook, digest, with_files
from pyg_batchgnn.store.directory import edge_targets, internal_ids
from pyg_batchgnn.store.pyg import group_of
from pyg_batchgnn.store.row_reader import RowReader, write_rows
from pyg_batchgnn.store.shard import Columns, LocalShard, RowRequest, shard_of, share_shard
from pyg_batchgnn.types import EDGES, HOMOGENEOUS, Group, Schema


class DistFeatureStore(FeatureStore):
    """The attributes of a graph over ranks, as a PyG `FeatureStore`.

    >>> store = DistFeatureStore(part, comm)
    >>> store.get_tensor(group_name=None, attr_name="x", index=torch.tensor([7, 3])).shape
    torch.Size([2, 64])

    A rank holds the attributes of its nodes (features, labels, masks of the splits) and of their
    in-edges. Making a store is collective, and so are `get_tensor`, `multi_get_tensor` and
    `put_tensor`: every rank calls them in the same order for the same attributes, with any ids,
    maybe none. Ids are the user's: original node ids, positions in the input edge list. PyG's name
    of a group is the node type or the relation; in a homogeneous graph it is None for nodes and
    `EDGE_TYPE` for edges.

    Args:
        part: this rank's part, of as many parts as there are ranks.
        comm: the communicator of all ranks.
        floats: the dtype in which floating-point attributes are held and sent, for instance
            torch.bfloat16, which halves their bytes; None for their own. int8-quantised features
            stay quantised and are decoded into it.
        share: True puts this rank's tables into memory in which the ranks of a host read each
            other's rows.
        memory_budget: bytes, or a text such as "2GiB", to hold this rank's tables that are mapped
            from files (`load_partition`), the smallest first; None holds all. Rows of the others
            are read past the page cache, by this rank for itself and other ranks, with ``share`` by
            every rank of the host, which must see the file; they cannot be written to. All ranks or
            none give a budget.
    """

    #: By this a loader knows a graph over ranks, without importing this file.
    is_partitioned = True

    def __init__(
        self,
        part: Part,
        comm: Communicator,
        *,
        floats: torch.dtype | None = None,
        share: bool = True,
        memory_budget: int | str | None = None,
    ) -> None:
        super().__init__()
        ops.check_type("part", part, Part, "make it with partition or load_partition")
        part.check_rank(comm)
        if floats is not None and not (isinstance(floats, torch.dtype) and floats.is_floating_point):
            raise TypeError(f"floats must be a floating-point type such as torch.bfloat16, got {floats}")
        ops.check_type("share", share, bool, "give True or False")
        budget = ops.check_budget(memory_budget)
        tables = [table for by_name in part.attributes.values() for table in by_name.values()]
        others = [one for one in tables if one.is_floating_point() and one.dtype != floats]
        is_converted = floats is not None and not all(isinstance(one, ops.QuantizedTensor) for one in others)
        if budget is not None and is_converted:
            raise ValueError(
                f"floats={floats} converts tables in memory, whatever the memory_budget; save the partition "
                f"with attributes of that type"
            )
        own = shard_of(part, floats)
        described = {
            f"{_named(group)} attributes": {
                name: f"{table.dtype} {list(table.shape[1:])} in {ops.as_stored(table).dtype}"
                for name, table in sorted(tables.items())
            }
            for group, tables in own.attributes.items()
        }
        comm.check_agreement(
            {
                "partition book": part.book.digest,
                **described,
                "scales and offsets": sorted(
                    [str(group), name, digest(table.decoding)]
                    for group, tables in own.attributes.items()
                    for name, table in tables.items()
                    if isinstance(table, ops.QuantizedTensor)
                ),
                "share": share,
                "memory_budget given": budget is not None,
            }
        )
        self.part, self.comm = part, comm
        #: Attributes that lie on disk on some rank, by group and name.
        self._on_disk: set[tuple[str, str]] = set()
        if budget is not None:
            own = with_files(comm, lambda: own.on_disk(budget))
            left = {id(rows.table) for rows in own.disk}
            names = [
                [str(group), name]
                for group, by_name in own.attributes.items()
                for name, table in by_name.items()
                if id(table) in left
            ]
            self._on_disk = {(group, name) for found in comm.all_gather_json(names) for group, name in found}
        #: The shards that can be read here, by rank; this rank's own among them.
        self.readable: dict[int, LocalShard] = share_shard(own, comm) if share else {comm.rank: own}
        #: The calls of `put_tensor`, of this store and of all that were made from it.
        self._writes = [0]
        schema = part.schema
        #: The number of rows of each group, over all ranks.
        self.num_rows = dict(zip(schema.node_groups, part.book.sizes.sum(0).tolist(), strict=True))
        self.num_rows |= zip(schema.edge_groups, part.edge_counts, strict=True)

    @property
    def book(self) -> PartitionBook:
        """The partition book: the owner of each node."""
        return self.part.book

    @property
    def version(self) -> int:
        """The number of `put_tensor` calls on this store and all stores that share its tables, the
        same on every rank. Caches compare it."""
        return self._writes[0]

    @property
    def own(self) -> LocalShard:
        """This rank's rows; row i of a node attribute belongs to ``part.node[i]``."""
        return self.readable[self.comm.rank]

    @property
    def fields(self) -> dict[Group, dict[str, Field]]:
        """The dtype and the row shape of every attribute, by group and name."""
        return {
            group: {name: Field(table.dtype, tuple(table.shape[1:])) for name, table in tables.items()}
            for group, tables in self.own.attributes.items()
        }

    @property
    def disk_reads(self) -> ReadCounters:
        """The counts of this rank's reads from files since the store was made."""
        total = ReadCounters()
        for shard in self.readable.values():
            for rows in shard.disk:
                total.add(rows.counters)
        return total

    def reader(self, columns: Mapping[Group, Columns]) -> RowReader:
        """Makes a reader of rows by internal id. All ranks give the same attributes."""
        return RowReader(self.part, self.comm, self.readable, columns)

    def with_attribute(
        self, group: Group, name: str, rows: Mapping[int, Tensor], *, replaces: bool = False
    ) -> DistFeatureStore:
        """Returns a store with one more attribute, without a copy. ``rows``: [n, ...] for each rank
        in ``readable``, of the same dtype everywhere. ``replaces``: there may be one already."""
        if not replaces and name in self.own.attributes[group]:
            raise ValueError(f"the graph has a {_named(group)} attribute {name!r} already; rename it")
        other = copy.copy(self)
        other.readable = {
            rank: shard.with_attribute(group, name, rows[rank]) for rank, shard in self.readable.items()
        }
        other._on_disk = self._on_disk - {(str(group), name)}
        return other

    def get_all_tensor_attrs(self) -> list[TensorAttr]:
        """Returns all attributes, of nodes and of edges."""
        return [
            TensorAttr(group_name(group, self.part.schema), name)
            for group, tables in self.own.attributes.items()
            for name in tables
        ]

    def _get_tensor(self, attr: TensorAttr) -> Any:
        return self._multi_get_tensor([attr])[0]

    def _multi_get_tensor(self, attrs: list[TensorAttr]) -> list[Any]:
        """Reads attributes, with one look-up and one exchange for those with the same index."""
        alike = dict[Any, list[int]]()
        for at, attr in enumerate(attrs):
            self._table(attr)  # refuses what is not there before anything is exchanged
            alike.setdefault((id(attr.index), self._group(attr)), []).append(at)
        found: list[Any] = [None] * len(attrs)
        for places in alike.values():
            names = [str(attrs[at].attr_name) for at in places]
            rows = self.comm.run_job(functools.partial(self._read, names, attrs[places[0]]))
            for at, name in zip(places, names, strict=True):
                found[at] = rows[name]
        return found

    def _read(self, names: Sequence[str], attr: TensorAttr) -> dict[str, Tensor]:
        """Reads the attributes ``names`` of a group, at the index of ``attr``."""
        group = self._group(attr)
        unique, inverse = torch.unique(self._ids(attr), return_inverse=True)
        request = self._located(group, unique)
        order = torch.argsort(request.node, stable=True)
        reader = self.reader({group: Columns(names)})
        rows = reader.read({group: request.take(order)}, Header(MessageKind.FEATURES))
        place = torch.argsort(order)
        blocks = rows.blocks[group].attributes
        found = {name: ops.gather_rows(block, place[inverse].view(-1)) for name, block in blocks.items()}
        return {name: table.view((*inverse.shape, *table.shape[1:])) for name, table in found.items()}

    def _put_tensor(self, tensor: Any, attr: TensorAttr) -> bool:
        """Sends rows to their owners, who overwrite theirs. If several ranks give a row for the
        same id, the last one of the highest rank stays."""
        table, index, group = self._table(attr), self._ids(attr).view(-1), self._group(attr)
        if (str(group), str(attr.attr_name)) in self._on_disk:
            raise ValueError(
                f"{attr.attr_name!r} lies in files on some rank and cannot be written to; make the store "
                f"with a larger memory_budget, or with none"
            )
        if isinstance(table, ops.QuantizedTensor):
            raise ValueError(
                f"{attr.attr_name!r} is int8 codes, which are constant; write to the numbers, and quantise "
                f"them again"
            )
        rows = torch.as_tensor(tensor)
        if rows.shape != (index.numel(), *table.shape[1:]):
            raise ValueError(
                f"{attr.attr_name!r} needs rows of shape {[index.numel(), *table.shape[1:]]}, got "
                f"{list(rows.shape)}"
            )
        if rows.dtype != table.dtype and not (rows.is_floating_point() and table.is_floating_point()):
            raise TypeError(f"{attr.attr_name!r} is {table.dtype}, got {rows.dtype}; convert the rows")
        rows = rows.to(table.dtype)

        def job() -> None:
            request = self._located(group, index)
            write_rows(self.part, self.comm, self.own, group, str(attr.attr_name), request, rows)
            self._writes[0] += 1

        self.comm.run_job(job)
        return True

    def _remove_tensor(self, attr: TensorAttr) -> NoReturn:
        raise NotImplementedError(
            f"{attr.attr_name!r} cannot be removed from a partitioned graph; leave it out when partitioning, "
            f"or name the attributes that you want with the loader's attributes=[...]"
        )

    def _get_tensor_size(self, attr: TensorAttr) -> tuple[int, ...] | None:
        """The shape of the whole attribute over all ranks."""
        group = self._group(attr)
        table = self.own.attributes[group].get(str(attr.attr_name))
        return None if table is None else (self.num_rows[group], *table.shape[1:])

    def _table(self, attr: TensorAttr) -> Tensor:
        group = self._group(attr)
        tables = self.own.attributes[group]
        if attr.attr_name not in tables:
            raise KeyError(
                f"the graph has no {_named(group)} attribute {attr.attr_name!r} (it has: "
                f"{', '.join(sorted(tables)) or 'none'}); attributes are given when the graph is partitioned"
            )
        return tables[attr.attr_name]

    def _ids(self, attr: TensorAttr) -> Tensor:
        """Returns the index of an attribute as checked ids, int64 of its shape."""
        index, group, rows = attr.index, self._group(attr), self.num_rows[self._group(attr)]
        if index is None:
            raise ValueError(
                f"no rank holds all of {attr.attr_name!r}: give index=ids; this rank's own rows are in "
                f"store.own.attributes"
            )
        try:
            ids = torch.arange(*index.indices(rows)) if isinstance(index, slice) else torch.as_tensor(index)
        except (RuntimeError, TypeError, ValueError) as error:
            raise TypeError(
                f"index must be integer ids, a mask or a slice, not {index!r} ({error})"
            ) from None
        ops.check_dense("index", ids)
        if ids.dtype is torch.bool:
            if ids.shape != (rows,):
                raise IndexError(f"index is a mask {list(ids.shape)}, but there are {rows} rows; give ids")
            ids = ids.nonzero().view(-1)
        if ids.numel() and ids.dtype not in ops.INTEGERS:
            raise TypeError(f"index must be integer ids, got {ids.dtype}; use .long()")
        ids = ids.to(torch.int64).contiguous()
        ops.check_range("index", ids.view(-1), rows, "node ids" if group.is_node else "edge ids")
        return ids

    def _located(self, group: Group, ids: Tensor) -> RowRequest:
        """Looks up the user's ids [n] int64; returns their places, in this order. Collective."""
        schema = self.part.schema
        if group.is_node:
            return RowRequest(internal_ids(self.part, self.comm, ids, schema.node_groups.index(group)))
        number = schema.edge_groups.index(group)
        return RowRequest(edge_targets(self.part, self.comm, ids, number), ids)

    def _group(self, attr: TensorAttr) -> Group:
        """Returns the group of an attribute. Raises KeyError if the graph lacks it."""
        group = group_of(attr, self.part.schema)
        self.part.schema.type_of_rows(group)
        return group

    def __repr__(self) -> str:
        names = ", ".join(name for tables in self.own.attributes.values() for name in tables)
        return f"DistFeatureStore({self.book.num_nodes:,} nodes: {names}; {self.comm!r})"


def _named(group: Group) -> str:
    known = {*HOMOGENEOUS.node_groups, *HOMOGENEOUS.edge_groups}
    return group.kind.value if group in known else f"{group.kind.value} ({group})"


#: PyG's name of the edges of a homogeneous graph.
EDGE_TYPE = EDGES.name


def group_name(group: Group, schema: Schema = HOMOGENEOUS) -> Any:
    """Returns PyG's name of a group; the inverse of `group_of`."""
    return None if group.is_node and not schema.has_names else group.name
