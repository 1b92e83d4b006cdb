"""The seconds of each phase over the ranks of a run."""

from __future__ import annotations

from dataclasses import dataclass

from pyg_batchgnn.train.measure.phases import PhaseClock
from pyg_batchgnn.train.ranks import Ranks


@dataclass(frozen=True)
class PhaseSpread:
    """The mean and the range of each phase's seconds over the ranks.

    Attributes:
        mean: seconds of each phase by its name, the mean over ranks.
        ranks: the number of ranks.
        ranges: least and most seconds of a rank by phase; empty with one rank.
    """

    mean: dict[str, float]
    ranks: int
    ranges: dict[str, list[float]]


def spread_over_ranks(clock: PhaseClock, ranks: Ranks) -> PhaseSpread:
    """Returns the spread of all ranks' clocks; collective."""
    seconds = clock.to_dict()
    table = ranks.table(list(seconds.values()))
    mean = dict(zip(seconds, table.mean(dim=0).tolist(), strict=True))
    if ranks.is_alone:
        return PhaseSpread(mean, 1, {})
    least, most = table.amin(dim=0).tolist(), table.amax(dim=0).tolist()
    ranges = {name: list(ends) for name, *ends in zip(seconds, least, most, strict=True)}
    return PhaseSpread(mean, ranks.size, ranges)
