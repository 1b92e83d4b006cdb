"""Between a loader's arguments, which are those of PyTorch's DataLoader, and the parts that use them."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import Any

import torch
from torch.utils.data import BatchSampler, DataLoader, SequentialSampler
from torch_geometric.data import Data

from pyg_batchgnn.loader.budget import Ahead
from pyg_batchgnn.loader.order import KeyedShuffleSampler, replay
from pyg_batchgnn.loader.position import Run

#: What holds a graph, not an attribute of its edges.
_STRUCTURE = ("edge_index", "adj_t")


class Order(enum.Enum):
    """Who decides in which order seeds are visited."""

    SEQUENTIAL = "sequential"
    KEYED = "keyed"  # shuffled by (seed, epoch)
    GENERATOR = "generator"  # shuffled by the user's generator
    USER = "user"  # the user's sampler or batch sampler


def with_keyed_shuffle(kwargs: dict[str, Any], num_seeds: int, seed: int) -> dict[str, Any]:
    """``shuffle=True`` as a keyed permutation, unless the user gave something else that decides the order."""
    decided = any(kwargs.get(name) is not None for name in ("generator", "sampler", "batch_sampler"))
    if not kwargs.get("shuffle") or decided:
        return kwargs
    return {**kwargs, "shuffle": False, "sampler": KeyedShuffleSampler(num_seeds, seed)}


def order_of(loader: DataLoader) -> Order:
    if type(loader.batch_sampler) is not BatchSampler:
        return Order.USER
    if isinstance(loader.sampler, KeyedShuffleSampler):
        return Order.KEYED
    if isinstance(loader.sampler, SequentialSampler):
        return Order.SEQUENTIAL
    return Order.USER if loader.generator is None else Order.GENERATOR


def batches_of(loader: Any, run: Run) -> Iterable[list[int]]:
    """An epoch's minibatches as positions in the loader's input; notes in ``run`` what is needed to repeat
    them."""
    order = order_of(loader)
    if order is Order.KEYED:
        # A sampler of its own, so that two iterators at a time do not disturb each other.
        keyed = KeyedShuffleSampler(len(loader.dataset), loader.seed, run.epoch)
        return BatchSampler(keyed, loader.batch_size, loader.drop_last)
    if order is Order.GENERATOR:
        if run.order_state is not None:
            loader.generator.set_state(run.order_state)
        run.order_state = loader.generator.get_state()
    elif order is Order.USER:
        if run.order_state is not None:
            return replay(loader.batch_sampler, run.order_state)
        run.order_state = torch.get_rng_state()
    return loader.batch_sampler


def probe_batches(loader: Any) -> list[list[int]]:
    """Up to two minibatches to measure with; takes nothing from the loader's order."""
    num_seeds, num_batches = len(loader.dataset), len(loader)
    size = loader.batch_size or -(-num_seeds // max(1, num_batches))
    starts = range(0, min(num_seeds, 2 * size), size)
    return [list(range(start, min(start + size, num_seeds))) for start in starts]


def ahead_of(loader: Any) -> Ahead:
    """What a prefetching thread or worker processes prepare beside the macrobatch in use."""
    if loader.num_workers == 0:
        return Ahead(loader._options.prefetch, makers=1)
    return Ahead(loader.num_workers * (loader.prefetch_factor or 2), loader.num_workers)


def worker_arguments(loader: DataLoader) -> dict[str, Any]:
    """What the worker processes' own DataLoader is to have of this one's arguments."""
    return {
        "num_workers": loader.num_workers,
        "persistent_workers": loader.persistent_workers,
        "prefetch_factor": loader.prefetch_factor,
        "timeout": loader.timeout,
        "worker_init_fn": loader.worker_init_fn,
        "multiprocessing_context": loader.multiprocessing_context,
    }


def has_edge_attributes(data: Any) -> bool:
    if isinstance(data, Data):
        return any(data.is_edge_attr(key) for key in data._store if key not in _STRUCTURE)
    return any(isinstance(attr.group_name, tuple) for attr in data[0].get_all_tensor_attrs())
