"""The owner of each node under a policy, without cutting the graph where that is possible."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from pyg_batchgnn.comm import Communicator
from pyg_batchgnn.data import Dataset
from pyg_batchgnn.partition import load_partition, partition_parts, random_owner, read_partition_meta


def owners_of(dataset: Dataset, policy: str, ranks: int, comm: Communicator) -> Tensor:
    """Returns the rank that owns each node, [N] int64.

    Args:
        dataset: the graph.
        policy: "random", "contiguous", "ldg", "fennel", or the folder of a saved partition with one
            part per rank.
        ranks: the number of ranks.
        comm: a communicator of this process alone.

    Raises:
        ValueError: the saved partition has another number of parts.
    """
    if policy == "random":
        return random_owner(torch.arange(dataset.num_nodes), ranks, seed=0).to(torch.int64)
    if Path(policy).is_dir():
        return _saved(policy, ranks, comm)
    owner = torch.empty(dataset.num_nodes, dtype=torch.int64)
    bare = dataset.without_attributes()
    for part in partition_parts(bare, policy, ranks, comm=comm):
        owner[part.node] = part.number
    return owner


def _saved(folder: str, ranks: int, comm: Communicator) -> Tensor:
    book = read_partition_meta(Path(folder)).book
    if book.parts != ranks:
        raise ValueError(
            f"{folder} has {book.parts} parts, not one for each of {ranks} ranks; partition anew"
        )
    whole = load_partition(folder, comm)
    owner = torch.empty(book.num_nodes, dtype=torch.int64)
    owner[whole.node] = book.owner(torch.arange(book.num_nodes))
    return owner
