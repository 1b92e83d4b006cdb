"""A plan compared with what ranks then count, and the command line."""

from __future__ import annotations

import dataclasses
import json
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import pyg_batchgnn
from pyg_batchgnn.cache import Aggregation
from pyg_batchgnn.data import Dataset, EdgeSet, NodeSet, load_dataset, write_folder
from pyg_batchgnn.history import HistoricalSettings
from pyg_batchgnn.loader import ScheduleName
from pyg_batchgnn.planner import (
    Choices,
    Degrees,
    HistoricalPrediction,
    Plan,
    PlannerMachine,
    PlannerNetwork,
    PlannerSetting,
    Prediction,
    TypeRows,
    Workload,
    predict,
    predict_historical,
    probe_degrees,
)
from pyg_batchgnn.planner.plans import workload_of
from pyg_batchgnn.sample import Replacement
from pyg_batchgnn.train.cli.plan_command import parse_rate
from pyg_batchgnn.train.errors import TrainError
from tests.planner.job_planned import first_trained
from tests.support.bare_graphs import without_features
from tests.support.ranks import run_ranks
from tests.support.tiers import ALL, in_all
from tests.support.training_runs import batchgnn, figures_drawn, mistake
from tests.support.typed_datasets import CASES as TYPED_CASES
from tests.support.typed_datasets import typed_dataset

GRAPH = "generated:nodes=6000,features=32,classes=4,seed=3"
SETTINGS = [
    PlannerSetting(4, 2),
    PlannerSetting(2, hybrid=True),
    PlannerSetting(1, feature_cache=60_000),
    PlannerSetting(0, aggregation=Aggregation.MEAN),
]
MORE = [
    PlannerSetting(1),
    PlannerSetting(0),
    PlannerSetting(1, aggregation=Aggregation.MEAN),
    PlannerSetting(0, aggregation=Aggregation.SYMMETRIC),
    PlannerSetting(2, hybrid=True, aggregation=Aggregation.SUM),
]
SETTINGS += MORE if ALL else []
RANKS = 4 if ALL else 2


TYPED = "generated-typed:papers=4000,features=16,seed=3"
ARGUMENTS = {"num_neighbors": [5, 4, 3], "batch_size": 64, "replace": True}


def made(graph: Dataset, **given: Any) -> Plan:
    usual: dict[str, Any] = {"network": PlannerNetwork(1e8), "machine": PlannerMachine(), "hidden": 0}
    return pyg_batchgnn.plan(graph, **{**usual, **given})


def planned(
    ranks: int,
    schedule: ScheduleName = ScheduleName.LOCAL,
    replacement: Replacement = Replacement.WITH,
    graph: str | Dataset = GRAPH,
    node_type: str | None = None,
    policy: str = "random",
) -> Plan:
    return made(
        load_dataset(graph) if isinstance(graph, str) else graph,
        ranks=ranks,
        fanouts=(5, 4, 3),
        batch_size=64,
        replacement=replacement,
        drop_last=False,
        schedule=schedule.value,
        node_type=node_type,
        policies=(policy,),
        choices=Choices(macrobatches=(1, 0)),
        samples=6,
    )


def rounds_of(found: Prediction) -> list[int]:
    return [found.rounds.topology, found.rounds.features, found.rounds.lookup]


@pytest.mark.parametrize(
    ("graph", "schedule", "replacement"),
    [
        (GRAPH, ScheduleName.LOCAL, Replacement.WITH),
        *in_all(
            (GRAPH, ScheduleName.GLOBAL, Replacement.WITHOUT),
            (TYPED, ScheduleName.LOCAL, Replacement.WITH),
            (TYPED, ScheduleName.GLOBAL, Replacement.WITHOUT),
        ),
    ],
)
def test_ranks_count_what_was_predicted(graph: str, schedule: ScheduleName, replacement: Replacement) -> None:
    tried = SETTINGS if graph == GRAPH else [one for one in SETTINGS if one.aggregation is None]
    found = planned(RANKS, schedule, replacement, graph, None if graph == GRAPH else "paper")
    probe = found.probes["random"]
    arguments = {**ARGUMENTS, "replace": replacement is Replacement.WITH, "schedule": schedule.value}
    given = {"dataset": graph, "settings": [vars(one) for one in tried], "arguments": arguments}
    results = run_ranks("tests.planner.job_planned:prepare", RANKS, given, hosts=list(range(RANKS)))
    for at, setting in enumerate(tried):
        predicted = predict(found.workload, probe, found.machine, found.network, setting)
        seen = [result.value[at] for result in results]
        assert {one["minibatches"] for one in seen} == {predicted.minibatches}
        assert all(one["rounds"] == rounds_of(predicted) for one in seen)
        assert predicted.rows == pytest.approx(sum(one["rows"] for one in seen) / RANKS, rel=0.1)
        received = [sum(one["bytes"][kind] for one in seen) / RANKS for kind in (0, 1)]
        assert [predicted.topology_bytes, predicted.feature_bytes] == pytest.approx(received, rel=0.1)
        without = predict(found.workload, probe, replace(found.machine, resident=0.0), found.network, setting)
        assert max(one["memory"] for one in seen) < without.memory, "the margin holds what blocks are kept"


def test_ranks_count_what_was_predicted_of_seeds_that_they_do_not_own() -> None:
    tried, graphs = SETTINGS[:3], [(TYPED, "paper", 1200), *([(GRAPH, None, 1800)] if ALL else [])]
    given = {
        "settings": [vars(one) for one in tried],
        "arguments": {**ARGUMENTS, "schedule": "balanced"},
        "policy": "contiguous",
    }
    cases = [{**given, "dataset": graph, "first": first} for graph, _, first in graphs]
    results = run_ranks(
        "tests.planner.job_planned:prepare_all", RANKS, {"cases": cases}, hosts=list(range(RANKS))
    )
    for case, (graph, node_type, first) in enumerate(graphs):
        dataset = first_trained(load_dataset(graph), first)
        found = planned(RANKS, ScheduleName.BALANCED, graph=dataset, node_type=node_type, policy="contiguous")
        probe = found.probes["contiguous"]
        assert probe.seeds == (first // RANKS,) * RANKS
        for at, setting in enumerate(tried):
            predicted = predict(found.workload, probe, found.machine, found.network, setting)
            seen = [result.value[case][at] for result in results]
            macrobatches = -(-predicted.minibatches // (setting.macrobatch or 1000))
            assert predicted.rounds.topology == (0 if setting.hybrid else 6 * macrobatches)
            assert {one["minibatches"] for one in seen} == {predicted.minibatches}
            assert all(one["rounds"] == rounds_of(predicted) for one in seen)
            assert predicted.rows == pytest.approx(max(one["rows"] for one in seen), rel=0.1)


@pytest.mark.parametrize("schedule", [ScheduleName.LOCAL, ScheduleName.GLOBAL])
def test_one_rank_makes_the_rounds_that_were_predicted(schedule: ScheduleName) -> None:
    tried = [PlannerSetting(1), PlannerSetting(4, 2), PlannerSetting(0, hybrid=True)]
    found, arguments = planned(1, schedule), {**ARGUMENTS, "schedule": schedule.value}
    given = {"dataset": GRAPH, "settings": [vars(one) for one in tried], "arguments": arguments}
    (result,) = run_ranks("tests.planner.job_planned:prepare", 1, given)
    for setting, seen in zip(tried, result.value, strict=True):
        predicted = predict(found.workload, found.probes["random"], found.machine, found.network, setting)
        assert (seen["minibatches"], seen["rounds"]) == (predicted.minibatches, rounds_of(predicted))


def test_the_type_of_the_training_nodes_must_be_said() -> None:
    with pytest.raises(ValueError, match=r"types \['author', 'paper'\]; name one as node_type"):
        planned(2, graph=TYPED)
    with pytest.raises(ValueError, match="no training nodes of type 'field'"):
        planned(2, graph=TYPED, node_type="field")


@pytest.mark.parametrize("schedule", list(ScheduleName))
def test_ranks_without_a_whole_minibatch_keep_smaller_ones(schedule: ScheduleName) -> None:
    """The training nodes fill one minibatch, but not one per rank. Training keeps smaller ones."""
    data = load_dataset(GRAPH)
    size = len(data.split("train")) - 1
    assert workload_of(data, (3, 2), size, ranks=1, schedule=schedule).drop_last
    workload = workload_of(data, (3, 2), size, ranks=2, schedule=schedule)
    counts = [size // 2 + 1, size - size // 2]
    assert workload.minibatches(counts) == 1
    options = {"fanouts": (3, 2), "batch_size": size, "schedule": schedule.value}
    found = made(data, ranks=2, choices=Choices(macrobatches=(1,)), **options)
    assert all(one.minibatches == 1 and one.rows > 0 and one.memory > 0 for one in found.predictions)


def test_a_plan_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = planned(2)
    drawn = figures_drawn(monkeypatch)
    numbers, picture = found.write(tmp_path / "plan")
    content = json.loads(numbers.read_text())
    assert content["recommended"]["setting"]["macrobatch"] in (0, 1)
    assert len(content["predictions"]) == len(found.predictions) and picture.stat().st_size > 10_000
    assert found.advice()[0].startswith("Recommended") and len(found.advice()) == 2
    (figure,) = drawn
    legend = figure.axes[0].get_legend()
    assert legend is not None and legend.get_window_extent().y0 > figure.axes[0].get_window_extent().y1 - 1


@pytest.mark.parametrize("schedule", list(ScheduleName))
def test_the_advice_names_schedule_and_node_type(schedule: ScheduleName) -> None:
    """A graph of one node type and two relations, and one without names."""
    for graph, named in (
        (typed_dataset(*TYPED_CASES[3]), True),
        (load_dataset("generated:nodes=300"), False),
    ):
        found = made(
            graph,
            ranks=2,
            fanouts=(3, 2),
            batch_size=8,
            schedule=schedule.value,
            policies=["contiguous"],
            choices=Choices(macrobatches=(2,), fetches=(1.0,), hybrid=(True,), feature_caches=(1000,)),
        )
        assert len(found.workload.types) == 1
        (line,) = [line.strip() for line in found.advice() if line.startswith("  ")]
        expected = "batchgnn train " + ("--node-type paper " if named else "") + "--macrobatch "
        assert line.startswith(expected), line
        assert line.endswith(
            f"--partition contiguous --schedule {schedule.value} --hybrid --feature-cache 1000"
        ), line


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    speeds = tmp_path / "speeds.json"
    speeds.write_text('{"machine": {"gather": 1e-10, "forward": 0.5, "backward": 0.5}}')
    usual = ["plan", GRAPH, "--ranks", "4", "--machine", speeds, "--batch-size", "64", "--samples", "4"]
    assert batchgnn(*usual, "--memory", "8GiB", "--feature-cache", "1MB", "--out", tmp_path / "out") == 0
    printed = capsys.readouterr().out
    assert "Recommended: " in printed
    assert "torchrun --nnodes=4 --nproc-per-node=1 " in printed and f" train {GRAPH} " in printed
    assert json.loads((tmp_path / "out" / "plan.json").read_text())["machine"]["forward"] == 0.5
    assert batchgnn(*usual, "--memory", "1MB") == 0
    assert "Nothing fits" in capsys.readouterr().out


def test_the_printed_command_trains_a_graph_with_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    graph = "generated-typed:papers=300,features=8,classes=3,seed=1"
    training = ["--batch-size", "50", "--fanout", "4,3", "--hidden", "16", "--node-type", "paper"]
    training += ["--replacement", "without", "--macrobatch", "all"]
    speeds = tmp_path / "speeds.json"
    speeds.write_text('{"gather": 1e-10}')
    usual = ["plan", graph, *training, "--machine", speeds, "--samples", "4"]
    assert batchgnn(*usual, "--ranks", 2, "--schedule", "balanced", "--partition", "ldg") == 0
    printed = capsys.readouterr().out
    assert "--node-type paper" in printed and printed.count("--schedule balanced") == 1
    assert "torchrun" in printed and "--partition ldg" in printed
    assert batchgnn(*usual, "--ranks", 1) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if " train " in line]
    first, *words = shlex.split(line)
    folder = tmp_path / "run"
    assert first == "batchgnn"
    assert batchgnn(*words, "--epochs", 1, "--run-folder", folder, "--set", "run.malloc=default") == 0
    config = json.loads((folder / "config.json").read_text())
    sampling = config["sampling"]
    assert config["task"]["node_type"] == "paper" and sampling["batch_size"] == 50
    assert sampling["fanout"] == [4, 3] and sampling["replacement"] == "without"
    assert sampling["macrobatch_size"] == "all" and config["model"]["hidden"] == 16


def of_one_named_type() -> Dataset:
    whole = load_dataset("generated:nodes=300,features=8,seed=1")
    papers = replace(whole.nodes, name="paper")
    cites = replace(whole.edges, relation=("paper", "cites", "paper"))
    return Dataset("citations", (papers,), (cites,))


def test_what_training_refuses_is_not_planned() -> None:
    whole = load_dataset("generated:nodes=300,features=8,seed=1")
    for graph, is_for_them in ((whole, True), (without_features(whole), False), (of_one_named_type(), False)):
        choices = Choices(macrobatches=(1,), fetches=(1.0,), hybrid=(False,))
        options = {"fanouts": (3, 2), "batch_size": 8, "hidden": 16, "samples": 2}
        found = made(graph, ranks=2, choices=choices, **options)
        kinds = {one.setting.aggregation for one in found.predictions}
        assert kinds == ({None, Aggregation.MEAN} if is_for_them else {None})
        assert (len(found.historical), found.workload.parameters > 0) == (is_for_them, is_for_them)
        assert ("hist" in list(found.table().columns[3].cells)) == is_for_them


def test_a_plan_is_refused_as_training_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    speeds = tmp_path / "speeds.json"
    speeds.write_text("{}")
    plan = ["plan", "--ranks", 1, "--machine", speeds, "--samples", "2"]
    typed = "generated-typed:papers=300,features=8,classes=3,seed=1"
    users = NodeSet("user", 30, {"x": torch.randn(30, 6)})
    labels, items = {"y": torch.arange(20) % 2}, {"train": torch.arange(20)}
    bought = EdgeSet(("user", "buys", "item"), torch.arange(200).view(2, 100) % 20)
    shop = Dataset("shop", (users, NodeSet("item", 20, labels, items, 2)), (bought,))
    folder = write_folder(shop, tmp_path / "shop")
    for graph, options, said in (
        (typed, ["--model", "gcn", "--node-type", "paper"], "between two node types, such as"),
        (folder, ["--node-type", "item"], "add --reverse"),
    ):
        errors = []
        for command in (["train", graph, "--run", tmp_path / "run"], [*plan, graph]):
            assert batchgnn(*command, *options, "--fanout", "3,2") == 2
            errors.append(capsys.readouterr().err)
        assert errors[0] == errors[1] and said in errors[0]
    assert batchgnn(*plan, folder, "--reverse") == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if " train " in line]
    assert "--reverse --node-type item" in line
    words = [*shlex.split(line)[1:], "--epochs", 1, "--run-folder", tmp_path / "run"]
    assert batchgnn(*words, "--set", "run.malloc=default") == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--bandwidth", "fast"], "is not a rate; write it like 10gbit"),
        (["--bandwidth", "10"], "'10' is a rate without a unit; write it like 10gbit"),
        (["--macrobatch", "some"], "write a number like 8, or all"),
        (["--fanout", "a,b"], "--fanout must be whole numbers separated by commas, got"),
        (["--cores", "0"], "cores must be positive, got 0"),
        (["--machine", "nowhere.json"], "nowhere.json: cannot be read"),
        (["--partition", "best"], "policy 'best' is not known"),
    ],
)
def test_mistakes(options: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert said in mistake(capsys, "plan", "generated:nodes=500", "--ranks", 2, "--hidden", 0, *options)


def test_rates() -> None:
    assert (
        parse_rate("1gbit") == 125e6 and parse_rate("12.5 GB/s") == 12.5e9 and parse_rate("80mbit/s") == 1e7
    )
    with pytest.raises(TrainError, match="not a rate"):
        parse_rate("0gbit")


WORK = Workload(
    "graph", (TypeRows("node", 400_000, 400, 8),), 8_000_000, 80_000, (15, 10, 5), parameters=10**5
)
MACHINE = PlannerMachine(forward=0.2, backward=0.2)
SLOW = PlannerNetwork(1.25e8, 1e-4)


def predicted(
    ranks: int = 4,
    settings: HistoricalSettings | None = None,
    workload: Workload = WORK,
    network: PlannerNetwork = SLOW,
) -> HistoricalPrediction:
    probe = probe_degrees(workload, Degrees.lognormal(workload.nodes, workload.edges, 1.0), ranks)
    settings = settings or HistoricalSettings()
    return predict_historical(workload, probe, MACHINE, network, settings, hidden=256)


def test_historical_ranks_count_what_was_predicted() -> None:
    graph, fanouts, hidden = "generated:nodes=6000,features=32,classes=4,seed=3", (4, 3, 2), 16
    usual = {"network": SLOW, "machine": MACHINE, "choices": Choices(macrobatches=(1,)), "samples": 6}
    plan = made(load_dataset(graph), ranks=2, fanouts=fanouts, batch_size=16, drop_last=False, **usual)
    tried = [HistoricalSettings(push=None), HistoricalSettings(lines=500, push=40, delay=2)]
    arguments = {"num_neighbors": list(fanouts), "batch_size": 16, "replace": True}
    given = {"dataset": graph, "settings": [vars(one) for one in tried], "arguments": arguments}
    results = run_ranks("tests.planner.job_planned:push", 2, {**given, "hidden": hidden}, hosts=[0, 1])
    for at, settings in enumerate(tried):
        found = predict_historical(
            plan.workload, plan.probes["random"], plan.machine, plan.network, settings, hidden
        )
        seen = [result.value[at] for result in results]
        assert {one["steps"] for one in seen} == {one["rounds"] for one in seen} == {found.minibatches}
        for name, predicted in (
            ("edges", found.edges),
            ("rows", found.pushed_rows),
            ("bytes", found.pushed_bytes),
            ("feature_bytes", found.feature_bytes),
        ):
            measured = sum(one[name] for one in seen) / len(seen)
            assert predicted == pytest.approx(measured, rel=0.1), name


def test_historical_pushes() -> None:
    """They are bounded per step, layer and peer, and waited for if they take longer than training;
    neither one hop nor one rank pushes anything, and smaller parts have smaller minibatches."""
    found = predicted(workload=dataclasses.replace(WORK, fanouts=(10,)))
    assert found.pushed_rows == found.pushed_bytes == found.seconds["push"] == 0
    assert found.minibatches > 0 < found.feature_bytes
    found = predicted(1)
    assert found.pushed_bytes == found.feature_bytes == found.seconds["push"] == found.hidden_seconds == 0
    probe = probe_degrees(WORK, Degrees.lognormal(WORK.nodes, WORK.edges, 1.0), 1)
    assert found.edges == pytest.approx(probe.full.edges), "samples as in the exact mode"
    bounded, free = predicted(), predicted(settings=HistoricalSettings(push=None))
    assert bounded.minibatches == WORK.minibatches([WORK.training // 4] * 4)
    assert bounded.pushed_rows <= bounded.minibatches * 3 * 2 * 2000 < free.pushed_rows
    assert bounded.pushed_bytes == pytest.approx(bounded.pushed_rows * (8 + 4 * 256))
    edges = [predicted(ranks).edges for ranks in (1, 2, 4, 16)]
    assert edges == sorted(edges, reverse=True) and edges[-1] < 0.5 * edges[0]
    quick, slow = predicted(network=PlannerNetwork(1e10, 1e-5)), predicted(network=PlannerNetwork(1e6, 1e-3))
    assert quick.seconds["push"] == 0 < quick.hidden_seconds < slow.hidden_seconds
    assert slow.seconds["push"] > 0
    few = predicted(settings=HistoricalSettings(lines=1000))
    assert few.feature_bytes == 1000 * (400 + 8) < bounded.feature_bytes, "of as many nodes as lines"
