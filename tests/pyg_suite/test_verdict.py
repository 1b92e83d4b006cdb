"""The verdict over PyG's tests keeps the list of exceptions true."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pyg_suite.test_pyg_suite import EXCEPTIONS
from tests.pyg_suite.verdict import Outcome, complaints, read_exceptions, summary

LISTED = {"a.py::test_one": "reason", "a.py::test_two[x]": "reason"}
RIGHT = [
    Outcome("a.py::test_one[1]", "failed", "no such operator"),
    Outcome("a.py::test_one[2]", "skipped", "still to do"),
    Outcome("a.py::test_two[x]", "failed", "refused"),
    Outcome("a.py::test_two[y]", "passed"),
    Outcome("a.py::test_three", "skipped", "Package torch_frame not found"),
]


def test_nothing_to_complain_about() -> None:
    assert complaints(RIGHT, LISTED) == []
    assert summary(RIGHT, LISTED) == (
        "1 of PyG's 5 tests passed; exceptions: 2 failed, 1 skipped; skipped for optional packages: 1 "
        "(Package torch_frame not found); others: 0 failed, 0 skipped"
    )


@pytest.mark.parametrize(
    ("outcome", "complaint"),
    [
        (Outcome("a.py::test_four", "failed", "boom"), "a.py::test_four failed: boom"),
        (Outcome("a.py::test_four", "skipped", "why not"), "a.py::test_four skipped: why not"),
        (Outcome("a.py::test_one[3]", "passed"), "a.py::test_one[3] passes: take it off the list"),
    ],
)
def test_outcomes_that_are_not_as_listed(outcome: Outcome, complaint: str) -> None:
    (found,) = complaints([*RIGHT, outcome], LISTED)
    assert found.startswith(complaint)


def test_an_exception_that_is_no_test() -> None:
    (found,) = complaints(RIGHT, {**LISTED, "a.py::test_gone": "reason"})
    assert found == "a.py::test_gone is an exception, but there is no such test"


def test_each_exception_has_a_reason(tmp_path: Path) -> None:
    assert all(len(reason) > 20 for reason in read_exceptions(EXCEPTIONS).values())
    path = tmp_path / "list.txt"
    path.write_text("# a comment\n\na.py::test_one\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"write 'test id \| reason'"):
        read_exceptions(path)
