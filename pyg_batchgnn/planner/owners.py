"""The owner of each node under a policy, without cutting the graph where that is possible."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from pyg_batchgnn.comm import Communicator
from pyg_batchgnn.data import Dataset
from pyg_batchgnn.partition import load_partition, partition_parts, random_owner, read_partition_meta


def owners_of(dataset: Dataset, policy: str, ranks: int, comm: Communicator) -> list[Tensor]:
    """Returns the rank that owns each node, by node type, [N_t] int64.

    Args:
        dataset: the graph.
        policy: a policy's name, or the folder of a saved partition with one
            part per rank.
        ranks: the number of ranks.
        comm: a communicator of this process alone.

    Raises:
        ValueError: the saved partition is of another graph or has another number of parts.
    """
    nodes = [(one.name if dataset.schema.num_types > 1 else None, one.num_nodes) for one in dataset.node_sets]
    if policy == "random":
        return [random_owner(torch.arange(count), ranks, 0, name).to(torch.int64) for name, count in nodes]
    if Path(policy).is_dir():
        return _saved(dataset, policy, ranks, comm)
    owner = [torch.empty(count, dtype=torch.int64) for _, count in nodes]
    bare = dataset.without_attributes()
    for part in partition_parts(bare, policy, ranks, comm=comm):
        for number, of_type in enumerate(owner):
            of_type[part.original_ids(number)] = part.number
    return owner


def _saved(dataset: Dataset, folder: str, ranks: int, comm: Communicator) -> list[Tensor]:
    book = read_partition_meta(Path(folder)).book
    if book.parts != ranks:
        raise ValueError(
            f"{folder} has {book.parts} parts, not one for each of {ranks} ranks; partition anew"
        )
    counts = [one.num_nodes for one in dataset.node_sets]
    if book.sizes.sum(0).tolist() != counts:
        raise ValueError(
            f"{folder} has {book.sizes.sum(0).tolist()} nodes by type, but {dataset.name} has {counts}; give "
            "a partition of the same graph"
        )
    whole = load_partition(folder, comm)
    owner = []
    for number, count in enumerate(counts):  # within a type, nodes are in the order of the saved parts
        of_type = torch.empty(count, dtype=torch.int64)
        of_type[whole.original_ids(number)] = torch.arange(ranks).repeat_interleave(book.sizes[:, number])
        owner.append(of_type)
    return owner
