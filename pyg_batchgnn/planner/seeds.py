"""The rank that trains each seed node, and the rank that has the most work."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from pyg_batchgnn.loader import ScheduleName, balanced_trainers


def seed_trainers(schedule: ScheduleName, owner: Tensor, hosts: Sequence[int]) -> Tensor:
    """Returns the rank that trains each seed node, [s] int64.

    With the global schedule, which deals them anew in every epoch, it is the owner.

    Args:
        schedule: the rule by which ranks share the seed nodes.
        owner: [s] int64, the ranks that own them.
        hosts: the host of each rank.
    """
    if schedule is not ScheduleName.BALANCED:
        return owner
    counts, trainer = torch.bincount(owner, minlength=len(hosts)).tolist(), owner.clone()
    for rank in range(len(hosts)):
        trainer[owner == rank] = balanced_trainers(counts, hosts, rank)
    return trainer


def busiest_rank(owner: Tensor, trainer: Tensor, hosts: Sequence[int]) -> int:
    """Returns the rank that has the most work.

    Of the ranks whose number of seed nodes is within 1 of the largest, it is the one that trains
    the most seed nodes of other hosts. Where these are equal, seed nodes of other ranks decide,
    then all seed nodes.

    Args:
        owner, trainer: [s] int64, the ranks that own and train the seed nodes.
        hosts: the host of each rank.
    """
    ranks, host = len(hosts), torch.tensor(hosts)
    seeds = torch.bincount(trainer, minlength=ranks)
    remote = torch.bincount(trainer[host[owner] != host[trainer]], minlength=ranks)
    away = torch.bincount(trainer[owner != trainer], minlength=ranks)
    most = int(seeds.max())
    return max(
        (rank for rank in range(ranks) if int(seeds[rank]) >= most - 1),
        key=lambda rank: (int(remote[rank]), int(away[rank]), int(seeds[rank])),
    )
