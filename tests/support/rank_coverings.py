"""Runs of jobs that go through the combinations of options of loaders over ranks."""

from __future__ import annotations

import itertools
import os
import random
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from pyg_batchgnn.comm import Communicator
from tests.support.rank_graphs import SpreadGraphs
from tests.support.ranks import run_ranks
from tests.support.tiers import ALL, VARIABLE, Slice, in_all, own_slices

Setting = dict[str, Any]
Factors = Mapping[str, Sequence[Any]]
Allowed = Callable[[Mapping[str, Any]], bool]

TIMEOUT = 4 * 3600.0 if ALL else 120.0
#: Seconds for which a rank waits for its peers. A full run may share the machine.
PATIENCE = 600.0 if ALL else 30.0
WORLDS = [*in_all((1, [0], 7)), (2, [0, 1], 1), (3, [0, 1, 1], 6), *in_all((4, [0, 1, 2, 0], 2))]


def over_ranks(test: Any) -> Any:
    """Marks a test with the numbers of ranks, their hosts, and the share of settings that they run:
    every n-th."""
    marks = own_slices, pytest.mark.timeout(TIMEOUT), pytest.mark.parametrize("ranks, hosts, every", WORLDS)
    for mark in marks:
        test = mark(test)
    return test


def run_covering(
    job: Callable[..., int], ranks: int, hosts: Sequence[int], every: int, backend: str = "gloo"
) -> None:
    arguments = {"backend": backend, "every": every}
    results = run_ranks(job, ranks, arguments, hosts=hosts, timeout=TIMEOUT)
    print(f"{results[0].value} settings over {ranks} ranks and {backend} are as in one process")


def check_settings(
    backend: str,
    every: int,
    settings: Callable[[int], list[Setting]],
    first: Sequence[str],
    begin: Callable[[Setting], Any],
    check: Callable[[SpreadGraphs, Any, Setting], None],
) -> int:
    """Checks every n-th of the settings for a number of ranks, in `make test-all` those of its
    slice; returns how many. ``begin`` makes what settings with equal values of the ``first``
    factors share; these are in a row."""
    warnings.simplefilter("ignore")
    with Communicator.create("loader", timeout=PATIENCE, backend=backend) as comm:
        chosen, graphs = settings(comm.size), SpreadGraphs(comm)
        if ALL:
            part = Slice.parse(os.environ[VARIABLE])
            ends = (len(chosen) * one // part.pieces for one in (part.piece - 1, part.piece))
            chosen = chosen[slice(*ends)]
        else:
            chosen = chosen[::every]
        for _, group in itertools.groupby(chosen, lambda one: [one[name] for name in first]):
            alike = list(group)
            shared = begin(alike[0])
            for setting in alike:
                try:
                    check(graphs, shared, setting)
                except Exception as error:
                    raise AssertionError(f"{setting}: {error}") from error
    return len(chosen)


def settings_of(factors: Factors, allowed: Allowed, first: Sequence[str]) -> list[Setting]:
    """Returns settings, the same for the same arguments, that have every allowed value; in
    `make test-all` every three values that are allowed together."""
    draw, rows, together = random.Random(0), [], 3 if ALL else 1
    values = ([(name, value) for value in own] for name, own in factors.items())
    groups = (itertools.product(*some) for some in itertools.combinations(values, together))
    left = dict.fromkeys(one for group in groups for one in group if allowed(dict(one)))
    while left:
        tried = [drawn(dict(next(iter(left))), factors, allowed, draw) for _ in range(50)]
        held = [list(itertools.combinations(row.items(), together)) for row in tried]
        best = max(range(50), key=lambda at: sum(one in left for one in held[at]))
        rows.append(tried[best])
        for one in held[best]:
            left.pop(one, None)
    return sorted(rows, key=lambda row: [factors[name].index(row[name]) for name in first])


def drawn(row: Mapping[str, Any], factors: Factors, allowed: Allowed, draw: random.Random) -> Setting:
    """Returns an allowed setting with the values of ``row``, which some setting has, and others."""
    while True:
        setting = {name: row[name] if name in row else draw.choice(factors[name]) for name in factors}
        if allowed(setting):
            return setting
