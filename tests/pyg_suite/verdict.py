"""The verdict over a run of PyG's tests: which outcomes are as the list of exceptions says."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

#: The reason that PyG's `withPackage` gives.
_NO_PACKAGE = re.compile(r"Packages? .* not found")


@dataclass(frozen=True)
class Outcome:
    """The outcome of one test.

    Attributes:
        test: its id, a path in the checkout and a name.
        result: "passed", "failed" or "skipped".
        reason: says why it failed or was skipped.
    """

    test: str
    result: str
    reason: str = ""

    @property
    def lacks_package(self) -> bool:
        """True if the test was skipped because an optional package is not installed."""
        return self.result == "skipped" and _NO_PACKAGE.search(self.reason) is not None


def read_exceptions(path: Path) -> dict[str, str]:
    """Returns the tests that need not pass, and the reason of each.

    Each line is ``test id | reason``. Empty lines and those that begin with ``#`` say nothing. An
    id without parameters stands for all cases of the test.
    """
    lines = (line.strip() for line in path.read_text(encoding="utf-8").splitlines())
    found = {}
    for line in lines:
        if line and not line.startswith("#"):
            test, bar, reason = line.partition(" | ")
            if not bar or not reason.strip():
                raise ValueError(f"{path} has the line {line!r}; write 'test id | reason'")
            found[test.strip()] = reason.strip()
    return found


def complaints(outcomes: Sequence[Outcome], exceptions: Mapping[str, str]) -> list[str]:
    """Returns what is not as it should be; nothing if all tests pass but for the exceptions."""
    found = []
    for one in outcomes:
        listed = _entry(one, exceptions) is not None
        if listed and one.result == "passed":
            found.append(f"{one.test} passes: take it off the list of exceptions")
        if not listed and one.result != "passed" and not one.lacks_package:
            found.append(f"{one.test} {one.result}: {one.reason}")
    met = {_entry(one, exceptions) for one in outcomes}
    found += [f"{test} is an exception, but there is no such test" for test in exceptions if test not in met]
    return found


def summary(outcomes: Sequence[Outcome], exceptions: Mapping[str, str]) -> str:
    """Returns how many tests passed, failed and were skipped, and why they were skipped."""
    listed = [one for one in outcomes if _entry(one, exceptions) is not None]
    others = [one for one in outcomes if _entry(one, exceptions) is None]
    optional = [one for one in others if one.lacks_package]
    reasons = ", ".join(sorted({one.reason for one in optional})) or "none"
    return (
        f"{_count(others, 'passed')} of PyG's {len(outcomes)} tests passed; exceptions: "
        f"{_count(listed, 'failed')} failed, {_count(listed, 'skipped')} skipped; skipped for optional "
        f"packages: {len(optional)} ({reasons}); others: {_count(others, 'failed')} failed, "
        f"{_count(others, 'skipped') - len(optional)} skipped"
    )


def _count(outcomes: Iterable[Outcome], result: str) -> int:
    return sum(one.result == result for one in outcomes)


def _entry(outcome: Outcome, exceptions: Mapping[str, str]) -> str | None:
    """Returns the entry of the list that a test belongs to, or None."""
    return next((one for one in (outcome.test, outcome.test.partition("[")[0]) if one in exceptions), None)
