"""The configuration of a run: presets, mistakes, JSON, and what is decided for the user."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pyg_batchgnn.data import Dataset, DatasetError
from pyg_batchgnn.nn import ProductChoice, current_products
from pyg_batchgnn.train import start as product
from pyg_batchgnn.train.config.choices import Malloc, MatrixProduct, ModelKind
from pyg_batchgnn.train.config.train_config import (
    DEFAULT_PRESET,
    PRESETS,
    TrainConfig,
    assign,
    config_to_dict,
    preset,
    read_config,
)
from pyg_batchgnn.train.errors import TrainError
from pyg_batchgnn.train.ranks import Ranks
from pyg_batchgnn.train.start import _common_level, choose_product
from tests.support.tiers import all_only
from tests.support.training_runs import SMALL, batchgnn, mistake


@pytest.mark.parametrize(
    ("name", "layers", "hidden", "fanout", "batch_size"),
    [
        ("batchgnn", 3, 256, (15, 10, 5), 1024),
        ("p3", 2, 32, (25, 10), 1000),
        ("distdglv2", 3, 256, (15, 10, 5), 1000),
    ],
)
def test_presets(name: str, layers: int, hidden: int, fanout: tuple[int, ...], batch_size: int) -> None:
    config = preset(name)
    assert (config.model.num_layers, config.model.hidden) == (layers, hidden)
    assert (config.sampling.fanout, config.sampling.batch_size) == (fanout, batch_size)
    assert (config.model.dropout, config.optimiser.learning_rate) == (0.5, 0.003)
    assert config.test_fanout == (20,) * layers
    assert replace(config, model=replace(config.model, kind=ModelKind.GIN)).test_fanout == fanout
    assert DEFAULT_PRESET in PRESETS
    with pytest.raises(TrainError, match=r"unknown preset 'x'; the presets are batchgnn, p3, distdglv2"):
        preset("x")


@pytest.mark.parametrize("name", PRESETS)
def test_json_goes_there_and_back(name: str, tmp_path: Path) -> None:
    said = "model.kind=gat run.threads=3 run.precision=bfloat16 run.matrix_product=torch ranks.push=none"
    sizes = "sampling.memory_budget=1000 sampling.macrobatch_size=7"
    config = assign(preset(name), [*said.split(), *sizes.split()])
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config_to_dict(config)))
    assert read_config(path) == config


@pytest.mark.parametrize(
    ("text", "section", "field", "value"),
    [
        ("model.hidden=64", "model", "hidden", 64),
        ("model.kind=gcn", "model", "kind", ModelKind.GCN),
        ("model.dropout=0", "model", "dropout", 0.0),
        ("sampling.test_fanout=-1,-1,0", "sampling", "test_fanout", (-1, -1, 0)),
        ("sampling.test_fanout=none", "sampling", "test_fanout", None),
        ("sampling.fetch_size=auto", "sampling", "fetch_size", "auto"),
        ("optimiser.learning_rate=1e-2", "optimiser", "learning_rate", 0.01),
        ("run.dataset=generated:nodes=50,seed=1", "run", "dataset", "generated:nodes=50,seed=1"),
        ("run.dataset=none", "run", "dataset", None),
    ],
)
def test_any_field_can_be_assigned(text: str, section: str, field: str, value: Any) -> None:
    assert getattr(getattr(assign(TrainConfig(), [text]), section), field) == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hidden=64", "not of the form section.field=value"),
        ("model.width=64", r"unknown configuration key 'model.width'; known: model.kind, model.num_layers"),
        (
            "network.hidden=64",
            "unknown configuration key 'network'; known: model, sampling, task, embedding, optimiser, run",
        ),
        ("model.hidden=true", "model.hidden must be a whole number, got True"),
        ("model.layers=pyg", "model.layers is pyg: .* use pyg_batchgnn.accelerate"),
        ("run.matrix_product=mkl", "run.matrix_product must be one of auto, native, torch, probe, got 'mkl'"),
        ("model.hidden=0", "model.hidden must be at least 1, got 0"),
        ("model.dropout=1", "model.dropout must be at least 0 and below 1"),
        ("optimiser.learning_rate=NaN", "optimiser.learning_rate must be at least 0, got nan"),
        ("sampling.fanout=10,5", r"sampling.fanout is 10,5 \(2 numbers\), but the model has 3 layers"),
        ("sampling.fanout=10,5,x", "sampling.fanout must be whole numbers separated by commas"),
        ("sampling.fanout=10,-5,5", "numbers must be 0 or more, or -1 for all"),
        ("sampling.macrobatch_size=huge", "sampling.macrobatch_size must be a whole number or 'auto'"),
        ("sampling.macrobatch_size=0", "sampling.macrobatch_size must be at least 1, got 0"),
        (f"run.seed={2**64}", f"run.seed must be at most {2**64 - 1}, got {2**64}"),
        ("optimiser.learning_rate=1e38", "optimiser.learning_rate must be at most 1e"),
        ("ranks.timeout=1e20", "ranks.timeout must be at most 2000000"),
        ("model.kind=gat model.hidden=30", r"model\.hidden is 30, which 4 heads cannot share"),
        ("task.ranked_among=3", "no links are predicted"),
        # What historical embeddings, aggregates and times do not go with.
        ("ranks.remote=historical model.kind=gcn", "not possible: .*choose --model sage, gin or gat"),
        ("ranks.remote=historical ranks.schedule=global", "choose --schedule local"),
        ("ranks.remote=historical ranks.hybrid=true", "leave --hybrid out"),
        ("ranks.remote=historical ranks.feature_cache=100", "leave --feature-cache out"),
        ("ranks.remote=historical sampling.cache=aggregation", "leave --cache out"),
        ("sampling.cache=aggregation model.kind=gat", "GAT weighs neighbours"),
        ("sampling.cache=aggregation model.num_layers=1 sampling.fanout=5", "a model of one layer"),
        ("sampling.cache_folder=x", "add --cache aggregation"),
        ("sampling.evaluate_with_cache=true", "add --cache aggregation"),
        ("sampling.temporal_strategy=last", "but times are not looked at; add --time-attr"),
        ("sampling.time_attr=t sampling.evaluation=exact", "take --evaluation sampled"),
        ("sampling.time_attr=t sampling.cache=aggregation", "over all neighbours, later ones too"),
        ("sampling.time_attr=t ranks.remote=historical", "leave --remote out"),
        ("sampling.labor=hop", "choose --replacement without"),
        ("sampling.labor=hop sampling.replacement=without sampling.time_attr=t", "leave it out"),
        ("sampling.labor=hop sampling.replacement=without ranks.remote=historical", "leave --remote out"),
    ],
)
def test_mistakes_are_named(text: str, message: str) -> None:
    with pytest.raises(TrainError, match=message) as caught:
        assign(TrainConfig(), text.split())
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "no such file"),
        ("{", "not valid JSON"),
        ("[1]", "holds a list, expected a JSON object"),
        ('{"model": 3}', "model must be an object of fields, got 3"),
        ('{"model": {"depth": 3}}', "unknown configuration key 'model.depth'"),
    ],
)
def test_bad_configuration_files(content: str | None, message: str, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises((TrainError, DatasetError), match=message) as caught:
        read_config(path)
    assert str(path) in str(caught.value)


FOUND = ProductChoice("torch", native_rate=50.0, torch_rate=70.0, threads=1, torch_same_bits=True)


def test_a_probe_decides_and_is_kept(
    graph_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
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
    assert "--threads (1 is now 2)" in mistake(capsys, "train", "--resume", run, "--threads", 2)


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


_PROBE = """
import os, resource, torch
from pyg_batchgnn.train.config.choices import (Malloc)
from pyg_batchgnn.train.start import configure_malloc
for choice in Malloc:  # each in a process of its own
    if os.fork() == 0:
        kept = configure_malloc(choice)
        for _ in range(20):  # the heap grows until a hole has room for an aligned block
            torch.ones(1 << 24)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(5):
            torch.ones(1 << 24)
        print(choice.value, kept, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before, flush=True)
        os._exit(0)
    os.wait()
"""


@all_only
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


PAIRS, INTEL, OLD = ["pairs", "widened", "pairs"], ["widened", "widened", "pairs"], ["widened", "widened"]


@pytest.mark.parametrize(
    ("ranks", "level"),
    [
        ([PAIRS], "pairs"),
        ([PAIRS, OLD], "widened"),
        ([OLD, INTEL, PAIRS], "widened"),
        ([PAIRS, ["pairs", "widened"]], "widened"),
    ],
)
def test_ranks_take_a_level_that_all_have(ranks: list[list[str]], level: str) -> None:
    assert _common_level(ranks) == level
