"""The two tiers of tests. `make test` has every behaviour once, `make test-all` has all tests."""

from __future__ import annotations

import itertools
import os
import re
import zlib
from collections import defaultdict
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

VARIABLE = "PYG_BATCHGNN_TEST_ALL"
ALL = bool(os.environ.get(VARIABLE))
#: Examples of Hypothesis in either tier. A test may ask for more, and gets them in `make test-all`.
FEW, MANY = 15, 150

all_only = pytest.mark.all_only
each = pytest.mark.covering(1)
product = pytest.mark.covering(9)
#: Marks a test that takes its own slice of what it goes through: every slice has it.
own_slices = pytest.mark.own_slices
#: Marks a test of results that `tests/ops/test_thread_pool.py` runs with narrower vectors, too.
every_level = pytest.mark.every_level
MARKERS = {
    "all_only": "only `make test-all` runs it",
    "covering(n)": "`make test` has every choice of values of n parameters; every pair by default",
    "every_level": "it is run with fewer vector instructions, too",
    "own_slices": "it is in every slice of `make test-all`, and takes its own slice",
}


@dataclass(frozen=True)
class Slice:
    """A piece of something that is cut into ``pieces``, number ``piece``, from 1."""

    piece: int = 1
    pieces: int = 1

    @classmethod
    def parse(cls, text: str) -> Slice:
        """Returns the slice that a value of the environment variable asks for, 1 for the whole."""
        found = re.fullmatch(r"(\d+)/(\d+)", "1/1" if text == "1" else text)
        piece, pieces = map(int, found.groups()) if found else (0, 0)
        if not 1 <= piece <= pieces:
            raise ValueError(f"{VARIABLE} must be 1 for all settings or a slice like 3/8, not {text!r}")
        return cls(piece, pieces)

    def has(self, name: str) -> bool:
        return zlib.crc32(name.encode()) % self.pieces == self.piece - 1


def in_all(*values: Any) -> list[Any]:
    """Returns values of a parameter that only `make test-all` takes."""
    return [
        pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=all_only) for value in values
    ]


def some(values: Iterable[Any], every: int = 3) -> list[Any]:
    """Returns values of a parameter, of which `make test` takes each ``every``-th alone."""
    return [one if at % every == 0 else in_all(one)[0] for at, one in enumerate(values)]


#: Numbers of ranks and the host of each. Three ranks on two hosts have peers of either kind.
WORLDS = [*in_all((1, [0]), (2, [0, 1])), (3, [0, 1, 1]), *in_all((4, [0, 1, 2, 0]))]


def examples(number: int = MANY, **options: Any) -> settings:
    """At most `FEW` examples, in `make test-all` at least `MANY`."""
    return settings(max_examples=max(number, MANY) if ALL else min(number, FEW), **options)


def fixed(number: int) -> settings:
    """Returns `examples` that are the same in every run and on every machine."""
    health = [HealthCheck.too_slow, HealthCheck.data_too_large]
    return examples(number, derandomize=True, database=None, deadline=None, suppress_health_check=health)


def chosen(items: list[pytest.Item]) -> list[pytest.Item]:
    """Returns the tests that a run has, in order."""
    if ALL:
        part = Slice.parse(os.environ[VARIABLE])
        return [one for one in items if one.get_closest_marker("own_slices") or part.has(_function_of(one))]
    left = [item for item in items if item.get_closest_marker("all_only") is None]
    groups: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in left:
        groups[_function_of(item)].append(item)
    kept: set[pytest.Item] = set()
    for group in groups.values():
        mark = group[0].get_closest_marker("covering")
        found = covering([_values_of(item) for item in group], mark.args[0] if mark else 2)
        kept.update(group[at] for at in found)
    return [item for item in left if item in kept]


def covering(cases: list[dict[str, Hashable]], strength: int) -> set[int]:
    """Returns the places of cases that have every choice of values of some parameters."""
    if any(len(case) <= strength for case in cases):
        return set(range(len(cases)))
    choices = [set(itertools.combinations(case.items(), strength)) for case in cases]
    missing = set().union(*choices)
    kept = set()
    while missing:
        best = max(range(len(cases)), key=lambda at: len(choices[at] & missing))
        kept.add(best)
        missing -= choices[best]
    return kept


def _function_of(item: pytest.Item) -> str:
    return item.nodeid.partition("[")[0]


def _values_of(item: pytest.Item) -> dict[str, Hashable]:
    """Returns the values of each list of parameters of a test, by their names."""
    params = dict(getattr(getattr(item, "callspec", None), "params", {}))
    found: dict[str, Hashable] = {}
    for mark in item.iter_markers("parametrize"):
        names = mark.args[0].split(",") if isinstance(mark.args[0], str) else mark.args[0]
        found[str(names)] = tuple(id(params.pop(name.strip(), None)) for name in names)
    return {**found, **{name: id(value) for name, value in params.items()}}
