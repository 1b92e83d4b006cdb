"""The work of historical embeddings, in numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass
class LayerCounts:
    """The counts of one layer's cache, or of the rows that were pushed for it.

    Attributes:
        searched: halo nodes that a minibatch needed rows of.
        found: those that the cache had.
        edges: edges into own nodes that were sampled.
        edges_left_out: those whose source had no row.
        candidates: rows that peers have in their halo, before the choice.
        pushed: rows that were pushed.
        pushed_bytes: their bytes, original ids included.
    """

    searched: int = 0
    found: int = 0
    edges: int = 0
    edges_left_out: int = 0
    candidates: int = 0
    pushed: int = 0
    pushed_bytes: int = 0

    @property
    def hit_rate(self) -> float:
        """The share of the searched nodes that were found; 1 if none was searched."""
        return self.found / self.searched if self.searched else 1.0


@dataclass
class HistoricalStats:
    """The counts of a rank since its caches were made.

    Attributes:
        layers: the counts of each layer's input rows; the first are the features.
        steps: steps that have begun.
        features_fetched: rows of features that came from other hosts, once.
        feature_bytes: their bytes, ids included.
        exchange_seconds: seconds in which rows were exchanged, hidden or not.
        waited_seconds: those in which training waited for rows.
    """

    layers: list[LayerCounts] = field(default_factory=list)
    steps: int = 0
    features_fetched: int = 0
    feature_bytes: int = 0
    exchange_seconds: float = 0.0
    waited_seconds: float = 0.0

    @property
    def hidden_seconds(self) -> float:
        """The seconds of exchange beside which training went on."""
        return max(0.0, self.exchange_seconds - self.waited_seconds)

    def layer(self, number: int) -> LayerCounts:
        """Returns the counts of a layer's input, which begin at 0."""
        while len(self.layers) <= number:
            self.layers.append(LayerCounts())
        return self.layers[number]


def hit_rates(stats: Sequence[HistoricalStats]) -> list[float]:
    """Returns the hit rate of each layer over some ranks."""
    layers = max((len(one.layers) for one in stats), default=0)
    searched = [sum(one.layer(at).searched for one in stats) for at in range(layers)]
    found = [sum(one.layer(at).found for one in stats) for at in range(layers)]
    return [hits / all_ if all_ else 1.0 for hits, all_ in zip(found, searched, strict=True)]
