"""The seeds that each rank trains, where every rank has a list of its own."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pyg_batchgnn.comm import Communicator
from pyg_batchgnn.loader.numbering import OwnSeeds
from pyg_batchgnn.ops import keyed_permutation
from pyg_batchgnn.partition import send_rows


@dataclass(frozen=True, eq=False)
class TrainedSeeds:
    """A rank's seeds, and who trains those that it owns.

    Attributes:
        seeds: the seeds that this rank trains.
        own: the seeds that it owns.
        trainer: [S_r] int64, the rank that trains each of its own.
    """

    seeds: OwnSeeds
    own: OwnSeeds
    trainer: Tensor

    @classmethod
    def by_owners(cls, own: OwnSeeds, rank: int) -> TrainedSeeds:
        """Returns the seeds that a rank owns: it trains all of them."""
        return cls(own, own, torch.full_like(own.positions, rank))

    @classmethod
    def balanced(cls, own: OwnSeeds, comm: Communicator) -> TrainedSeeds:
        """Returns equally many seeds on every rank, most of them the rank's own. Collective."""
        counts = comm.all_gather_json(own.positions.numel())
        trainer = balanced_trainers(counts, comm.hosts, comm.rank)
        rows = send_rows(comm, torch.stack([own.positions, own.internal], dim=1), trainer)
        rows = rows[torch.argsort(rows[:, 0])]
        return cls(OwnSeeds(rows[:, 0].contiguous(), rows[:, 1].contiguous()), own, trainer)


def balanced_trainers(counts: Sequence[int], hosts: Sequence[int], rank: int) -> Tensor:
    """Returns the rank that trains each of a rank's own seeds, [S_r] int64.

    Ranks with too many give some to ranks with too few, to those of the same host first. It is a
    keyed choice, so those that are given away are of all types and from everywhere. It does not
    depend on the loader's seed.

    Args:
        counts: the number of seeds that each rank owns.
        hosts: the host of each rank.
        rank: the owner.
    """
    given = torch.tensor(moved_seeds(counts, hosts)[rank])
    trainer = torch.full((counts[rank],), rank)
    away = keyed_permutation(counts[rank], 0, rank)[: int(given.sum())]
    trainer[away] = torch.repeat_interleave(torch.arange(len(counts)), given)
    return trainer


def moved_seeds(counts: Sequence[int], hosts: Sequence[int]) -> list[list[int]]:
    """Returns how many seeds each rank gives to each other rank.

    Afterwards their numbers differ by at most 1. As few seeds move as possible. Ranks of one host
    give to each other first.

    Args:
        counts: the number of seeds that each rank owns.
        hosts: the host of each rank.
    """
    ranks, every = range(len(counts)), sum(counts)
    richest = sorted(ranks, key=lambda rank: -counts[rank])[: every % len(counts)]
    excess = [count - every // len(counts) - (rank in richest) for rank, count in enumerate(counts)]
    moved = [[0] * len(counts) for _ in ranks]
    for one_host in (True, False):
        for giver, taker in itertools.product(ranks, ranks):
            count = min(excess[giver], -excess[taker])
            if count > 0 and (hosts[giver] == hosts[taker] or not one_host):
                moved[giver][taker] = count
                excess[giver] -= count
                excess[taker] += count
    return moved
