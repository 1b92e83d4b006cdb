"""The entries that PyG's loaders put beside the attributes of a batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch_geometric.data import Data, HeteroData
from torch_geometric.sampler import HeteroSamplerOutput, SamplerOutput


def add_sample_info(batch: Data, out: SamplerOutput) -> None:
    """Adds the ids, the counts and the seeds of a sample.

    ``n_id`` and ``e_id`` give way to the user's attributes of that name.
    """
    if "n_id" not in batch:
        batch.n_id = out.node
    if out.edge is not None and "e_id" not in batch:
        batch.e_id = out.edge.to(torch.long)
    batch.batch = out.batch
    batch.num_sampled_nodes = out.num_sampled_nodes
    batch.num_sampled_edges = out.num_sampled_edges
    if out.orig_row is not None and out.orig_col is not None:
        batch._orig_edge_index = torch.stack([out.orig_row, out.orig_col])
    _add_seeds(batch, *out.metadata[:2])


def add_hetero_sample_info(batch: HeteroData, out: HeteroSamplerOutput, input_types: Sequence[str]) -> None:
    """Adds the ids, the counts and the seeds of a typed sample.

    Args:
        batch: the batch.
        out: the sample. Its metadata hold, for several types of seeds, dicts by type.
        input_types: the node types of the loader's seeds.
    """
    for node_type, node in out.node.items():
        if "n_id" not in batch[node_type]:
            batch[node_type].n_id = node
    for edge_type, edge in (out.edge or {}).items():
        if edge is not None and "e_id" not in batch[edge_type]:
            batch[edge_type].e_id = edge.to(torch.long)
    batch.set_value_dict("batch", out.batch)
    batch.set_value_dict("num_sampled_nodes", out.num_sampled_nodes)
    batch.set_value_dict("num_sampled_edges", out.num_sampled_edges)
    for edge_type in out.orig_row or {}:
        ends = [out.orig_row[edge_type], out.orig_col[edge_type]]
        batch[edge_type]._orig_edge_index = torch.stack(ends)
    for node_type in input_types:
        _add_seeds(batch[node_type], *(_of_type(part, node_type) for part in out.metadata[:2]))


def _of_type(part: Any, node_type: str) -> Any:
    return part[node_type] if isinstance(part, dict) else part


def _add_seeds(store: Any, input_id: Any, seed_time: Any) -> None:
    store.input_id, store.seed_time = input_id, seed_time
    store.batch_size = input_id.numel()
