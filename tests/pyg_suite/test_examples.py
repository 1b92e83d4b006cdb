"""PyG's examples run with one changed import: losses fall, and batches are as PyG's. With
accelerated models that are called with the batch, losses are those of PyG's models."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from benchmark.pyg_scripts.measure import (
    EXAMPLES,
    VARIABLE,
    Example,
    falls,
    missing,
    pyg_checkout,
    run_example,
)
from tests.support.tiers import all_only


@pytest.mark.skipif(pyg_checkout() is None, reason=missing())
@pytest.mark.parametrize("example", EXAMPLES, ids=[one.name for one in EXAMPLES])
def test_an_example(example: Example, tmp_path: Path) -> None:
    checkout = pyg_checkout()
    assert checkout is not None
    record = run_example(example, checkout, tmp_path)
    assert record.batches >= len(record.losses) > 1
    assert record.different == []
    assert falls(record.losses), f"losses do not fall: {record.losses}"


@pytest.mark.skipif(pyg_checkout() is None, reason=missing())
@pytest.mark.parametrize("example", EXAMPLES, ids=[one.name for one in EXAMPLES])
def test_an_example_with_accelerated_models(example: Example, tmp_path: Path) -> None:
    checkout, models = pyg_checkout(), "batch" if example.takes_batch else "tensors"
    assert checkout is not None
    plain, ours = (run_example(example, checkout, tmp_path, one) for one in ("pyg", models))
    assert plain.reports == [] and any("captured:" in one for one in ours.reports)
    assert (ours.calls > 0) == example.takes_batch
    assert len(plain.losses) > 1 and ours.losses == pytest.approx(plain.losses, rel=1e-9)


@all_only
@pytest.mark.skipif("RELBENCH_PYTHON" not in os.environ, reason="RELBENCH_PYTHON names no interpreter")
def test_losses_and_gradients_of_relbenchs_model_are_those_of_pyg() -> None:
    command = [os.environ["RELBENCH_PYTHON"], "examples/relational_step.py", "compare"]
    environment = os.environ | {"PYTHONPATH": str(Path.cwd())}
    assert float(subprocess.check_output(command, env=environment, text=True)) < 1e-10


def test_a_folder_that_is_no_checkout(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    with pytest.raises(FileNotFoundError, match="is no checkout of PyG"):
        pyg_checkout()
    monkeypatch.delenv(VARIABLE)
    assert pyg_checkout() is None
