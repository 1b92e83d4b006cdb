"""Runs of jobs that go through the combinations of options of loaders over ranks."""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

import pytest

from tests.support.ranks import run_ranks
from tests.support.tiers import ALL, VARIABLE, Slice, in_all


def one_of_each(
    factors: Mapping[str, Sequence[Any]], allowed: Callable[[Mapping[str, Any]], bool]
) -> list[dict[str, Any]]:
    """Returns settings, the same for the same arguments, that have every allowed value."""
    draw, rows = random.Random(0), []
    values = (((name, value),) for name, own in factors.items() for value in own)
    left = dict.fromkeys(value for value in values if allowed(dict(value)))
    while left:
        first = dict(next(iter(left)))
        tried = [drawn(first, factors, allowed, draw) for _ in range(50)]
        rows.append(max(tried, key=lambda row: sum((one,) in left for one in row.items())))
        for one in rows[-1].items():
            left.pop((one,), None)
    return rows


def product(
    factors: Mapping[str, Sequence[Any]], allowed: Callable[[Mapping[str, Any]], bool]
) -> list[dict[str, Any]]:
    """Returns all allowed settings."""
    rows = (dict(zip(factors, values, strict=True)) for values in itertools.product(*factors.values()))
    return [row for row in rows if allowed(row)]


def drawn(
    row: Mapping[str, Any],
    factors: Mapping[str, Sequence[Any]],
    allowed: Callable[[Mapping[str, Any]], bool],
    draw: random.Random,
) -> dict[str, Any]:
    """Returns an allowed setting with the values of ``row``, which some setting has, and others."""
    while True:
        setting = {name: row[name] if name in row else draw.choice(factors[name]) for name in factors}
        if allowed(setting):
            return setting


Setting = dict[str, Any]
R = TypeVar("R")


@dataclass(frozen=True)
class Covering:
    """The share of all settings that a run goes through: every n-th of slice ``piece``, from 1.
    ``full``: settings are all that are allowed, or else some that have every value."""

    full: bool = False
    every: int = 1
    piece: int = 1
    pieces: int = 1

    @classmethod
    def parse(cls, text: str, every: int) -> Covering:
        """Returns what a value of the environment variable asks for; empty: every n-th setting."""
        if not text:
            return cls(every=every)
        part = Slice.parse(text)
        return cls(True, 1, part.piece, part.pieces)

    def take(self, settings: Sequence[Setting]) -> Sequence[Setting]:
        """Returns the settings that are run. They keep their order."""
        begin, end = (len(settings) * one // self.pieces for one in (self.piece - 1, self.piece))
        return settings[begin : end : self.every]


TIMEOUT = 4 * 3600.0 if ALL else 120.0
#: Seconds for which a rank waits for its peers. A full run may share the machine.
PATIENCE = 600.0 if ALL else 30.0

#: Marks a test with the numbers of ranks, their hosts, and the share of combinations that they run:
#: every n-th.
over_ranks = pytest.mark.parametrize(
    ("ranks", "hosts", "every"),
    [*in_all((1, [0], 7)), (2, [0, 1], 1), (3, [0, 1, 1], 4), *in_all((4, [0, 1, 2, 0], 2))],
    ids=str,
)


def run_covering(
    job: Callable[..., int], ranks: int, hosts: Sequence[int], every: int, backend: str = "gloo"
) -> None:
    """Runs every n-th combination of a job, or those that the environment asks for."""
    covering = Covering.parse(os.environ.get(VARIABLE, ""), every)
    arguments = {"backend": backend, "patience": PATIENCE, "covering": asdict(covering)}
    results = run_ranks(job, ranks, arguments, hosts=hosts, timeout=TIMEOUT)
    print(f"{results[0].value} settings over {ranks} ranks and {backend} are as in one process")


def settings_of(
    factors: Mapping[str, Sequence[Any]],
    allowed: Callable[[Mapping[str, Any]], bool],
    first: Sequence[str],
    full: bool,
) -> list[Setting]:
    rows = (product if full else one_of_each)(factors, allowed)
    return sorted(rows, key=lambda row: [factors[name].index(row[name]) for name in first])


def run_settings(
    settings: Sequence[Setting],
    first: Sequence[str],
    begin: Callable[[Setting], R],
    check: Callable[[R, Setting], None],
) -> int:
    """Checks settings and returns their number. ``begin`` makes what settings with equal values of
    the ``first`` factors share; these must be in a row."""
    for _, group in itertools.groupby(settings, lambda one: [one[name] for name in first]):
        alike = list(group)
        shared = begin(alike[0])
        for setting in alike:
            try:
                check(shared, setting)
            except Exception as error:
                raise AssertionError(f"{setting}: {error}") from error
    return len(settings)
