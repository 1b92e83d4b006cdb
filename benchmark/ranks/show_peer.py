"""The tables of epochs against DistDGL."""

from __future__ import annotations

from statistics import mean

from benchmark.ranks.peer import EPOCHS
from benchmark.support.rounds import typical
from benchmark.support.tables import Result, by, of_ranks, table

PEER = "DistDGL"
#: The phases that make minibatches: DistDGL's, and ours.
THEIR_PREPARATION, OUR_PREPARATION = ("sample", "features"), ("prepare",)


def training(part: Result) -> str:
    """Returns seconds of an epoch and of its parts, and remote rows."""
    found = {}
    for setting, entries in by(part["series"], "setting"):
        theirs = setting == PEER
        found[setting] = {
            "seconds": _seconds(entries),
            "preparing": _phases(entries, THEIR_PREPARATION if theirs else OUR_PREPARATION),
            "forward": _phases(entries, ("forward",)),
            "backward": _phases(entries, ("backward",)),
            # A loader's statistics are those of all epochs.
            "rows": mean(of_ranks(entries[0], "remote_rows"))
            if theirs
            else mean(of_ranks(entries[0], "stats", "rows_fetched")) / EPOCHS,
        }
    shown = ("seconds", "preparing", "forward", "backward")
    header = ["against DistDGL, 2 hosts", "seconds per epoch", "preparing", "forward", "backward and update"]
    header += ["remote rows per rank", "times as fast", "preparing", "times fewer rows"]
    return table(header, _lines(found, shown, ("seconds", "preparing", "rows")))


def preparation(part: Result) -> str:
    """Returns seconds of preparing the minibatches of an epoch, and remote rows."""
    found = {}
    for setting, entries in by(part["series"], "setting"):
        rows = "remote_rows" if setting == PEER else "rows_fetched"
        found[setting] = {"seconds": _seconds(entries), "rows": mean(of_ranks(entries[0], rows))}
    header = ["preparing an epoch against DistDGL, 2 hosts", "seconds", "remote rows per rank"]
    header += ["times as fast", "times fewer rows"]
    return table(header, _lines(found, ("seconds",), ("seconds", "rows")))


def _lines(
    found: dict[str, dict[str, float]], shown: tuple[str, ...], compared: tuple[str, ...]
) -> list[list[str]]:
    """Returns a line per setting: seconds, remote rows, and how many times less than DistDGL's."""
    peer = found[PEER]
    return [
        [
            setting,
            *(f"{one[name]:.2f}" for name in shown),
            f"{one['rows']:,.0f}",
            *(f"{peer[name] / one[name]:.1f}x" for name in compared),
        ]
        for setting, one in found.items()
    ]


def _seconds(entries: list[Result]) -> float:
    """Returns the slowest rank's seconds, the median of the rounds."""
    return typical(max(of_ranks(one, "wall")) for one in entries)


def _phases(entries: list[Result], names: tuple[str, ...]) -> float:
    """Returns the mean seconds of ranks in some phases together, the median of the rounds."""
    return typical(sum(mean(of_ranks(one, "phases", name)) for name in names) for one in entries)
