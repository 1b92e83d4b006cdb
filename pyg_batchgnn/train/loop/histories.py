"""The historical embeddings of all ranks, in checkpoints and results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from safetensors.torch import load, save
from torch import Tensor

from pyg_batchgnn.history import HistoricalCaches, HistoricalStats, LayerCounts, hit_rates
from pyg_batchgnn.train.errors import TrainError
from pyg_batchgnn.train.ranks import Ranks


def gather_histories(history: HistoricalCaches | None, ranks: Ranks) -> list[dict[str, Tensor]]:
    """Returns the states of all ranks' caches on the first rank, by rank; collective.

    On other ranks, and in a run without caches, the states are empty.
    """
    nothing: list[dict[str, Tensor]] = [{} for _ in range(ranks.size)]
    if history is None:
        return nothing
    every = ranks.bytes_to_first(save(history.state_dict()))
    return [load(data) for data in every] or nothing


def restore_history(path: Path, history: HistoricalCaches | None, state: Mapping[str, Tensor]) -> None:
    """Lets a rank's caches go on from the checkpoint at `path`.

    Raises:
        TrainError: the checkpoint has no such state.
    """
    if history is None:
        return
    try:
        history.load_state_dict(state)
    except ValueError as error:
        raise TrainError(f"{path}: does not fit the historical embeddings: {error}") from None


def history_figures(history: HistoricalCaches | None, ranks: Ranks) -> dict[str, Any] | None:
    """Returns figures of the caches since this process began; collective. None without caches.

    They are the hit rate of each layer's input, the share of edges that were left out of each
    layer, the rows and bytes that all ranks fetched once and that they pushed, and the mean seconds
    of exchange over ranks: all of them, and those in which training waited.
    """
    if history is None:
        return None
    every = [_stats(values) for values in ranks.values(asdict(history.stats()))]
    layers = [one for stats in every for one in stats.layers]
    return {
        "hit_rates": hit_rates(every),
        "edges_left_out": [
            _share(
                sum(one.layer(at).edges_left_out for one in every), sum(one.layer(at).edges for one in every)
            )
            for at in range(len(every[0].layers))
        ],
        "features_fetched": sum(one.features_fetched for one in every),
        "feature_bytes": sum(one.feature_bytes for one in every),
        "rows_pushed": sum(one.pushed for one in layers),
        "bytes_pushed": sum(one.pushed_bytes for one in layers),
        "exchange_seconds": sum(one.exchange_seconds for one in every) / len(every),
        "waited_seconds": sum(one.waited_seconds for one in every) / len(every),
    }


def _stats(values: dict[str, Any]) -> HistoricalStats:
    return HistoricalStats(**{**values, "layers": [LayerCounts(**one) for one in values["layers"]]})


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0
