"""Where a loader stands: its epoch, how many minibatches it has handed out, and what a checkpoint keeps of
that."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

VERSION = 1


@dataclass
class Run:
    """One pass over the epoch, by one iterator."""

    epoch: int
    skip: int = 0  # minibatches that an earlier process handed out
    handed_out: int = 0  # those included
    order_state: Tensor | None = None  # of the generator that decides the order, when the epoch began


class Position:
    """The loader's runs, one after the other. The latest one is what `state_dict` speaks of."""

    def __init__(self) -> None:
        self.run = Run(epoch=0)
        self._next = Run(epoch=0)

    def begin(self) -> Run:
        """Starts the next run: the next epoch, or what is left of the one that was loaded."""
        self.run = self._next
        self.run.handed_out = self.run.skip
        self._next = Run(self.run.epoch + 1)
        return self.run

    def set_epoch(self, epoch: int) -> None:
        """The epoch of the next run and of ``loader(index)``. What was loaded stays where it is of the same
        epoch."""
        if self._next.epoch != epoch or self._next.skip == 0:
            self._next = Run(epoch)
        if self.run.epoch != epoch:
            self.run = Run(epoch)

    def state_dict(self, seed: int, settings: dict[str, Any]) -> dict[str, Any]:
        """JSON-able; counts minibatches handed out, not those prefetched."""
        state = self.run.order_state
        return {
            "version": VERSION,
            "seed": seed,
            "epoch": self.run.epoch,
            "batches": self.run.handed_out,
            "order_state": None if state is None else bytes(state.tolist()).hex(),
            "settings": settings,
        }

    def load_state_dict(self, state: dict[str, Any], settings: dict[str, Any], num_batches: int) -> None:
        """Lets the next run go on where ``state`` was saved; after the last minibatch that is the next
        epoch."""
        _check(state, settings, num_batches)
        epoch, batches = state["epoch"], state["batches"]
        self.run = Run(epoch, handed_out=batches)
        if batches >= num_batches > 0:
            self._next = Run(epoch + 1)
            return
        saved = state.get("order_state")
        order_state = None if saved is None else torch.tensor(list(bytes.fromhex(saved)), dtype=torch.uint8)
        self.run.order_state = order_state
        self._next = Run(epoch, skip=batches, order_state=order_state)


def _check(state: Any, settings: dict[str, Any], num_batches: int) -> None:
    """The minibatches that are left can only be the same if everything that decides them is."""
    found = state.get("version") if isinstance(state, dict) else type(state).__name__
    if found != VERSION:
        raise ValueError(f"not a state of this loader: version {VERSION} expected, found {found!r}")
    missing = {"seed", "epoch", "batches", "settings"} - state.keys()
    if missing:
        raise ValueError(f"the loader's state lacks {sorted(missing)}: it was truncated or altered")
    for key, value in settings.items():
        saved = state["settings"].get(key)
        if saved != value:
            raise ValueError(
                f"the loader's state was saved with {key}={saved!r}, but this loader has {key}={value!r}; "
                f"make the loader with the saved value to resume"
            )
    if not 0 <= state["batches"] <= num_batches:
        raise ValueError(
            f"the loader's state says {state['batches']} minibatches of {num_batches} were handed out"
        )
