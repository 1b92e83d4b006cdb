"""PyG's own tests pass with this package's classes: those of neighbour loaders and samplers with
ours in their places, those of layers and models with every call repeated by accelerated copies."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from benchmark.pyg_scripts.measure import missing, pyg_checkout
from tests.support.programs import run_python

#: The reason that PyG's `withPackage` gives.
_NO_PACKAGE = re.compile(r"Packages? .* not found")


@dataclass(frozen=True)
class Outcome:
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
def test_pygs_tests_pass_but_for_the_exceptions(tmp_path: Path) -> None:
    exceptions = read_exceptions(EXCEPTIONS)
    checkout = pyg_checkout()
    assert checkout is not None
    found = complaints(run(checkout, tmp_path / "outcomes.json"), exceptions)
    assert not found, "\n".join(found)
