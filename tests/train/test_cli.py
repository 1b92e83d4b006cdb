"""The command line: help that teaches, one line for a mistake, the run folder's contents."""

from __future__ import annotations

import inspect
import json
import os
import stat
import subprocess
import sys
import types
import typing
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
import torch
import typer

import pyg_batchgnn
from pyg_batchgnn.data import Dataset, DatasetError, GeneratorSpec, write_folder
from pyg_batchgnn.loader import ScheduleName
from pyg_batchgnn.planner import SAMPLES
from pyg_batchgnn.sample import Replacement
from pyg_batchgnn.train.checkpoint import Phase
from pyg_batchgnn.train.cli import main
from pyg_batchgnn.train.cli.app import app, train
from pyg_batchgnn.train.cli.graph_commands import generate
from pyg_batchgnn.train.cli.options import parse_size
from pyg_batchgnn.train.cli.plan_command import plan_command
from pyg_batchgnn.train.config.choices import ReplacementKind, ScheduleKind
from pyg_batchgnn.train.config.table import OPTIONS, ModelConfig
from pyg_batchgnn.train.config.train_config import (
    DEFAULT_PRESET,
    PRESETS,
    TrainConfig,
    config_to_dict,
    read_config,
)
from pyg_batchgnn.train.errors import TrainError
from pyg_batchgnn.train.run_folder import write_json
from tests.support.tiers import in_all
from tests.support.training_runs import SMALL, batchgnn, mistake, records, without_plots


def test_a_run_leaves_its_folder(
    graph_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for number in (1, 2):
        assert batchgnn("train", graph_folder, *SMALL, "--batch-size", 100, "--epochs", 2, plots=True) == 0
        run = tmp_path / "runs" / f"small-sage-{number}"
        files = {"config.json", "metrics.jsonl", "checkpoint.safetensors", "result.json"}
        assert {path.name for path in run.iterdir()} == {*files, "learning.png", "phases.png"}
    out = capsys.readouterr().out
    assert "epoch 2/2  loss" in out
    assert "test accuracy" in out
    assert records(tmp_path / "runs" / "small-sage-1") == records(tmp_path / "runs" / "small-sage-2")
    result = json.loads((run / "result.json").read_text())
    assert 0.5 < result["test"]["accuracy"] <= 1.0
    assert set(result["phases"]) == {phase.value for phase in Phase}
    assert all(result["phases"][name] > 0 for name in ("sample", "forward", "backward", "evaluation"))
    epoch = json.loads((run / "metrics.jsonl").read_text().splitlines()[0])
    assert sum(epoch["phases"].values()) <= epoch["seconds"], "without prefetching phases do not overlap"
    config = json.loads((run / "config.json").read_text())
    assert config["run"]["dataset"] == str(graph_folder)
    assert config["model"]["num_layers"] == 2
    assert config["run"]["precision"] == "float32"
    assert config["run"]["matrix_product"] in ("native", "torch"), "what was open is decided"


@pytest.fixture(scope="module")
def finished(graph_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("finished") / "run"
    assert batchgnn("train", graph_folder, "--run", run, *SMALL, "--epochs", 1) == 0
    return run


#: Commands that write to PATH or read from it; GRAPH and RUN are such folders.
OF_PATHS = [
    "train GRAPH --run PATH",
    "train GRAPH --resume auto --run PATH",
    "train --resume PATH",
    "train GRAPH --config PATH",
    "train GRAPH --run NEW --cache aggregation --cache-folder PATH",
    "train PATH",
    "evaluate PATH",
    "evaluate RUN --out PATH",
    "evaluate RUN --dataset PATH",
    "predict RUN --out PATH",
    "predict RUN --out PATH --embeddings-of node",
    "predict RUN --out NEW --nodes PATH",
    "generate PATH --nodes 200",
    "generate PATH --nodes 200 --typed",
    "partition GRAPH --parts 2 --out PATH",
    "partition GRAPH --parts 2 --out NEW --plot PATH",
    "partition GRAPH --parts 2 --out NEW --policy PATH.npy",
    "plan GRAPH --ranks 2 --out PATH",
    "plan GRAPH --ranks 2 --machine PATH",
    "verify PATH",
    "datasets PATH",
]


@pytest.mark.parametrize("command", OF_PATHS)
def test_a_path_that_cannot_be_is_named_with_a_remedy(
    command: str, graph_folder: Path, finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("text")
    for path in (tmp_path / "file" / "x", Path("/proc/no/such")):
        words = {"GRAPH": graph_folder, "RUN": finished, "PATH": path, "PATH.npy": f"{path}.npy"}
        given = [words.get(word, word) for word in command.split()]
        given = [tmp_path / f"new{len(str(path))}" if word == "NEW" else word for word in given]
        options = SMALL if command.startswith("train") and "--resume PATH" not in command else []
        error = mistake(capsys, *given, *options)
        assert str(path) in error and "Errno" not in error
        assert "give" in error or "choose" in error or "prints the path" in error


def test_a_result_never_replaces_what_is_no_file(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file that takes the name of /dev/null, for example, breaks every other program."""
    os.mkfifo(tmp_path / "pipe")
    said = mistake(capsys, "evaluate", finished, "--out", tmp_path / "pipe")
    assert "this is no ordinary file; give a JSON file" in said
    with pytest.raises(DatasetError, match="is no ordinary file, and stays as it is"):
        write_json(tmp_path / "pipe", {})
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


def test_features_of_no_column(
    small_graph: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tables = {**small_graph.nodes.tables, "x": torch.zeros(small_graph.num_nodes, 0)}
    graph = replace(small_graph, node_sets=(replace(small_graph.nodes, tables=tables),))
    write_folder(graph, tmp_path / "graph")
    for more in ([], ["--embed", "all"]):
        error = mistake(capsys, "train", tmp_path / "graph", "--run", tmp_path / "run", *SMALL, *more)
        assert "'x' are [2000, 0], with no column that a model could read; leave 'x' out" in error


def test_a_metric_of_another_task_names_the_task(
    graph_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for metric, hint in (("roc_auc", "--task labels"), ("rmse", "--task values"), ("mrr", "--task link")):
        error = mistake(capsys, "train", graph_folder, "--run", tmp_path, *SMALL, "--metric", metric)
        assert f"--metric is {metric}, but a task that predicts classes has" in error and hint in error


def test_a_run_repeats_from_its_configuration(graph_folder: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    assert batchgnn("train", graph_folder, "--run", first, *SMALL, "--model", "gat", "--epochs", 1) == 0
    assert batchgnn("train", "--config", first / "config.json", "--run", second) == 0
    assert records(first) == records(second)
    assert (first / "config.json").read_text() == (second / "config.json").read_text()


@pytest.mark.parametrize(("size", "last", "count"), [(5000, "drop", 1), (500, "drop", 2), (500, "keep", 3)])
def test_the_last_minibatch_is_dropped_or_kept(
    graph_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], size: int, last: str, count: int
) -> None:
    options = [*SMALL, "--batch-size", size, "--epochs", 1, "--last-batch", last]
    assert batchgnn("train", graph_folder, "--run", tmp_path, *options) == 0
    told = "only 1185 training nodes for minibatches of 5000" in capsys.readouterr().out
    assert told == (size == 5000) and records(tmp_path)[0]["minibatches"] == count


def test_a_header_fits_a_terminal(
    graph_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    options = [*SMALL, "--epochs", 3, "--evaluate-every", 2]
    assert batchgnn("train", graph_folder, "--run", run, *options) == 0
    header, _, table = capsys.readouterr().out.partition("epoch 1/3")
    assert all(len(line) <= 80 or str(run) in line for line in header.splitlines())
    assert all(line[:8].strip() in ("data", "model", "sample", "run", "") for line in header.splitlines())
    assert "all phases, the test among them" in table
    assert [line["val"] is None for line in records(run)] == [True, False, False]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "--model", "mlp"], "--model must be one of sage, gcn, gin, gat, got 'mlp'"),
        (["train", "--fanout=10,5", "--num-layers", "3"], "one number per layer, or change --num-layers"),
        (["train", "--set", "sampling.batch_size=0"], "sampling.batch_size must be at least 1, got 0"),
        (["train", "--device", "cuda"], 'train on CPUs; a loader in a script takes device="cuda"'),
        (["train", "--optimizer", "best"], "--optimizer is best, which is none that a run can use"),
        (
            ["train", "--task", "link", "--metric", "hits@50", "--ranked-among", "20"],
            "--metric is hits@50, but --ranked-among is 20, so every link reaches it; give 50 or more",
        ),
        (["train", "--layers", "pyg"], "No such option: --layers"),
        (["train", "--set", "model.layers=pyg"], "model.layers is pyg: PyG's layers are no longer trained"),
        (["train", "--epochs", "many"], "Invalid value for '--epochs'"),
        (["train", "--colour", "red"], "No such option: --colour"),
        (["train", "--memory-budget", "lots"], "'lots' is not a number of bytes"),
        (["train", "--resume", "x", "--run", "y"], "drop --config, --run and --preset"),
        (["generate", "x", "--nodes", "1"], "generator: nodes is 1"),
        (["partition", "cora", "--out", "x", "--policy", "best"], "'best' is not one of"),
        (["partition", "no-such-data", "--out", "/proc"], "/proc: exists already"),
        (["partition", "no-such-data", "--out", "x", "--parts", "3000000000"], "'--parts'"),
        (["partition", "no-such-data", "--out", "x", "--timeout", "0"], "--timeout must be at least 1"),
        (["train", "generated:nodes=100", "--hidden", "2000000000"], "not enough memory"),
        (["train", "--partition", "metis 4"], "--partition is 'metis 4', which is no folder"),
        (["train", "--partition", "ldg", "--timeout", "9"], "--partition and --timeout: this is for several"),
        (["train", "--hybrid"], "start ranks with torchrun"),
        (["plan", "cora", "--ranks", "3", "--ranks-per-host", "2"], "on each host; choose 2 or 4"),
        (["predict", "x"], "Missing option '--out'"),
        (["dance"], "No such command 'dance'"),
    ],
)
def test_mistakes_give_one_line_and_status_2(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYG_BATCHGNN_DEBUG", raising=False)
    assert message in mistake(capsys, *arguments)
    assert list(tmp_path.iterdir()) == [], "a mistake leaves nothing behind"


@pytest.mark.parametrize("arguments", [[], ["tables"]])
def test_no_arguments_show_the_help(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert batchgnn(*arguments) in (0, 2)
    said = "".join(capsys.readouterr())
    assert "Usage: " in said and "--help" in said and "batchgnn: " not in said


def test_the_debug_variable_shows_the_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYG_BATCHGNN_DEBUG", "1")
    with pytest.raises(TrainError):
        main(["train", "--preset", "x"])


@pytest.mark.parametrize(
    "arguments", [*in_all(["-h"], ["--help"], ["plan", "--help"]), ["train", "-h"], ["--version"]]
)
def test_help_and_version_do_not_wait_for_torch(arguments: list[str]) -> None:
    program = (
        "import sys\n"
        "from pyg_batchgnn.train.cli import main\n"
        "try:\n    main()\n"
        "finally:\n    print({'torch', 'numpy', 'matplotlib'} & set(sys.modules))\n"
    )
    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("set()\n")
    if arguments == ["--version"]:
        assert done.stdout.startswith(f"batchgnn {pyg_batchgnn.__version__}\n")


def test_choices_and_defaults_are_those_of_the_rooms() -> None:
    """The configuration repeats them, since help does not wait for the rooms."""
    assert next(iter(PRESETS)) == DEFAULT_PRESET and PRESETS[DEFAULT_PRESET] == TrainConfig()
    assert {member.value for member in ReplacementKind} == {member.value for member in Replacement}
    assert {member.value for member in ScheduleKind} == {member.value for member in ScheduleName}
    defaults = {name: parameter.default for name, parameter in inspect.signature(generate).parameters.items()}
    spec = GeneratorSpec()
    for name in ("nodes", "seed", "degree", "classes", "features", "signal", "label_noise"):
        assert defaults[name] == getattr(spec, name), name
    assert inspect.signature(plan_command).parameters["samples"].default == SAMPLES


def test_the_command_of_python_has_every_option(graph_folder: Path, tmp_path: Path) -> None:
    parameters = inspect.signature(train).parameters
    assert list(parameters)[:6] == ["dataset", "preset_name", "config", "resume", "run", "settings"]
    assert list(parameters)[6:] == list(OPTIONS)
    small = {"num_layers": 2, "fanout": "4,3", "hidden": 16, "threads": 1, "epochs": 1}
    with without_plots():
        status = train(str(graph_folder), run=tmp_path, settings=["run.malloc=default"], **small)
    assert status == 0 and len(records(tmp_path)) == 1
    with pytest.raises(TypeError, match="unexpected keyword argument 'widht'"):
        train(widht=3)


def test_commands_for_typed_graphs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, parts = tmp_path / "graph", tmp_path / "parts"
    assert batchgnn("generate", folder, "--typed", "--nodes", 300, "--classes", 3, "--features", 5) == 0
    assert batchgnn("verify", folder) == 0
    assert batchgnn("datasets", folder) == batchgnn("datasets") == 0
    cut = ["partition", folder, "--parts", 2, "--out", parts]
    assert batchgnn(*cut, "--policy", "ldg", "--balance", "nodes", "--balance", "train=1.2") == 0
    assert batchgnn("verify", parts) == 0
    out = capsys.readouterr().out
    assert "paper: 300 nodes, 3 classes, " in out and "author-writes-paper: " in out
    assert "institution" in out and "edge cut" in out
    assert "has the node types author, field, institution, paper" in mistake(capsys, "train", folder)
    speeds = tmp_path / "speeds.json"
    speeds.write_text("{}")
    usual = ["plan", folder, "--ranks", 2, "--fanout", "3,2", "--machine", speeds, "--partition", parts]
    assert "training nodes of the types ['author', 'paper']; name one" in mistake(capsys, *usual)
    assert batchgnn(*usual, "--node-type", "paper", "--samples", 3, "--batch-size", 40) == 0
    command = " ".join(capsys.readouterr().out.split()).rpartition("torchrun")[2]
    assert "batchgnn train" in command and "--node-type paper" in command and f"{parts}" in command
    for policy, load, said in (
        ("random", "nodes", "random, which balances no loads"),
        ("ldg", "nodes=a", "write a load and a"),
        ("ldg", "train=inf", "the slack of 'train' must be finite"),
        ("ldg", "colour", "cannot balance 'colour': it is no split and no node attribute"),
        ("ldg", "x", "cannot balance 'x': it has shape"),
    ):
        assert said in mistake(capsys, *cut[:-1], tmp_path / "other", "--policy", policy, "--balance", load)
    assert "do not go with --typed" in mistake(capsys, "generate", tmp_path / "half", "--typed", "--half")


def test_verify_tells_what_it_is_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "config.json").write_text("{}")
    for given, advice in ((run, f"batchgnn evaluate {run}"), (run / "config.json", "give the folder")):
        error = mistake(capsys, "verify", given)
        assert advice in error and "a partition or an aggregation cache" in error


def test_partition_and_verify(graph_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parts, cut = tmp_path / "parts", ["partition", graph_folder, "--parts", 4, "--policy", "multilevel"]
    assert batchgnn(*cut, "--hosts", 2, "--out", parts) == 0
    assert batchgnn("verify", parts) == 0
    out = capsys.readouterr().out
    assert "edge cut" in out and "max / mean" in out and "between hosts" in out and "wrote" in out
    assert "all files are as they were written" in out
    spoilt = parts / "part-00002" / "nodes" / "x.npy"
    spoilt.write_bytes(b"")
    assert "part-00002/nodes/x" in mistake(capsys, "verify", parts)
    spoilt.unlink()
    assert f"{spoilt}: part-00002/nodes/x: the file does not exist" in mistake(capsys, "verify", parts)
    assert "exists already" in mistake(capsys, "partition", graph_folder, "--out", parts)
    error = mistake(capsys, *cut, "--hosts", 3, "--out", tmp_path / "others")
    assert "4 parts cannot be spread evenly over 3 hosts" in error


@pytest.mark.parametrize("text", ["", "GiB", "-1", "1 parsec", "1e3", "1000"])
def test_not_bytes(text: str) -> None:
    with pytest.raises(TrainError, match="without a unit" if text == "1000" else "not a number of bytes"):
        parse_size(text)


# Help texts and saved configurations that must stay as they are. `python -m tests.train.test_cli`
# writes the help texts anew, where a change of them is wanted. The configurations were written by
# runs of an earlier version, and are never written again.

GOLDEN = Path(__file__).with_name("golden")
GROUP: Any = typer.main.get_command(app)
TABLES: Any = GROUP.commands["tables"]
COMMANDS: dict[str, Any] = {
    "batchgnn": GROUP,
    **GROUP.commands,
    **{f"tables-{name}": command for name, command in TABLES.commands.items()},
}


def described(command: Any, callback: Any) -> str:
    """Returns the help of a command: its text, and of each parameter what the help shows."""
    lines, hints = [*(command.help or "").splitlines(), ""], typing.get_type_hints(callback)
    for one in command.params:
        if one.name not in hints:  # the program's own --help
            continue
        names = "/".join([", ".join(one.opts), *one.secondary_opts])
        ends = [None if end is None else float(end) for end in (one.min, one.max)]
        many = ", may be repeated" if one.multiple else ""
        lines += [
            f"{one.param_type_name} {names}: {type_name(hints[one.name])}{many}",
            f"    panel {getattr(one, 'rich_help_panel', None)}, from {ends[0]} to {ends[1]}, "
            f"default {getattr(one.default, 'value', one.default)!r}, required {one.required}",
            f"    {one.help}",
        ]
    return "\n".join(lines) + "\n"


def type_name(hint: Any) -> str:
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        return " or ".join(type_name(one) for one in typing.get_args(hint) if one is not type(None))
    if isinstance(hint, type) and issubclass(hint, Enum):
        return "|".join(one.value for one in hint)
    return getattr(hint, "__name__", str(hint))


def shown(name: str) -> str:
    command = COMMANDS[name]
    return described(
        command, command.callback.__wrapped__ if command not in (GROUP, TABLES) else lambda: None
    )


def golden_help(name: str) -> Path:
    return GOLDEN / f"help-{name}.txt"


@pytest.mark.parametrize("name", COMMANDS)
def test_help_is_as_it_was(name: str) -> None:
    assert shown(name) == golden_help(name).read_text(encoding="utf-8")


@pytest.mark.parametrize("path", sorted((GOLDEN / "configs").iterdir()), ids=lambda path: path.stem)
def test_a_saved_configuration_is_read_and_written_as_it_was(path: Path) -> None:
    """But for fields that there are no more, which are left out where they had the usual value, and
    for new ones, which have their defaults. Features of edges were not read."""
    saved = json.loads(path.read_text(encoding="utf-8"))
    layers = saved["model"].pop("layers")
    if layers == "native":
        usual = config_to_dict(TrainConfig(model=ModelConfig(edge_features="none")))
        written = config_to_dict(read_config(path))
        for section, fields in written.items():
            new = {name: fields.pop(name) for name in fields.keys() - saved[section].keys()}
            assert new == {name: usual[section][name] for name in new}
        assert written == saved
        return
    with pytest.raises(TrainError, match=f"{path}: model.layers is pyg: PyG's layers are no longer trained"):
        read_config(path)


if __name__ == "__main__":
    for one in COMMANDS:
        golden_help(one).write_text(shown(one), encoding="utf-8")
