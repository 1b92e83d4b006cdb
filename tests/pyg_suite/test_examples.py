"""PyG's examples run with one changed import: losses fall, and batches are as PyG's. With
accelerated models that are called with the batch, losses are those of PyG's models."""

from __future__ import annotations

import ast
import os
import subprocess
from pathlib import Path

import pytest

from benchmark.pyg_scripts.batch_calls import PREPARE, BatchCalls
from benchmark.pyg_scripts.measure import (
    EXAMPLES,
    VARIABLE,
    Example,
    falls,
    missing,
    pyg_checkout,
    run_example,
)
from benchmark.pyg_scripts.run_script import Record
from pyg_batchgnn import MacrobatchLinkNeighborLoader, MacrobatchNeighborLoader
from tests.support import hetero_cases, loader_cases
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


SCRIPT = """
model = Net()
def train():
    for data in tqdm(loader):
        out = model(data.x, data.edge_index)[:data.batch_size]
        out = F.dropout(out, p=0.5)
def test():
    for batch in loader:
        model(batch.x_dict, batch.edge_index_dict)["paper"]
    model(data.x, data.edge_index)
"""


def test_a_rewritten_script() -> None:
    rewriter = BatchCalls(calls=True)
    found = ast.unparse(ast.fix_missing_locations(rewriter.visit(ast.parse(SCRIPT))))
    assert rewriter.rewritten == 2
    assert found.split("\n")[1] == f"{PREPARE}(model)"
    assert "model(data)[:data.batch_size]" in found and "p=0.0" in found
    assert "model(batch)['paper']" in found and "    model(data.x, data.edge_index)" in found
    kept = ast.unparse(BatchCalls(calls=False).visit(ast.parse(SCRIPT)))
    assert "model(data.x, data.edge_index)[:data.batch_size]" in kept


def test_the_record_notices_what_is_not_as_pygs() -> None:
    loader = loader_cases.make_loader(loader_cases.make_data())
    batch = next(iter(loader))
    record = Record()
    record.see(loader, batch)
    assert record.different == [] and record.schema["x"] == ["torch.float32", [batch.num_nodes, 4]]
    batch.x, batch.extra = batch.x.double(), 1
    del batch.y
    record.see(loader, batch)
    assert sorted(line.split(":")[0] for line in record.different) == [
        "batch 2, extra",
        "batch 2, x",
        "batch 2, y",
    ]


@pytest.mark.parametrize("kwargs", [{}, {"disjoint": True}])
def test_batches_of_links_and_types_are_compared(kwargs: dict[str, bool]) -> None:
    data, record = hetero_cases.make_hetero(), Record()
    typed = MacrobatchNeighborLoader(data, [3, 2], "author", batch_size=20, seed=1, **kwargs)
    links = MacrobatchLinkNeighborLoader(
        *(data, [3, 2], hetero_cases.WRITES),
        **{"batch_size": 64, "seed": 1, "neg_sampling": "binary", **kwargs},
    )
    plain = loader_cases.make_data()
    pairs = MacrobatchLinkNeighborLoader(
        plain, [3], plain.edge_index[:, :40], neg_sampling=("triplet", 2), batch_size=20, seed=1, **kwargs
    )
    for loader in (typed, links, pairs):
        for batch in loader:
            record.see(loader, batch)
    assert record.batches == 7 and record.different == []


def test_a_folder_that_is_no_checkout(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    with pytest.raises(FileNotFoundError, match="is no checkout of PyG"):
        pyg_checkout()
    monkeypatch.delenv(VARIABLE)
    assert pyg_checkout() is None


def test_losses_that_fall() -> None:
    assert falls([3.0, 2.0]) and falls([3.0, 9.0, 9.0, 9.0, 2.0, 2.9])
    assert not falls([1.0]) and not falls([1.0, 0.0, 2.0])
