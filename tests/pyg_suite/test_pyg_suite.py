"""PyG's own tests pass with this package's classes: those of neighbour loaders and samplers with
ours in their places, those of layers and models with every call repeated by accelerated copies."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from benchmark.pyg_scripts.measure import missing, pyg_checkout
from tests.support.programs import run_python

#: The reason that PyG's `withPackage` gives.
_NO_PACKAGE = re.compile(r"Packages? .* not found")


@dataclass(frozen=True)
class Outcome:
    """The outcome of one test."""

    test: str
    result: str
    reason: str = ""

    @property
    def lacks_package(self) -> bool:
        return self.result == "skipped" and _NO_PACKAGE.search(self.reason) is not None


def read_exceptions(path: Path) -> dict[str, str]:
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
    return next((one for one in (outcome.test, outcome.test.partition("[")[0]) if one in exceptions), None)


EXCEPTIONS = Path(__file__).with_name("exceptions.txt")
FILES = (
    "test/loader/test_neighbor_loader.py",
    "test/loader/test_link_neighbor_loader.py",
    "test/loader/test_hgt_loader.py",
    "test/loader/test_cache.py",
    "test/loader/test_zip_loader.py",
    "test/loader/test_imbalanced_sampler.py",
    "test/sampler",
)


#: Files of tests of layers and models, and of which so manieth cases are run.
LAYERS_AND_MODELS = {
    "test/nn/conv": 1,
    "test/nn/models/test_basic_gnn.py": 8,
    "test/nn/models/test_polynormer.py": 2,
}


@pytest.mark.skipif(pyg_checkout() is None, reason=missing())
@pytest.mark.parametrize("name", LAYERS_AND_MODELS)
def test_calls_in_pygs_tests_are_those_of_accelerated_models(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    counts = tmp_path / "counts.json"
    own = ["--counts", str(counts), "--every", str(LAYERS_AND_MODELS[name])]
    options = ["-p", "tests.pyg_suite.model_plugin", "-p", "no:cacheprovider", *own]
    options += ["--rootdir", str(pyg_checkout()), "-o", "addopts=", "--tb=short", "-q"]
    quiet = {"PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
    done = run_python("-m", "pytest", *options, f"{pyg_checkout()}/{name}", timeout=280, **quiet)
    assert done.returncode == 0, f"pytest ended with {done.returncode}:\n{done.stdout}{done.stderr}"
    found = json.loads(counts.read_text(encoding="utf-8"))
    assert min(found["as they are"], found["with batches"]) > 0
    with capsys.disabled():
        print(f"\n{name}: {found}")


def run(checkout: Path, outcomes: Path) -> list[Outcome]:
    """Runs PyG's tests in a process of their own. Nothing is written in the checkout."""
    absent = [name for name in FILES if not (checkout / name).exists()]
    assert not absent, f"{checkout} has no {absent[0]}; {missing()}"
    options = ["-p", "tests.pyg_suite.plugin", "-p", "no:cacheprovider", "--outcomes", str(outcomes)]
    # PyG's own options leave out tests that want data sets, which need no download here.
    options += ["--rootdir", str(checkout), "-o", "addopts=", "--tb=short"]
    files = [checkout / name for name in FILES]
    done = run_python("-m", "pytest", *options, *files, timeout=280, PYTHONDONTWRITEBYTECODE="1")
    tests_ran = 0, 1  # all passed, some failed
    assert done.returncode in tests_ran, f"pytest ended with {done.returncode}:\n{done.stdout}{done.stderr}"
    return [Outcome(*row) for row in json.loads(outcomes.read_text(encoding="utf-8"))]


@pytest.mark.skipif(pyg_checkout() is None, reason=missing())
def test_pygs_tests_pass_but_for_the_exceptions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    exceptions = read_exceptions(EXCEPTIONS)
    checkout = pyg_checkout()
    assert checkout is not None
    outcomes = run(checkout, tmp_path / "outcomes.json")
    with capsys.disabled():
        print(f"\n{summary(outcomes, exceptions)}")
    found = complaints(outcomes, exceptions)
    assert not found, "\n".join(found)


LISTED = {"a.py::test_one": "reason", "a.py::test_two[x]": "reason"}
RIGHT = [
    Outcome("a.py::test_one[1]", "failed", "no such operator"),
    Outcome("a.py::test_one[2]", "skipped", "still to do"),
    Outcome("a.py::test_two[x]", "failed", "refused"),
    Outcome("a.py::test_two[y]", "passed"),
    Outcome("a.py::test_three", "skipped", "Package torch_frame not found"),
]


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


def test_each_exception_has_a_reason(tmp_path: Path) -> None:
    assert all(len(reason) > 20 for reason in read_exceptions(EXCEPTIONS).values())
    path = tmp_path / "list.txt"
    path.write_text("# a comment\n\na.py::test_one\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"write 'test id \| reason'"):
        read_exceptions(path)
