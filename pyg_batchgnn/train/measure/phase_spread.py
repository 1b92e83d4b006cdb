"""Seconds by phase over the ranks of a run."""

from __future__ import annotations

from dataclasses import dataclass

from pyg_batchgnn.train.measure.phases import PhaseClock
from pyg_batchgnn.train.ranks import Ranks


@dataclass(frozen=True)
class PhaseSpread:
    """Of each phase by its name.

    Attributes:
        mean: of all ranks.
        ranks: how many there are.
        ranges: least and most seconds of a rank; empty with one rank.
    """

    mean: dict[str, float]
    ranks: int
    ranges: dict[str, list[float]]


def spread_over_ranks(clock: PhaseClock, ranks: Ranks) -> PhaseSpread:
    """The spread of every rank's clock; collective."""
    seconds = clock.to_dict()
    table = ranks.table(list(seconds.values()))
    mean = dict(zip(seconds, table.mean(dim=0).tolist(), strict=True))
    if ranks.is_alone:
        return PhaseSpread(mean, 1, {})
    least, most = table.amin(dim=0).tolist(), table.amax(dim=0).tolist()
    ranges = {name: list(ends) for name, *ends in zip(seconds, least, most, strict=True)}
    return PhaseSpread(mean, ranks.size, ranges)
