"""Attributes that are spread over ranks, as a PyG `FeatureStore`."""

from __future__ import annotations

import copy
import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import FeatureStore, TensorAttr

from pyg_batchgnn import ops
from pyg_batchgnn.comm import Communicator, Field, Header, MessageKind
from pyg_batchgnn.partition import Part, PartitionBook
from pyg_batchgnn.store.directory import edge_targets, internal_ids
from pyg_batchgnn.store.dist_graph import EDGE_TYPE
from pyg_batchgnn.store.holding import Holding, holding_of, share_holding
from pyg_batchgnn.store.rows import RowReader, Rows, Wanted
from pyg_batchgnn.store.write import write_rows


class DistFeatureStore(FeatureStore):
    """The attributes of a partitioned graph: of nodes (features, labels, masks of the splits) with their
    owners, of edges with the owners of their destinations.

    Making one is collective. So are `get_tensor`, `multi_get_tensor` and `put_tensor`: every rank calls them,
    in the same order, for the same attributes, and with ids of its own choice, which may be none. Ids are
    those of the user: original node ids, positions in the input edge list.

    Args:
        part: this rank's part, of as many parts as there are ranks.
        comm: of all ranks, the graph store's.
        floats: element type in which floating-point attributes are held and travel, for instance
            torch.bfloat16, which halves them; None leaves them as they are.
        share: whether the ranks of a host read each other's rows in memory that they share. This rank's
            tables are copied there.

    Attributes named ``x`` and so on have the group name None; those of edges have `EDGE_TYPE`.
    """

    def __init__(
        self, part: Part, comm: Communicator, *, floats: torch.dtype | None = None, share: bool = True
    ) -> None:
        super().__init__()
        part.check_rank(comm)
        if floats is not None and not floats.is_floating_point:
            raise TypeError(f"floats must be a floating-point type such as torch.bfloat16, got {floats}")
        own = holding_of(part, floats)
        comm.check_agreement(
            {
                "partition book": ops.digest_text(ops.minibatch_key(part.book.offsets)),
                "node attributes": _described(own.tables),
                "edge attributes": _described(own.edge_tables),
                "share": share,
            }
        )
        self.part, self.comm = part, comm
        #: What can be read here without asking anybody, by rank.
        self.held: dict[int, Holding] = share_holding(own, comm) if share else {comm.rank: own}
        #: How often rows were overwritten, by `put_tensor`; the same on every rank. Caches look at it.
        self.version = 0

    @property
    def book(self) -> PartitionBook:
        """Who owns which node."""
        return self.part.book

    @property
    def own(self) -> Holding:
        """This rank's rows; row i is the node ``part.node[i]``."""
        return self.held[self.comm.rank]

    @property
    def fields(self) -> dict[str, Field]:
        """Element type and shape of every node attribute."""
        return _fields(self.own.tables)

    @property
    def edge_fields(self) -> dict[str, Field]:
        """Element type and shape of every edge attribute."""
        return _fields(self.own.edge_tables)

    def reader(
        self, names: Sequence[str], edge_names: Sequence[str] = (), threads: int | None = None
    ) -> RowReader:
        """Reads rows by internal id, the same attributes on every rank."""
        return RowReader(self.book, self.part.num_edges, self.comm, self.held, names, edge_names, threads)

    def beside(self, name: str, rows: Mapping[int, Tensor]) -> DistFeatureStore:
        """The same store with one more node attribute, which is not copied.

        Args:
            name: of the attribute.
            rows: by rank, for all ranks in ``held``: [n, ...] a row a node of the rank, of the same type
                everywhere.
        """
        if name in self.own.tables:
            raise ValueError(f"the graph has a node attribute {name!r} already; rename it")
        other = copy.copy(self)
        other.held = {
            rank: dataclasses.replace(holding, tables={**holding.tables, name: rows[rank]})
            for rank, holding in self.held.items()
        }
        return other

    # PyG's interface ###############################################################################

    def get_all_tensor_attrs(self) -> list[TensorAttr]:
        """All attributes, of nodes and of edges."""
        nodes = [TensorAttr(None, name) for name in self.own.tables]
        return nodes + [TensorAttr(EDGE_TYPE, name) for name in self.own.edge_tables]

    def _get_tensor(self, attr: TensorAttr) -> Any:
        return self._multi_get_tensor([attr])[0]

    def _multi_get_tensor(self, attrs: list[TensorAttr]) -> list[Any]:
        """One look-up and one exchange for all attributes with the same index."""
        for attr in attrs:
            self._table(attr)  # refuses what is not there before anything is exchanged
        found: list[Any] = [None] * len(attrs)
        left = list(range(len(attrs)))
        while left:
            first = attrs[left[0]]
            group = [at for at in left if _same_ids(attrs[at], first)]
            names = [attrs[at].attr_name for at in group]
            rows = self.comm.run_job(functools.partial(self._read, names, first))
            for at in group:
                found[at] = rows[attrs[at].attr_name]
            left = [at for at in left if at not in group]
        return found

    def _read(self, names: Sequence[Any], attr: TensorAttr) -> dict[str, Tensor]:
        """Rows of the attribute's index, of the given attributes of its group."""
        index, of_edges = self._ids(attr), isinstance(attr.group_name, tuple)
        header = Header(MessageKind.FEATURES)
        unique, inverse = torch.unique(index, return_inverse=True)
        if of_edges:
            target = edge_targets(self.part, self.comm, unique)
            order = torch.argsort(target, stable=True)
            wanted = Wanted.edges(unique[order], target[order])
            rows: Rows = self.reader([], names).read(wanted, header)
        else:
            internal = internal_ids(self.part, self.comm, unique)
            order = torch.argsort(internal)
            rows = self.reader(names).read(Wanted.nodes(internal[order]), header)
        place = torch.empty_like(order)
        place[order] = torch.arange(order.numel())
        blocks = rows.edge if of_edges else rows.node
        return {name: ops.gather_rows(block, place[inverse]) for name, block in blocks.items()}

    def _put_tensor(self, tensor: Any, attr: TensorAttr) -> bool:
        """Overwrites rows where they are held; where ranks give rows for the same id that of the highest
        rank stays, and of its rows the last."""
        table, index = self._table(attr), self._ids(attr)
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
            edges = isinstance(attr.group_name, tuple)
            node = (edge_targets if edges else internal_ids)(self.part, self.comm, index)
            write_rows(self.part, self.comm, self.own, table, node, index if edges else None, rows)
            self.version += 1

        self.comm.run_job(job)
        return True

    def _remove_tensor(self, attr: TensorAttr) -> NoReturn:
        raise NotImplementedError(
            f"{attr.attr_name!r} cannot be removed from a partitioned graph; leave it out when partitioning, "
            f"or name the attributes that are wanted with the loader's attributes=[...]"
        )

    def _get_tensor_size(self, attr: TensorAttr) -> tuple[int, ...] | None:
        """Of the whole attribute, all ranks together."""
        table = self._tables(attr).get(str(attr.attr_name))
        if table is None:
            return None
        edges = isinstance(attr.group_name, tuple)
        return (self.part.num_edges if edges else self.book.num_nodes, *table.shape[1:])

    def _tables(self, attr: TensorAttr) -> dict[str, Tensor]:
        return self.own.edge_tables if isinstance(attr.group_name, tuple) else self.own.tables

    def _table(self, attr: TensorAttr) -> Tensor:
        """This rank's rows of an attribute."""
        tables = self._tables(attr)
        if attr.attr_name not in tables:
            kind = "edge" if isinstance(attr.group_name, tuple) else "node"
            raise KeyError(
                f"the graph has no {kind} attribute {attr.attr_name!r} (held: {sorted(tables) or 'none'}); "
                f"attributes are given when the graph is partitioned"
            )
        return tables[attr.attr_name]

    def _ids(self, attr: TensorAttr) -> Tensor:
        """The index as a vector of ids that exist."""
        edges = isinstance(attr.group_name, tuple)
        size = self.part.num_edges if edges else self.book.num_nodes
        index = attr.index
        if index is None:
            raise ValueError(
                f"no rank holds all of {attr.attr_name!r}: give index=ids; this rank's own rows are "
                f"store.own.{'edge_tables' if edges else 'tables'}[{attr.attr_name!r}]"
            )
        if isinstance(index, slice):
            index = torch.arange(*index.indices(size))
        ids = torch.from_numpy(index) if isinstance(index, np.ndarray) else torch.as_tensor(index)
        if ids.dtype is torch.bool:
            ids = ids.nonzero().view(-1)
        if ids.numel() and ids.dtype not in ops.INTEGERS:
            raise TypeError(f"index must be integer ids, got {ids.dtype}; use .long()")
        ids = ids.to(torch.int64).contiguous().view(-1)
        ops.check_range("index", ids, size, "edge ids" if edges else "node ids")
        return ids

    def __repr__(self) -> str:
        names = ", ".join([*self.own.tables, *self.own.edge_tables])
        return f"DistFeatureStore({self.book.num_nodes:,} nodes: {names}; {self.comm!r})"


def _same_ids(one: TensorAttr, other: TensorAttr) -> bool:
    return one.index is other.index and isinstance(one.group_name, tuple) == isinstance(
        other.group_name, tuple
    )


def _fields(tables: dict[str, Tensor]) -> dict[str, Field]:
    return {name: Field(table.dtype, tuple(table.shape[1:])) for name, table in tables.items()}


def _described(tables: dict[str, Tensor]) -> dict[str, str]:
    return {name: f"{table.dtype} {list(table.shape[1:])}" for name, table in sorted(tables.items())}
