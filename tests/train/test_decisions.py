"""The matrix product and the C library's allocator of a run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from pyg_batchgnn.data import Dataset
from pyg_batchgnn.nn import ProductChoice, current_products
from pyg_batchgnn.train import decisions as product
from pyg_batchgnn.train.config import Malloc, MatrixProduct, SamplingConfig, TrainConfig
from pyg_batchgnn.train.decisions import _common_level, choose_product, configure_malloc, product_shapes
from pyg_batchgnn.train.ranks import Ranks
from tests.support.training_runs import SMALL, batchgnn, mistake

# Matrix product ###################################################################################

FOUND = ProductChoice("torch", native_rate=50.0, torch_rate=70.0, threads=1, torch_same_bits=True)


@pytest.mark.parametrize(
    ("fanout", "rows"),
    [
        ((15, 10, 5), [16 * 11 * 8, 16 * 8, 8]),
        ((0, 3, 3), [4 * 8, 8, 8]),
        ((-1, 2, 2), [21 * 3 * 8, 21 * 8, 8]),
    ],
)
def test_shapes_are_those_of_the_layers(fanout: tuple[int, ...], rows: list[int]) -> None:
    config = TrainConfig(sampling=SamplingConfig(fanout=fanout, batch_size=8))
    shapes = product_shapes(config, 100, 47)
    assert [shape[1:] for shape in shapes] == [(100, 256), (256, 256), (256, 47)]
    assert [shape[0] for shape in shapes] == rows


def test_a_probe_decides_and_is_kept(
    graph_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(product, "probe_products", lambda *_: FOUND)
    run = tmp_path / "run"
    probed = [*SMALL, "--matrix-product", "probe", "--epochs", 1]
    assert batchgnn("train", graph_folder, "--run", run, *probed) == 0
    assert str(FOUND) in capsys.readouterr().out
    assert json.loads((run / "config.json").read_text())["run"]["matrix_product"] == "torch"
    assert current_products() == "torch"
    monkeypatch.setattr(product, "probe_products", lambda *_: pytest.fail("it was decided before"))
    assert batchgnn("train", "--resume", run, "--epochs", 2) == 0
    assert "matrix products: torch\n" in capsys.readouterr().out
    assert current_products() == "torch"
    assert "run.threads (1 is now 2)" in mistake(capsys, "train", "--resume", run, "--threads", 2)


@pytest.mark.parametrize(("level", "name"), [(256, "native"), (0, "torch")])
def test_the_processor_decides_and_no_clock(
    level: int,
    name: str,
    graph_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(product, "probe_products", lambda *_: pytest.fail("nobody asked for a probe"))
    monkeypatch.setattr("pyg_batchgnn.ops.simd_level", lambda: level)
    run = tmp_path / "run"
    assert batchgnn("train", graph_folder, "--run", run, *SMALL, "--epochs", 1) == 0
    assert f"matrix products: {name}\n" in capsys.readouterr().out
    assert json.loads((run / "config.json").read_text())["run"]["matrix_product"] == name


@pytest.mark.parametrize(("names", "chosen"), [(["torch"] * 2, "torch"), (["native", "torch"], "native")])
def test_ranks_on_several_processors_agree(
    names: list[str], chosen: str, small_graph: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = TrainConfig()
    ranks = Ranks.join(config.ranks)
    monkeypatch.setattr(ranks, "values", lambda _: names)
    config, _ = choose_product(config, small_graph.num_features, 4, ranks)
    assert config.run.matrix_product is MatrixProduct(chosen) and current_products() == chosen


@pytest.mark.parametrize("name", ["native", "torch"])
def test_what_was_chosen_is_used(name: str, small_graph: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(product, "probe_products", lambda *_: pytest.fail("it was chosen"))
    config = TrainConfig()
    config = replace(config, run=replace(config.run, matrix_product=MatrixProduct(name)))
    assert choose_product(config, small_graph.num_features, 4, Ranks.join(config.ranks)) == (config, None)
    assert current_products() == name


# Malloc ###########################################################################################

_PROBE = """
import os, resource, torch
import pyg_batchgnn.train.trainer
from pyg_batchgnn.train.config import Malloc
from pyg_batchgnn.train.decisions import configure_malloc
for choice in Malloc:  # each in a process of its own
    if os.fork() == 0:
        kept = configure_malloc(choice)
        for _ in range(3):
            torch.ones(1 << 24)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(5):
            torch.ones(1 << 24)
        print(choice.value, kept, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before, flush=True)
        os._exit(0)
    os.wait()
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc only")
def test_kept_memory_takes_no_page_faults() -> None:
    """Five tensors of 64 MiB: 16,384 pages each, or less where the system gives huge pages."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}  # forked processes have no threads
    out = subprocess.run(
        [sys.executable, "-c", _PROBE], capture_output=True, text=True, check=True, env=environment
    )
    seen = {choice: (kept, int(faults)) for choice, kept, faults in map(str.split, out.stdout.splitlines())}
    assert seen.keys() == {choice.value for choice in Malloc}
    for choice, (kept, faults) in seen.items():
        assert kept == str(choice == Malloc.KEEP.value)
        assert (faults < 100) is (choice == Malloc.KEEP.value), seen


def test_leaving_the_allocator_alone_does_nothing() -> None:
    assert configure_malloc(Malloc.DEFAULT) is False


PAIRS, INTEL, OLD = ["pairs", "widened", "pairs"], ["widened", "widened", "pairs"], ["widened", "widened"]


@pytest.mark.parametrize(
    ("ranks", "level"),
    [
        ([PAIRS], "pairs"),
        ([PAIRS, PAIRS], "pairs"),
        ([PAIRS, OLD], "widened"),
        ([PAIRS, INTEL], "widened"),
        ([INTEL], "widened"),
        ([OLD, INTEL, PAIRS], "widened"),
        ([PAIRS, ["pairs", "widened"]], "widened"),
    ],
)
def test_ranks_take_a_level_that_all_have(ranks: list[list[str]], level: str) -> None:
    assert _common_level(ranks) == level
