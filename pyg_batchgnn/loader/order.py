"""The order in which an epoch visits seed nodes, and who decides it."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Sampler, SequentialSampler

from pyg_batchgnn.ops import keyed_permutation

#: Positions made Python integers at a time; a whole permutation as a list would take 40 bytes per
#: entry.
CHUNK = 1 << 16

#: Returns the positions in the loader's input that are visited from one place of the order to
#: another.
Visit: TypeAlias = Callable[[int, int], Tensor]


class Order(enum.Enum):
    """The one who decides in which order seeds are visited."""

    SEQUENTIAL = "sequential"
    KEYED = "keyed"  # shuffled by (seed, epoch)
    DRAWN = "drawn"  # by the user's generator, sampler or batch sampler

    def visit(self, count: int, seed: int, epoch: int) -> Visit:
        """Returns the order of an epoch over range(count). A drawn order is not known here."""
        if self is Order.KEYED:
            permutation = keyed_permutation(count, seed, epoch)
            return lambda begin, end: permutation[begin:end]
        return torch.arange


class Remainder(enum.Enum):
    """The fate of an epoch's last seeds if they do not fill a minibatch."""

    KEEP = "keep"
    DROP = "drop"


class KeyedShuffleSampler(Sampler[int]):
    """Visits range(n) in an order that depends on (seed, epoch) alone, computed on request."""

    def __init__(self, n: int, seed: int, epoch: int = 0) -> None:
        self.n = n
        self.seed = seed
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        for chunk in keyed_permutation(self.n, self.seed, self.epoch).split(CHUNK):
            yield from chunk.tolist()

    def __len__(self) -> int:
        return self.n


def with_keyed_shuffle(kwargs: dict[str, Any], num_seeds: int) -> dict[str, Any]:
    """Turns ``shuffle=True`` into a keyed permutation, unless other arguments decide the order.

    The permutation's seed is set when the loader's is known.
    """
    decided = any(kwargs.get(name) is not None for name in ("generator", "sampler", "batch_sampler"))
    if not kwargs.get("shuffle") or decided:
        return kwargs
    return {**kwargs, "shuffle": False, "sampler": KeyedShuffleSampler(num_seeds, 0)}


def order_of(loader: DataLoader) -> Order:
    """Returns who decides the order of a loader, or of the loader of a `DrawnOrder`."""
    if loader.batch_size is None:  # then batch_sampler is the user's, else DataLoader's own
        return Order.DRAWN
    if isinstance(loader.sampler, KeyedShuffleSampler):
        return Order.KEYED
    return Order.SEQUENTIAL if type(loader.sampler) is SequentialSampler else Order.DRAWN


def as_positions(index: object) -> Tensor:
    """Returns positions in the loader's input as [n] int64.

    ``index``: a list, or a tensor of any integer type.
    """
    if isinstance(index, Tensor):
        return index.view(-1).to("cpu", torch.int64)
    return torch.tensor([int(position) for position in index], dtype=torch.int64)  # type: ignore[attr-defined]
