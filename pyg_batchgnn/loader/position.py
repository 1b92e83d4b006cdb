"""The place where a loader stands in its epochs, and what a checkpoint keeps of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pyg_batchgnn.loader.generators import is_list_of_states

VERSION = 1


@dataclass
class Run:
    """One pass over the epoch, by one iterator.

    Attributes:
        epoch: the epoch.
        skip: minibatches that an earlier process handed out.
        handed_out: minibatches handed out, ``skip`` included.
        num_batches: minibatches of the epoch, if it has begun and its order says so.
        drawn: how to draw the order again, if a generator or sampler drew it.
        stride: minibatches of the epoch that the ranks together take per step.
        steps: minibatches that this run handed out.
        seeds: the number of seed nodes of each step so far, on all ranks.
        weight: the loader's ``loss_weight``.
    """

    epoch: int
    skip: int = 0
    handed_out: int = 0
    num_batches: int | None = None
    drawn: dict[str, Any] | None = None
    stride: int = 1
    steps: int = 0
    seeds: list[int] = field(default_factory=list)
    weight: float | None = None

    def hand_out(self) -> None:
        """Counts one minibatch."""
        self.steps += 1
        self.handed_out += self.stride
        if self.num_batches is not None:
            self.handed_out = min(self.handed_out, self.num_batches)


class Position:
    """The loader's runs, one after the other. `state_dict` describes the latest one."""

    def __init__(self) -> None:
        self.run = Run(epoch=0)
        self._next = Run(epoch=0)

    @property
    def upcoming(self) -> Run:
        """The run that `begin` starts: the next epoch, or the rest of the one that was loaded."""
        return self._next

    def begin(self) -> None:
        """Makes the upcoming run the latest one."""
        self.run = self._next
        self.run.handed_out = self.run.skip
        self._next = Run(self.run.epoch + 1)

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch of the next run and of ``loader(index)``.

        A loaded place stays if it is in this epoch.
        """
        if isinstance(epoch, bool) or not isinstance(epoch, int):
            raise TypeError(f"epoch must be an integer, got {epoch!r}")
        if self._next.epoch != epoch or self._next.skip == 0:
            self._next = Run(epoch)
        if self.run.epoch != epoch:
            self.run = Run(epoch)

    def state_dict(self, seed: int, settings: dict[str, Any], generators: list[str]) -> dict[str, Any]:
        """Returns the state of the latest run, which JSON can hold.

        It counts the minibatches that were handed out, not those that were prefetched.

        Args:
            seed: key of shuffling and sampling.
            settings: what else decides which minibatches there are.
            generators: states of the generators that decide the order, as they are now.
        """
        return {
            "version": VERSION,
            "seed": seed,
            "epoch": self.run.epoch,
            "batches": self.run.handed_out,
            "num_batches": self.run.num_batches,
            "drawn": self.run.drawn,
            "generators": generators,
            "settings": settings,
        }

    @staticmethod
    def check(state: Any, settings: dict[str, Any]) -> None:
        """Raises ValueError unless ``state`` is of a loader with these settings.

        The message names what differs.
        """
        _check(state, settings)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Lets the next run go on where the checked ``state`` was saved.

        After the last minibatch that is the next epoch.
        """
        epoch, batches, of, drawn = state["epoch"], state["batches"], state["num_batches"], state["drawn"]
        self.run = Run(epoch, handed_out=batches, num_batches=of, drawn=drawn)
        if of is not None and batches >= of:
            self._next = Run(epoch + 1)
        else:
            self._next = Run(epoch, skip=batches, drawn=drawn)


def _check(state: Any, settings: dict[str, Any]) -> None:
    """Checks a state: what decides the minibatches that are left must be the same."""
    found = state.get("version") if isinstance(state, dict) else type(state).__name__
    if not _is_count(found) or found != VERSION:
        raise ValueError(f"not a state of this loader: version {VERSION} expected, found {found!r}")
    missing = {"seed", "epoch", "batches", "num_batches", "drawn", "generators", "settings"} - state.keys()
    if missing:
        raise ValueError(f"the loader's state lacks {sorted(missing)}: it was truncated or altered")
    _check_place(state)
    _check_generators(state)
    if not isinstance(state["settings"], dict):
        raise _altered(f"settings must be a dict, found {state['settings']!r}")
    for key in {**settings, **state["settings"]}:  # either may have what the other lacks
        saved, value = state["settings"].get(key), settings.get(key)
        if saved != value:
            raise ValueError(
                f"the loader's state was saved with {key}={saved!r}, but this loader has {key}={value!r}; "
                f"make the loader with the saved value to resume"
            )


def _check_place(state: dict[str, Any]) -> None:
    """Checks the seed and the place in the epochs."""
    if isinstance(state["seed"], bool) or not isinstance(state["seed"], int):
        raise _altered(f"seed must be an integer, found {state['seed']!r}")
    for key in ("epoch", "batches", "num_batches"):
        if not _is_count(state[key]) and (key != "num_batches" or state[key] is not None):
            raise _altered(f"{key} must be a whole number, 0 or more, found {state[key]!r}")
    batches, of = state["batches"], state["num_batches"]
    if of is not None and batches > of:
        raise _altered(f"it says that {batches} minibatches of {of} were handed out")


def _check_generators(state: dict[str, Any]) -> None:
    """Checks the states of generators, and how to draw the order again."""
    if not is_list_of_states(state["generators"]):
        raise _altered("generators must hold states of generators")
    drawn = state["drawn"]
    if drawn is None:
        return
    states = drawn.get("states") if isinstance(drawn, dict) else None
    if not states or not is_list_of_states(states) or not isinstance(drawn.get("digest"), str):
        raise _altered("drawn must hold states of generators and a digest")


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _altered(fact: str) -> ValueError:
    return ValueError(f"the loader's state was altered: {fact}")
