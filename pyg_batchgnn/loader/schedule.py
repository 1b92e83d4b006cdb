"""Who decides in which order seeds are visited, and how an order that was drawn is drawn again."""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Iterable, Iterator, Sized
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import BatchSampler, DataLoader, SequentialSampler

from pyg_batchgnn.loader.order import (
    KeyedShuffleSampler,
    LastBatch,
    as_list,
    keyed_batches,
    sequential_batches,
)
from pyg_batchgnn.loader.position import Run
from pyg_batchgnn.ops import digest_text, minibatch_key


class Order(enum.Enum):
    """Who decides in which order seeds are visited."""

    SEQUENTIAL = "sequential"
    KEYED = "keyed"  # shuffled by (seed, epoch)
    DRAWN = "drawn"  # by the user's generator, sampler or batch sampler


def with_keyed_shuffle(kwargs: dict[str, Any], num_seeds: int, seed: int) -> dict[str, Any]:
    """``shuffle=True`` as a keyed permutation, unless the user gave something else that decides the order."""
    decided = any(kwargs.get(name) is not None for name in ("generator", "sampler", "batch_sampler"))
    if not kwargs.get("shuffle") or decided:
        return kwargs
    return {**kwargs, "shuffle": False, "sampler": KeyedShuffleSampler(num_seeds, seed)}


def order_of(loader: DataLoader) -> Order:
    if type(loader.batch_sampler) is not BatchSampler:
        return Order.DRAWN
    if isinstance(loader.sampler, KeyedShuffleSampler):
        return Order.KEYED
    return Order.SEQUENTIAL if type(loader.sampler) is SequentialSampler else Order.DRAWN


def num_batches_of(loader: DataLoader) -> int | None:
    """Minibatches an epoch; None where the user's batch sampler does not say."""
    return len(loader) if isinstance(loader.batch_sampler, Sized) else None


def batches_of(loader: Any, run: Run) -> Iterable[list[int]]:
    """An epoch's minibatches as positions in the loader's input; notes in ``run`` how to repeat them.

    What the user's sampler draws is drawn whole, so that neither training nor the size of a macrobatch comes
    in between.

    Raises:
        ValueError: the run is to go on where another process left it, but the sampler draws another order.
    """
    order = order_of(loader)
    run.num_batches = num_batches_of(loader)
    last = LastBatch.DROP if loader.drop_last else LastBatch.KEEP
    if order is Order.KEYED:
        return keyed_batches(len(loader.sampler), loader.seed, run.epoch, loader.batch_size, last)
    if order is Order.SEQUENTIAL:
        return sequential_batches(len(loader.sampler), loader.batch_size, last)
    if run.num_batches is None:
        if run.skip:
            raise ValueError(
                "a batch_sampler without len() cannot be resumed inside an epoch; give it a __len__"
            )
        return map(as_list, loader.batch_sampler)
    saved, before = run.drawn, [_to_text(torch.get_rng_state()), *generator_states(loader)]
    with contextlib.nullcontext() if saved is None else _restored(loader, saved["states"]):
        batches = [as_list(batch) for batch in loader.batch_sampler]
    digest = _digest(batches)
    if saved is not None and saved["digest"] != digest:
        raise ValueError(
            f"the sampler draws other minibatches than it drew for epoch {run.epoch} before the state was "
            f"saved; bring it back to where it stood when that epoch began"
        )
    run.drawn = saved or {"states": before, "digest": digest}
    run.num_batches = len(batches)
    return batches


def generator_states(loader: Any) -> list[str]:
    """The states of the generators that decide the order, other than torch's default one, as they are now."""
    return _states(_generators(loader))


def set_generators(loader: Any, states: list[str]) -> None:
    """Brings the generators that decide the order back to what `generator_states` returned.

    Raises:
        ValueError: there are not as many generators as states.
    """
    generators = _generators(loader)
    if len(generators) != len(states):
        raise ValueError(
            f"the loader's state is of {len(states)} generators, but this loader and its samplers have "
            f"{len(generators)}; make the loader with the same generator, sampler and batch_sampler to resume"
        )
    for generator, state in zip(generators, states, strict=True):
        generator.set_state(_from_text(state))


def _generators(loader: Any) -> list[torch.Generator]:
    """What the loader and its samplers hold, each once."""
    if order_of(loader) is not Order.DRAWN:
        return []
    inner = getattr(loader.batch_sampler, "sampler", None)
    owners = (loader, loader.sampler, loader.batch_sampler, inner)
    held = (getattr(owner, "generator", None) for owner in owners)
    return list({id(one): one for one in held if isinstance(one, torch.Generator)}.values())


@contextlib.contextmanager
def _restored(loader: Any, states: list[str]) -> Iterator[None]:
    """Generators as they were. The default one, which training uses too, is afterwards as it was found."""
    set_generators(loader, states[1:])
    with torch.random.fork_rng(devices=[]):
        torch.set_rng_state(_from_text(states[0]))
        yield


def _states(generators: list[torch.Generator]) -> list[str]:
    return [_to_text(generator.get_state()) for generator in generators]


def _to_text(state: Tensor) -> str:
    """A generator's state, [S] uint8, as hexadecimal digits, which JSON can hold."""
    return state.numpy().tobytes().hex()


def _from_text(text: str) -> Tensor:
    return torch.frombuffer(bytearray(bytes.fromhex(text)), dtype=torch.uint8)


def _digest(batches: list[list[int]]) -> str:
    positions = [position for batch in batches for position in batch]
    return digest_text(minibatch_key(torch.tensor([*positions, *map(len, batches)], dtype=torch.int64)))
