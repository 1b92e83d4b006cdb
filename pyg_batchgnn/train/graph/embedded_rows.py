"""Rows that a model computed for all nodes, read by original id."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor
from torch_geometric.data import TensorAttr

from pyg_batchgnn.data import Group, RowKind
from pyg_batchgnn.store import DistFeatureStore

_NAME = "rows"


class EmbeddedRows(Protocol):
    """The rows of all nodes of a graph."""

    def of(self, node_type: str, ids: Tensor) -> Tensor:
        """Returns [n, columns], the rows of some nodes of a type; collective over ranks.

        Args:
            node_type: the type.
            ids: [n] int64, original ids. Each rank gives some of its own choice, possibly none.
        """


@dataclass(frozen=True, eq=False)
class RowsHere:
    """Rows that are all in this process.

    Attributes:
        rows: [N_t, columns] by node type, in the order of original ids.
    """

    rows: Mapping[str, Tensor]

    def of(self, node_type: str, ids: Tensor) -> Tensor:
        return self.rows[node_type][ids]


@dataclass(frozen=True, eq=False)
class RowsOverRanks:
    """Rows that lie with the owners of the nodes.

    Attributes:
        store: holds them as an attribute.
    """

    store: DistFeatureStore

    @classmethod
    def beside(cls, features: DistFeatureStore, rows: Mapping[str, Tensor]) -> RowsOverRanks:
        """Returns the rows of all ranks; collective.

        Args:
            features: the attributes of the same nodes.
            rows: [n_t, columns] by node type, those of this rank's own nodes.
        """
        schema = features.part.schema
        tables: dict[Group, dict[str, Tensor]] = {
            group: {} for group in (*schema.node_groups, *schema.edge_groups)
        }
        for name, found in rows.items():
            tables[Group(RowKind.NODE, name)][_NAME] = found
        return cls(DistFeatureStore(replace(features.part, attributes=tables), features.comm, share=False))

    def of(self, node_type: str, ids: Tensor) -> Tensor:
        name = node_type if self.store.part.schema.has_names else None
        rows = self.store.get_tensor(TensorAttr(name, _NAME, index=ids))
        return torch.as_tensor(rows)
