"""The entries that PyG's loaders put beside the attributes of a batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch_geometric.data import Data, HeteroData
from torch_geometric.data.storage import BaseStorage
from torch_geometric.sampler import HeteroSamplerOutput, SamplerOutput

from pyg_batchgnn.sample.pyg_output import PygOutput


class SampleInfo(Protocol):
    """Adds the entries of batches that are not attributes of the graph."""

    def add(self, batch: Any, out: PygOutput) -> None:
        """Adds the ids, the counts, and what the sample began with."""


@dataclass(frozen=True)
class SeedInfo:
    """The entries of batches that begin with seed nodes.

    Attributes:
        types: the node types of the loader's seeds, if samples name types.
    """

    types: Sequence[str] = ()

    def add(self, batch: Any, out: PygOutput) -> None:
        """Adds the entries; see `SampleInfo`."""
        add_ids(batch, out)
        if not isinstance(out, HeteroSamplerOutput):
            _add_seeds(batch, *out.metadata[:2])
            return
        for node_type in self.types:  # metadata hold dicts by type if there are several
            _add_seeds(batch[node_type], *(_of_type(part, node_type) for part in out.metadata[:2]))


def add_ids(batch: Any, out: PygOutput) -> None:
    """Adds the ids, the counts and the examples of a sample.

    ``n_id`` and ``e_id`` give way to the user's attributes of that name.
    """
    if isinstance(out, HeteroSamplerOutput):
        _add_typed_ids(batch, out)
    else:
        _add_ids(batch, out)


def put_entry(store: BaseStorage, name: str, value: Any) -> None:
    """Puts a value into a store of a batch that is being made; None takes it away.

    PyG has cached nothing about such a store. To look for that would take longer than all the rest.
    """
    if value is None:
        store._mapping.pop(name, None)
    else:
        store._mapping[name] = value


def _add_ids(batch: Data, out: SamplerOutput) -> None:
    if "n_id" not in batch:
        batch.n_id = out.node
    if out.edge is not None and "e_id" not in batch:
        batch.e_id = out.edge.to(torch.long)
    batch.batch = out.batch
    batch.num_sampled_nodes = out.num_sampled_nodes
    batch.num_sampled_edges = out.num_sampled_edges
    if out.orig_row is not None and out.orig_col is not None:
        batch._orig_edge_index = torch.stack([out.orig_row, out.orig_col])


def _add_typed_ids(batch: HeteroData, out: HeteroSamplerOutput) -> None:
    # Looking a store up by name takes PyG as long as there are types.
    stores: dict[Any, BaseStorage] = {**batch._node_store_dict, **batch._edge_store_dict}

    def store_of(key: Any) -> BaseStorage:
        return stores[key] if key in stores else batch[key]

    for node_type, node in out.node.items():
        if "n_id" not in stores.get(node_type, ()):
            put_entry(store_of(node_type), "n_id", node)
    for edge_type, edge in (out.edge or {}).items():
        if edge is not None and "e_id" not in stores.get(edge_type, ()):
            put_entry(store_of(edge_type), "e_id", edge.to(torch.long))
    for name in ("batch", "num_sampled_nodes", "num_sampled_edges"):
        for key, value in (getattr(out, name) or {}).items():
            put_entry(store_of(key), name, value)
    for edge_type in out.orig_row or {}:
        ends = [out.orig_row[edge_type], out.orig_col[edge_type]]
        store_of(edge_type)._orig_edge_index = torch.stack(ends)


def _of_type(part: Any, node_type: str) -> Any:
    return part[node_type] if isinstance(part, dict) else part


def _add_seeds(store: Any, input_id: Any, seed_time: Any) -> None:
    store.input_id, store.seed_time = input_id, seed_time
    if input_id is not None:  # otherwise no loader made the minibatch
        store.batch_size = input_id.numel()
