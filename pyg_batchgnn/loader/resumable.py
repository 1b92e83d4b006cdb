"""A loader that can be stopped and resumed inside an epoch, as torchdata's stateful loaders can."""

from __future__ import annotations

from typing import Any

from pyg_batchgnn.loader.generators import check_states, generator_states, set_generators
from pyg_batchgnn.loader.order import KeyedShuffleSampler
from pyg_batchgnn.loader.position import Position
from pyg_batchgnn.loader.setup import Composition
from pyg_batchgnn.loader.workers import WorkerPool


class Resumable:
    """Epochs and states, for a DataLoader that has these attributes."""

    _position: Position
    _parts: Composition
    _pool: WorkerPool | None

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch of the next ``iter(loader)`` and of ``loader(index)``."""
        self._position.set_epoch(epoch)

    @property
    def epoch(self) -> int:
        """The epoch of the latest iterator, of `set_epoch` or of a loaded state.

        The one that came last counts.
        """
        return self._position.run.epoch

    @property
    def upcoming_epoch(self) -> int:
        """The epoch of the next ``iter(loader)``."""
        return self._position.upcoming.epoch

    @property
    def steps_left(self) -> int:
        """The number of minibatches that the next ``iter(loader)`` hands out.

        It is below ``len(loader)`` after `load_state_dict`.

        Raises:
            TypeError: the user's batch sampler has no length.
        """
        left = self._parts.schedule.length(self._position.upcoming.skip)
        if left is None:
            raise TypeError(
                "the loader's batch_sampler has no len(): how many minibatches are left is unknown"
            )
        return left

    @property
    def seed(self) -> int:
        """The key of shuffling and sampling, the same on every rank."""
        return self._parts.pipeline.sampler.seed

    def state_dict(self) -> dict[str, Any]:
        """Returns the place of the latest iterator, as a plain dictionary that JSON can hold."""
        return self._position.state_dict(self.seed, self._settings(), generator_states(self))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Lets the next ``iter(loader)`` hand out exactly the minibatches that were left.

        A sampler with a state of its own, other than a ``generator`` attribute, must be brought
        back by its owner. That it draws the same minibatches again is checked when iterating
        begins.

        Raises:
            ValueError: the state is of another loader; the message names the setting that differs.
        """
        self._position.check(state, self._settings())
        if state["drawn"] is not None:  # the first state is that of torch's default generator
            check_states(self, state["drawn"]["states"][1:])
        set_generators(self, state["generators"])
        self._position.load_state_dict(state)
        if state["seed"] != self.seed:
            self._reseed(state["seed"])
            self._pool = None  # persistent workers sample with the old one

    def _reseed(self, seed: int) -> None:
        """Sets the key of shuffling and sampling."""
        loader: Any = self
        for sampler in self._parts.samplers:
            sampler.seed = seed
        if isinstance(loader.sampler, KeyedShuffleSampler):
            loader.sampler.seed = seed

    def _settings(self) -> dict[str, Any]:
        """Returns what decides, beside seed and epoch, which minibatches there are."""
        loader: Any = self
        return {**self._parts.shape(loader), **self._parts.schedule.settings()}
