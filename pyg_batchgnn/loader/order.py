"""Epochs cut into macrobatches, and the keyed shuffle."""

from __future__ import annotations

import enum
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from torch import Tensor
from torch.utils.data import Sampler

from pyg_batchgnn.ops import keyed_permutation

#: Positions made Python integers at a time; the whole permutation as a list would take 40 bytes an entry.
CHUNK = 1 << 16


class LastBatch(enum.Enum):
    """What becomes of an epoch's last minibatch where it is smaller than the others."""

    KEEP = "keep"
    DROP = "drop"


@dataclass(frozen=True)
class WorkItem:
    """One macrobatch to make: all that a worker process needs to know, epoch included."""

    epoch: int
    number: int  # of the macrobatch in the epoch
    indices: list[list[int]]  # positions in the loader's input, a list a minibatch


class KeyedShuffleSampler(Sampler[int]):
    """Visits range(n) in an order that depends on (seed, epoch) alone, computed when it is asked for."""

    def __init__(self, n: int, seed: int, epoch: int = 0) -> None:
        self.n = n
        self.seed = seed
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        for chunk in keyed_permutation(self.n, self.seed, self.epoch).split(CHUNK):
            yield from chunk.tolist()

    def __len__(self) -> int:
        return self.n


def keyed_batches(n: int, seed: int, epoch: int, size: int, last: LastBatch) -> Iterator[list[int]]:
    """Minibatches of `KeyedShuffleSampler`'s order, each list made at once and not entry by entry."""
    for batch in keyed_permutation(n, seed, epoch).split(size):
        if batch.numel() == size or (batch.numel() and last is LastBatch.KEEP):
            yield batch.tolist()


def sequential_batches(n: int, size: int, last: LastBatch) -> Iterator[list[int]]:
    """Minibatches of range(n) in order."""
    end = n if last is LastBatch.KEEP else n - n % size
    return (list(range(first, min(first + size, end))) for first in range(0, end, size))


def work_items(
    batches: Iterable[list[int]], epoch: int, macrobatch_size: int, skip: int = 0
) -> Iterator[WorkItem]:
    """Cuts an epoch's minibatches into macrobatches, leaving out the first ``skip`` minibatches."""
    left = itertools.islice(iter(batches), skip, None)
    for number in itertools.count():
        indices = list(itertools.islice(left, macrobatch_size))
        if not indices:
            return
        yield WorkItem(epoch, number, indices)


def as_list(index: object) -> list[int]:
    """Positions as a list of integers, from a list or a tensor."""
    if isinstance(index, Tensor):
        return [int(position) for position in index.view(-1).tolist()]
    return [int(position) for position in index]  # type: ignore[attr-defined]
