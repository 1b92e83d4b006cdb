"""The two tiers of tests. `make test` has every behaviour once, `make test-all` has all tests.

``PYG_BATCHGNN_TEST_ALL`` says which tests a run has:

- nothing: those of `make test`;
- ``1``: all of them;
- ``3/8``: the third of eight slices of all.

Marks and functions say what `make test` leaves out:

- `all_only`: a test, or a value of a parameter (`in_all`);
- `pairs`, `each`: of a product of parameters all but cases that have every pair of values of two
  parameters, or every value;
- `examples`: most examples of Hypothesis.

Tests that are about unchanged files (`unchanged`) are left out as well. With
``PYG_BATCHGNN_TEST_UNCHANGED`` they run.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import re
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

VARIABLE = "PYG_BATCHGNN_TEST_ALL"
UNCHANGED = "PYG_BATCHGNN_TEST_UNCHANGED"
ALL = bool(os.environ.get(VARIABLE))
#: Examples of Hypothesis in either tier. A test may ask for more, and gets them in `make test-all`.
FEW, MANY = 15, 150
STAMPS = Path(__file__).parents[2] / "build" / "tests"

all_only = pytest.mark.all_only
pairs = pytest.mark.covering(2)
each = pytest.mark.covering(1)
#: Marks a test that takes its own slice of what it goes through: every slice has it.
own_slices = pytest.mark.own_slices
MARKERS = {
    "all_only": "only `make test-all` runs it",
    "covering(n)": "`make test` has every value (1) or pair of values (2) of the parameters",
    "own_slices": "it is in every slice of `make test-all`, and takes its own slice",
}


@dataclass(frozen=True)
class Slice:
    """A piece of something that is cut into ``pieces``, number ``piece``, from 1."""

    piece: int = 1
    pieces: int = 1

    @classmethod
    def parse(cls, text: str) -> Slice:
        """Returns the slice that a value of the environment variable asks for, 1 for the whole.

        Raises:
            ValueError: the text is neither 1 nor a slice.
        """
        found = re.fullmatch(r"(\d+)/(\d+)", "1/1" if text == "1" else text)
        piece, pieces = map(int, found.groups()) if found else (0, 0)
        if not 1 <= piece <= pieces:
            raise ValueError(f"{VARIABLE} must be 1 for all settings or a slice like 3/8, not {text!r}")
        return cls(piece, pieces)

    def has(self, name: str) -> bool:
        """Returns whether something with a name, such as a test, is in the slice."""
        return zlib.crc32(name.encode()) % self.pieces == self.piece - 1


def in_all(*values: Any) -> list[Any]:
    """Returns values of a parameter that only `make test-all` takes."""
    return [
        pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=all_only) for value in values
    ]


def examples(number: int = MANY, **options: Any) -> settings:
    """Returns settings of Hypothesis: at most `FEW` examples, in `make test-all` at least `MANY`.

    Args:
        number: how many examples a test needs that is run by itself.
        options: other settings.
    """
    return settings(max_examples=max(number, MANY) if ALL else min(number, FEW), **options)


def fixed(number: int) -> settings:
    """Returns `examples` that are the same in every run and on every machine."""
    health = [HealthCheck.too_slow, HealthCheck.data_too_large]
    return examples(number, derandomize=True, database=None, deadline=None, suppress_health_check=health)


def chosen(items: list[pytest.Item]) -> list[pytest.Item]:
    """Returns the tests that a run has, in order."""
    if ALL:
        part = Slice.parse(os.environ[VARIABLE])
        return [
            item for item in items if item.get_closest_marker("own_slices") or part.has(_function_of(item))
        ]
    left = [item for item in items if item.get_closest_marker("all_only") is None]
    groups: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in left:
        if item.get_closest_marker("covering") is not None:
            groups[_function_of(item)].append(item)
    dropped: set[pytest.Item] = set()
    for group in groups.values():
        mark = group[0].get_closest_marker("covering")
        assert mark is not None
        kept = covering([item.callspec.indices for item in group], mark.args[0])  # type: ignore[attr-defined]
        dropped.update(item for at, item in enumerate(group) if at not in kept)
    return [item for item in left if item not in dropped]


def covering(cases: list[dict[str, int]], strength: int) -> set[int]:
    """Returns the places of cases that have all combinations of values that any case has.

    Args:
        cases: the number of the value of each parameter.
        strength: how many parameters a combination has.
    """
    combinations = [set(itertools.combinations(sorted(case.items()), strength)) for case in cases]
    if any(len(case) < strength for case in cases):
        return set(range(len(cases)))
    missing = set().union(*combinations)
    kept = set()
    while missing:
        best = max(range(len(cases)), key=lambda at: len(combinations[at] & missing))
        kept.add(best)
        missing -= combinations[best]
    return kept


@dataclass(frozen=True)
class Stamp:
    """A file that says for what contents a test was green.

    Attributes:
        path: the file.
        digest: the digest of the contents at hand.
    """

    path: Path
    digest: str

    @classmethod
    def of(cls, name: str, words: Iterable[str | bytes]) -> Stamp:
        """Returns the stamp of some contents under a name."""
        digest = hashlib.sha256()
        for word in words:
            digest.update((word.encode() if isinstance(word, str) else word) + b"\0")
        return cls(STAMPS / name.replace("/", "-"), digest.hexdigest())

    def write(self) -> None:
        """Says that the test was green."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(self.digest)

    @property
    def is_due(self) -> bool:
        """True where the test is to run: contents have changed, or the run asks for all tests."""
        if ALL or os.environ.get(UNCHANGED):
            return True
        return not self.path.exists() or self.path.read_text() != self.digest


def contents(paths: Iterable[Path]) -> Iterator[str | bytes]:
    """Yields the names and contents of files, in order."""
    for path in sorted(paths):
        yield from (path.name, path.read_bytes())


def _function_of(item: pytest.Item) -> str:
    return item.nodeid.partition("[")[0]
