"""The states of the random generators that decide a loader's order."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from pyg_batchgnn.loader.order import Order, order_of


def generator_states(loader: Any) -> list[str]:
    """Returns the present states of the generators that decide the order.

    Torch's default generator is not among them.
    """
    return [_to_text(generator.get_state()) for generator in _generators(loader)]


def all_states(loader: Any) -> list[str]:
    """Returns the state of torch's default generator, then those of `generator_states`."""
    return [_to_text(torch.get_rng_state()), *generator_states(loader)]


def check_states(loader: Any, states: list[str]) -> None:
    """Raises ValueError unless the generators that decide the order can take these states."""
    generators = _generators(loader)
    if len(generators) != len(states):
        raise ValueError(
            f"the loader's state is of {len(states)} generators, but this loader and its samplers have "
            f"{len(generators)}; make the loader with the same generator, sampler and batch_sampler to resume"
        )
    for state in states:
        _check(state)


def set_generators(loader: Any, states: list[str]) -> None:
    """Brings the generators that decide the order back to what `generator_states` returned.

    Raises:
        ValueError: there are not as many generators as states, or a state is of no generator.
    """
    check_states(loader, states)
    generators = _generators(loader)
    for generator, state in zip(generators, states, strict=True):
        generator.set_state(_from_text(state))


@contextlib.contextmanager
def restored(loader: Any, states: list[str]) -> Iterator[None]:
    """Brings all generators back to what `all_states` returned.

    The default generator, which training uses too, is put back as it was found when the context
    ends.
    """
    set_generators(loader, states[1:])
    with torch.random.fork_rng(devices=[]):
        torch.set_rng_state(_from_text(states[0]))
        yield


def _generators(loader: Any) -> list[torch.Generator]:
    """Returns the generators that the loader and its samplers hold, each once."""
    if order_of(loader) is not Order.DRAWN:
        return []
    inner = getattr(loader.batch_sampler, "sampler", None)
    owners = (loader, loader.sampler, loader.batch_sampler, inner)
    held = (getattr(owner, "generator", None) for owner in owners)
    return list({id(one): one for one in held if isinstance(one, torch.Generator)}.values())


def is_list_of_states(states: Any) -> bool:
    """Returns whether a value is a list of texts as `generator_states` returns them."""
    return isinstance(states, list) and all(
        isinstance(text, str) and len(text) % 2 == 0 and set(text) <= set("0123456789abcdef")
        for text in states
    )


def _check(state: str) -> None:
    """Raises ValueError unless a generator takes a state."""
    try:
        torch.Generator().set_state(_from_text(state))
    except (RuntimeError, ValueError) as error:
        raise ValueError(
            f"the loader's state was altered: {len(state) // 2} bytes of a generator: {error}"
        ) from error


def _to_text(state: Tensor) -> str:
    """Returns a generator's state, [S] uint8, as hexadecimal digits, which JSON can hold."""
    return state.numpy().tobytes().hex()


def _from_text(text: str) -> Tensor:
    return torch.frombuffer(bytearray(bytes.fromhex(text)), dtype=torch.uint8)
