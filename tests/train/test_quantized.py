"""Runs of graphs whose features are int8 codes, and the commands that make and describe them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from pyg_batchgnn import AggregationCache, MacrobatchNeighborLoader
from pyg_batchgnn.data import (
    Dataset,
    GeneratorSpec,
    generate_folder,
    quantize_folder,
    read_folder,
    write_folder,
)
from pyg_batchgnn.ops import QuantizedTensor
from pyg_batchgnn.planner import workload_of
from pyg_batchgnn.train.errors import TrainError
from pyg_batchgnn.train.graphs import _check_codes
from pyg_batchgnn.train.training_data import fingerprint_dataset
from tests.support.tiers import each, in_all
from tests.support.tiny_datasets import flip_byte
from tests.support.training_runs import SMALL, batchgnn, mistake, records

pytestmark = pytest.mark.filterwarnings("ignore:memory_budget leaves")
RUN = [*SMALL, "--batch-size", 64, "--epochs", 1, "--seed", 5]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A generated graph with its own features, with codes, and with the floats of the codes."""
    folder = tmp_path_factory.mktemp("graphs")
    generate_folder(GeneratorSpec(nodes=600, seed=3, degree=8.0, classes=4, features=32), folder / "wide")
    quantize_folder(folder / "wide", folder / "narrow")
    write_folder(decoded(read_folder(folder / "narrow")), folder / "decoded")
    return folder


def decoded(dataset: Dataset) -> Dataset:
    nodes = dataset.nodes
    x = nodes.tables["x"]
    assert isinstance(x, QuantizedTensor)
    return replace(dataset, node_sets=(replace(nodes, tables={**nodes.tables, "x": x.dequantize()}),))


@pytest.mark.parametrize(
    "options",
    [
        [],
        *in_all(["--model", "gcn"], ["--model", "gat"], ["--cache", "aggregation"]),
        *in_all(["--model", "gin", "--evaluation", "exact"]),
        ["--precision", "bfloat16"],
        ["--memory-budget", "30KB", "--evaluation", "exact", "--prefetch", 1],
        ["--embed", "all", "--evaluation", "exact"],
    ],
    ids=lambda options: " ".join(map(str, options)) or "plain",
)
def test_a_run_is_the_one_of_the_decoded_features(
    options: list[object], folders: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("narrow", "decoded"):
        assert batchgnn("train", folders / name, "--run", tmp_path / name, *RUN, *options) == 0
        assert ("32 features as int8 codes" in capsys.readouterr().out) == (name == "narrow")
    for one, other in zip(records(tmp_path / "narrow"), records(tmp_path / "decoded"), strict=True):
        assert one["train"]["loss"] == pytest.approx(
            other["train"]["loss"], abs=2e-2 if "bfloat16" in options else 1e-4
        )
    if options:
        return
    assert batchgnn("predict", tmp_path / "narrow", "--out", tmp_path / "predictions") == 0
    assert batchgnn("evaluate", tmp_path / "narrow") == 0


@each
@pytest.mark.parametrize("kind", ["mean", "sum", "symmetric"])
@pytest.mark.parametrize("budget", [None, 1])
def test_aggregates_are_those_of_the_decoded_features(
    kind: str, budget: int | None, folders: Path, tmp_path: Path
) -> None:
    narrow, wide = (read_folder(folders / name).to_pyg() for name in ("narrow", "decoded"))
    one, other = (AggregationCache.build(data, kind, memory_budget=budget) for data in (narrow, wide))
    torch.testing.assert_close(one.rows, other.rows, rtol=1e-5, atol=1e-5)
    assert one.fingerprint == other.fingerprint, "a cache of one serves the other"
    one.save(tmp_path / "cache")
    again = AggregationCache.load(tmp_path / "cache", narrow)
    assert torch.equal(again.rows, one.rows)
    loader = MacrobatchNeighborLoader(narrow, [2, 2], export="native", aggregation_cache=one)
    batch = next(iter(loader))
    assert torch.equal(batch.attribute(one.attribute), one.rows[batch.node])


def test_the_command_and_its_errors(
    folders: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wide = folders / "wide"
    assert batchgnn("quantize", wide, tmp_path / "narrow", "--percentile", 99.9) == 0
    shown = capsys.readouterr()
    assert "nodes/x" in shown.err and "wrote" in shown.out
    assert batchgnn("verify", tmp_path / "narrow") == 0
    assert batchgnn("datasets", tmp_path / "narrow") == 0
    assert "features   32 as int8 codes" in capsys.readouterr().out
    flip_byte(tmp_path / "narrow" / "decoding" / "nodes" / "x.npy")
    assert "decoding/nodes/x.npy: x: sha256" in mistake(capsys, "verify", tmp_path / "narrow")
    for arguments, words in (
        ([wide, wide], "exists already"),
        ([wide, tmp_path / "b", "--bits", 4], "bits must be 8, got 4"),
        ([wide, tmp_path / "b", "--percentile", 1], "percentile must lie in"),
        ([wide, tmp_path / "b", "--attributes", "y"], "only floating-point attributes"),
        ([wide, tmp_path / "b", "--attributes", "z"], "has no attribute 'z'"),
        ([tmp_path / "none", tmp_path / "b"], "no such folder"),
        ([tmp_path / "narrow", tmp_path / "b"], "decoding/nodes/x.npy: x: sha256"),
    ):
        assert words in mistake(capsys, "quantize", *arguments)


def test_a_partition(folders: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert batchgnn("partition", folders / "wide", "--parts", 2, "--out", tmp_path / "wide") == 0
    assert batchgnn("quantize", tmp_path / "wide", tmp_path / "narrow") == 0
    assert batchgnn("verify", tmp_path / "narrow") == 0
    meta = json.loads((tmp_path / "narrow" / "META.json").read_text())
    assert meta["version"] == 4 and meta["arrays"]["part-00001/nodes/x"]["dtype"] == "int8"
    assert batchgnn("partition", folders / "narrow", "--parts", 2, "--out", tmp_path / "other") == 0
    one, other = ((tmp_path / name / "part-00001/nodes/x.npy").read_bytes() for name in ("narrow", "other"))
    assert one[-600:] == other[-600:], "the scales are those of all parts together"
    capsys.readouterr()
    assert "is quantised already" in mistake(capsys, "quantize", tmp_path / "narrow", tmp_path / "twice")
    (tmp_path / "narrow" / "decoding/nodes/x.npy").unlink()
    assert "decoding/nodes/x.npy" in mistake(capsys, "verify", tmp_path / "narrow")


def test_codes_and_numbers_are_not_mixed(folders: Path) -> None:
    wide, narrow = (read_folder(folders / name) for name in ("wide", "narrow"))
    x = narrow.nodes.tables["x"]
    assert isinstance(x, QuantizedTensor)
    _check_codes("parts", "x", x, x, narrow)
    with pytest.raises(TrainError, match="'x' is int8 codes, but numbers in"):
        _check_codes("parts", "x", x, wide.nodes.tables["x"], wide)
    other = QuantizedTensor(x.codes, x.decoding * 2)
    with pytest.raises(TrainError, match="other scales or offsets"):
        _check_codes("parts", "x", x, other, narrow)
    found = {fingerprint_dataset(one)["checksum"] for one in (wide, narrow, decoded(narrow))}
    assert len(found) == 3, "another storage is another graph"


def test_a_plan_counts_bytes_of_codes(
    folders: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wide, narrow = (read_folder(folders / name) for name in ("wide", "narrow"))
    rows = [workload_of(one, (4, 3), 32).types[0] for one in (wide, narrow)]
    assert [one.features for one in rows] == [128, 32] and [one.columns for one in rows] == [32, 32]
    assert workload_of(narrow, (4, 3), 32).columns == 32
    (tmp_path / "speeds.json").write_text("{}")
    options = ["--ranks", 2, "--fanout", "3,2", "--batch-size", 64, "--machine", tmp_path / "speeds.json"]
    assert batchgnn("plan", folders / "narrow", *options) == 0
    assert "Features: 600 x 32 int8 codes, 19.2 kB." in capsys.readouterr().out
