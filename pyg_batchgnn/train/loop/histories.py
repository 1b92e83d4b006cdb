"""The historical embeddings of all ranks, in a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from safetensors.torch import load, save
from torch import Tensor

from pyg_batchgnn.history import HistoricalCaches
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
