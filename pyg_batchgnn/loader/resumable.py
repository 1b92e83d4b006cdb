"""A loader that can be stopped and resumed in the middle of an epoch, as torchdata's stateful loaders can."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyg_batchgnn.loader.order import KeyedShuffleSampler
from pyg_batchgnn.loader.position import Position
from pyg_batchgnn.loader.schedule import generator_states, order_of, set_generators
from pyg_batchgnn.ops import digest_text, minibatch_key

if TYPE_CHECKING:
    from pyg_batchgnn.loader.pipeline import Pipeline
    from pyg_batchgnn.loader.workers import WorkerPool


class Resumable:
    """Epochs and states, for a DataLoader that has these attributes."""

    _position: Position
    _pipeline: Pipeline
    _pool: WorkerPool | None

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch of the next ``iter(loader)`` and of ``loader(index)``."""
        self._position.set_epoch(epoch)

    @property
    def epoch(self) -> int:
        """The epoch of the latest iterator, of `set_epoch` or of a loaded state, whichever came last."""
        return self._position.run.epoch

    @property
    def upcoming_epoch(self) -> int:
        """The epoch of the next ``iter(loader)``."""
        return self._position.upcoming.epoch

    @property
    def steps_left(self) -> int:
        """Minibatches that the next ``iter(loader)`` hands out, where that is known beforehand: fewer than
        ``len(loader)`` after `load_state_dict`."""
        loader: Any = self
        return max(len(loader) - self._position.upcoming.skip, 0)

    @property
    def seed(self) -> int:
        """The key of shuffling and sampling."""
        return self._pipeline.sampler.seed

    def state_dict(self) -> dict[str, Any]:
        """Where the latest iterator stands: a plain dictionary that JSON can hold."""
        return self._position.state_dict(self.seed, self._settings(), generator_states(self))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Lets the next ``iter(loader)`` hand out exactly the minibatches that were left.

        A sampler with a state of its own, other than a ``generator`` attribute, must be brought back by its
        owner. That it draws the same minibatches again is checked when iterating begins.

        Raises:
            ValueError: a state of another loader; the message names the setting that differs.
        """
        self._position.check(state, self._settings())
        set_generators(self, state["generators"])
        self._position.load_state_dict(state)
        if state["seed"] != self.seed:
            self._reseed(state["seed"])

    def _reseed(self, seed: int) -> None:
        loader: Any = self
        self._pipeline.sampler.seed = loader.node_sampler.macrobatch.seed = seed
        if isinstance(loader.sampler, KeyedShuffleSampler):
            loader.sampler.seed = seed
        self._pool = None  # persistent workers sample with the old one

    def _settings(self) -> dict[str, Any]:
        """What decides, beside seed and epoch, which minibatches there are."""
        loader: Any = self
        sampler, nodes = self._pipeline.sampler, loader.input_data.node
        return {
            "num_nodes": sampler.graph.num_nodes,
            "num_edges": sampler.graph.num_edges,
            "num_seeds": nodes.numel(),
            "seeds_digest": digest_text(minibatch_key(nodes.long().contiguous())),
            "batch_size": loader.batch_size,
            "drop_last": loader.drop_last,
            "fanouts": list(sampler.plan.fanouts),
            "replacement": sampler.plan.replacement.value,
            "order": order_of(loader).value,
            "schedule": "global",  # over ranks, the one that has these minibatches
        }
