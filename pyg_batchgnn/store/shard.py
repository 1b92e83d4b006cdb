"""A rank's rows of all attributes, and those of the other ranks of its host."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from pyg_batchgnn.comm import Communicator
from pyg_batchgnn.data import Group
from pyg_batchgnn.partition import Part, share_arrays
from pyg_batchgnn.store.row_format import RowBlock
from pyg_batchgnn.store.row_index import EdgeIndex, NodeIndex, RowIndex
from pyg_batchgnn.store.row_request import Columns, RowRequest

#: Names of a shard's arrays in shared memory: by group the original ids, the index and the tables.
_ORIGINAL, _INDEX, _TABLE = "original", "index", "table"


@dataclass(frozen=True, eq=False)
class LocalShard:
    """The attributes of one part.

    Attributes:
        original: by group of nodes, [n_t] ``book.id_dtype``, original ids.
        attributes: by group and name, [rows, ...] each.
        index: by group, the index that finds its rows.
    """

    original: dict[Group, Tensor]
    attributes: dict[Group, dict[str, Tensor]]
    index: dict[Group, RowIndex]

    def block(self, group: Group, columns: Columns) -> RowBlock:
        """Returns all rows of some columns, without a copy."""
        tables = self.attributes[group]
        original = self.original[group] if columns.original_ids else None
        return RowBlock({name: tables[name] for name in columns.attributes}, original)

    def find(self, group: Group, request: RowRequest) -> Tensor:
        """Returns the positions of rows in the tables of a group; see `RowIndex.find`."""
        return self.index[group].find(request)

    def with_attribute(self, group: Group, name: str, table: Tensor) -> LocalShard:
        """Returns the shard with one more attribute, without a copy."""
        return replace(self, attributes={**self.attributes, group: {**self.attributes[group], name: table}})

    def arrays(self) -> dict[str, Tensor]:
        """Returns all arrays, under names by which `like` makes a shard of them again."""
        found = {}
        for at, (group, tables) in enumerate(self.attributes.items()):
            if group in self.original:
                found[f"{at}/{_ORIGINAL}"] = self.original[group]
            found |= {f"{at}/{_INDEX}/{name}": array for name, array in self.index[group].arrays.items()}
            found |= {f"{at}/{_TABLE}/{name}": table for name, table in tables.items()}
        return found

    def like(self, arrays: Mapping[str, Tensor]) -> LocalShard:
        """Makes a shard of the same groups from its `arrays`."""

        def named(at: int, what: str) -> dict[str, Tensor]:
            prefix = f"{at}/{what}/"
            return {
                name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)
            }

        groups = list(enumerate(self.attributes))
        return LocalShard(
            {group: arrays[f"{at}/{_ORIGINAL}"] for at, group in groups if group in self.original},
            {group: named(at, _TABLE) for at, group in groups},
            {group: type(self.index[group])(**named(at, _INDEX)) for at, group in groups},
        )


def shard_of(part: Part, floats: torch.dtype | None) -> LocalShard:
    """Makes a shard of a part's attributes, and of its splits as masks (``train_mask``).

    Args:
        part: its own tables are used where they lie, unless they are converted.
        floats: element type of floating-point attributes; None leaves them as they are.
    """

    part.check()
    schema = part.schema

    def rows(table: Tensor) -> Tensor:
        table = torch.as_tensor(table)
        wanted = floats if floats is not None and table.is_floating_point() else table.dtype
        return table.to(wanted).contiguous()

    attributes = {
        group: {name: rows(table) for name, table in part.attributes.get(group, {}).items()}
        for group in (*schema.node_groups, *schema.edge_groups)
    }
    original, index = dict[Group, Tensor](), dict[Group, RowIndex]()
    for number, group in enumerate(schema.node_groups):
        original[group] = part.original_ids(number).to(part.book.id_dtype)
        index[group] = NodeIndex()
        for name, split in part.splits.get(group, {}).items():
            attributes[group].setdefault(f"{name}_mask", _mask(len(original[group]), split))
    for group, edges in zip(schema.edge_groups, part.relations, strict=True):
        index[group] = EdgeIndex.of(edges) if attributes[group] else EdgeIndex()
    return LocalShard(original, attributes, index)


def _mask(count: int, index: Tensor) -> Tensor:
    mask = torch.zeros(count, dtype=torch.bool)
    mask[index] = True
    return mask


def share_shard(own: LocalShard, comm: Communicator) -> dict[int, LocalShard]:
    """Copies a rank's shard to memory that its host shares. Collective.

    Returns:
        The shards of this host's ranks, by rank.
    """
    if len(set(comm.hosts)) == comm.size:
        return {comm.rank: own}  # nobody has anybody to share with
    alone = len(comm.ranks_of_host) == 1
    shared = share_arrays(comm, {} if alone else own.arrays())
    return {comm.rank: own} if alone else {rank: own.like(arrays) for rank, arrays in shared.items()}
