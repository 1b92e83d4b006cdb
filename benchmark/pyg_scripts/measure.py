"""Runs PyG's benchmark scripts with PyG's loader and with ours in turns, and PyG's examples.

The scripts are those of a checkout of PyG, which the environment variable PYG_BATCHGNN_PYG_CHECKOUT
names; it is never part of this repository. They run as they are; data sets are generated.
"""

from __future__ import annotations

import argparse
import enum
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmark.pyg_scripts.run_script import Record
from benchmark.support.cli import Peers, add_peer_option, new_parser, read_json, stamped, write_json
from benchmark.support.harness import ProcessSetting
from benchmark.support.tables import Result, markdown, paragraph


@dataclass(frozen=True)
class Case:
    """A run of one of PyG's benchmark scripts."""

    group: str  # the folder of the script, by which cases are chosen
    name: str  # its name in tables
    script: str  # its path in a checkout of PyG
    arguments: tuple[str, ...]  # its own arguments
    backend: str = ""  # the backend of two ranks; empty for a script of one process


LOADER = "benchmark/loader/neighbor_loader.py"
TRAINING = "benchmark/training/training_benchmark.py"
INFERENCE = "benchmark/inference/inference_benchmark.py"
RANKS_SCRIPT = "benchmark/multi_gpu/training/common.py"

_DATASETS = ("--datasets", "ogbn-mag", "ogbn-products", "Reddit")
_HOMOGENEOUS = ("--datasets", "ogbn-products", "Reddit")
_MODELS = ("--models", "edge_cnn", "gat", "gcn", "pna", "sage", "rgat", "rgcn")
_NETWORK = ("--num-layers", "2", "--num-hidden-channels", "64")
_TRAINING = (*_MODELS, *_NETWORK, *("--batch-sizes", "512", "--num-workers", "0", "--no-progress-bar"))
_INFERENCE = (*_DATASETS, *_MODELS, *_NETWORK, "--eval-batch-sizes", "512")
_SAMPLING = ("--batch-sizes", "[1024]", "--homo-neighbor_sizes", "[[10, 5], [15, 10, 5]]")
_ONLY_SAMPLING = (*_SAMPLING, "--eval-batch-sizes", "[]", "--subgraph-type")

CASES = (
    Case("loader", "loader", LOADER, (*_SAMPLING, "--eval-batch-sizes", "[1024]")),
    Case("loader", "loader, bidirectional", LOADER, (*_ONLY_SAMPLING, "bidirectional")),
    Case("loader", "loader, induced", LOADER, (*_ONLY_SAMPLING, "induced")),
    Case("training", "training", TRAINING, (*_DATASETS, *_TRAINING)),
    Case("training", "training, --trim", TRAINING, (*_HOMOGENEOUS, *_TRAINING, "--trim")),
    Case("training", "training, --num-steps 2", TRAINING, (*_DATASETS, *_TRAINING, "--num-steps", "2")),
    Case("training", "training, --bf16", TRAINING, (*_DATASETS, *_TRAINING, "--bf16")),
    Case("inference", "inference", INFERENCE, _INFERENCE),
    Case("inference", "inference, --cached-loader", INFERENCE, (*_INFERENCE, "--cached-loader")),
    *(
        Case(
            "multi_gpu",
            f"2 ranks, {backend}, {model}",
            RANKS_SCRIPT,
            (*("--dataset", dataset, "--model", model), "--batch-size", "512", "--num-layers", "2"),
            backend,
        )
        for backend in ("gloo", "ccl")
        for dataset, model in (("Reddit", "sage"), ("ogbn-mag", "rgcn"))
    ),
)
GROUPS = (*dict.fromkeys(case.group for case in CASES), "examples")


RUN_SCRIPT = "benchmark.pyg_scripts.run_script"
#: Seconds that a script may take.
LIMIT = 1800.0


class Side(enum.Enum):
    """The two sets of loaders that a script may get."""

    PYG = "pyg"
    OURS = "ours"


def run(
    side: Side, arguments: Sequence[str], *, python: str = sys.executable, threads: int = 1, ranks: int = 0
) -> str:
    """Runs a script and returns what it printed."""
    launcher = ["torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", "-m"] if ranks else []
    options = ["--loader", side.value, "--threads", str(threads)]
    done = subprocess.run(
        [python, "-m", *launcher, RUN_SCRIPT, *options, *arguments],
        env={**ProcessSetting(threads).environment(), "GLOO_SOCKET_IFNAME": "lo"},
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=True,
    )
    return done.stdout


def why_absent(side: Side, python: str) -> str | None:
    """Returns why a side cannot sample with an interpreter, or None if it can."""
    if side is Side.OURS:
        return None
    ask = "import torch_geometric.typing as t; print(t.WITH_PYG_LIB or t.WITH_TORCH_SPARSE)"
    done = subprocess.run([python, "-c", ask], capture_output=True, text=True, check=False)
    if done.stdout.strip() == "True":
        return None
    return "PyG's loader, which needs pyg-lib or torch-sparse: neither is installed"


#: Lines that say what the figures after them are about, and how that is shown.
_CONTEXT = (
    (re.compile(r"Dataset: (\S+)"), "{0}", 0),
    (re.compile(r"(?:Training|Evaluation) bench for (\w+):"), "{0}", 1),
    (re.compile(r"Training sampling with (\[.*\]) neighbors"), "fanout {0}", 1),
    (re.compile(r"Evaluation sampling with all neighbors"), "all neighbours", 1),
    (re.compile(r"Batch size=(\d+), Layers amount=(\d+)"), "batch {0}, {1} layers", 2),
)
_SECONDS = re.compile(r"batch size=(\d+), iterations=\d+, .*average runtime=([\d.]+)")
_RATE = re.compile(r"Throughput: ([\d.]+) samples/s")


@dataclass(frozen=True)
class Figure:
    """A figure that a script reports."""

    what: str  # what was measured
    value: float  # seconds, or samples per second
    is_rate: bool  # True for samples per second


def figures(text: str) -> Iterator[Figure]:
    """Yields the figures in the output of a script."""
    context: list[str] = []
    for line in text.splitlines():
        for pattern, shown, depth in _CONTEXT:
            if found := pattern.match(line):
                context[depth:] = [shown.format(*found.groups())]
        if found := _SECONDS.match(line):
            yield Figure(", ".join([*context, f"batch {found[1]}"]), float(found[2]), is_rate=False)
        if found := _RATE.match(line):
            yield Figure(", ".join(context), float(found[1]), is_rate=True)


@dataclass(frozen=True)
class Example:
    """An example of PyG's."""

    name: str  # its name in tables
    script: str  # its path in a checkout of PyG
    arguments: tuple[str, ...] = ()  # its own arguments
    steps: int = 10  # the training steps after which it is ended
    scale: float = 0.005  # the size of its data set
    takes_batch: bool = True  # its model can be called with a batch


SHORT = (*("--epochs", "8", "--num_layers", "2"), *("--fan_out", "5", "--hidden_channels", "32"))
POLYNORMER = (*SHORT[2:], *("--model", "polynormer", "--epochs", "4", "--local_epochs", "4"))
EXAMPLES = (
    Example("to_hetero_mag", "examples/hetero/to_hetero_mag.py"),
    Example("to_hetero_mag, HGT", "examples/hetero/to_hetero_mag.py", ("--use_hgt_loader",)),
    Example("hierarchical_sage", "examples/hetero/hierarchical_sage.py"),
    Example("graph_sage_unsup", "examples/graph_sage_unsup.py", steps=40),
    Example("ogbn_train, disjoint", "examples/ogbn_train.py", SHORT),
    Example("ogbn_train, SAGE", "examples/ogbn_train.py", (*SHORT, "--model", "sage")),
    Example("ogbn_train, GAT", "examples/ogbn_train.py", (*SHORT, "--model", "gat")),
    Example("ogbn_train, Polynormer", "examples/ogbn_train.py", POLYNORMER),
    Example("reddit", "examples/reddit.py"),
    Example("hierarchical_sampling", "examples/hierarchical_sampling.py", scale=0.01),
    Example("graph_sage_unsup_ppi", "examples/graph_sage_unsup_ppi.py", steps=20),
    Example("temporal_link_pred", "examples/hetero/temporal_link_pred.py", steps=20),
    Example("recommender_system", "examples/hetero/recommender_system.py", scale=0.1),
    # DeepGraphInfomax takes any arguments, without names.
    Example("infomax_inductive", "examples/infomax_inductive.py", steps=15, takes_batch=False),
)


class ExampleError(RuntimeError):
    """The error of an example that failed; the text has the end of its output."""


def run_example(example: Example, checkout: Path, folder: Path, models: str | None = None) -> Record:
    """Runs an example with this package's loaders."""
    file = folder / "record.json"
    workers = "1" if models is None else "0"
    options = ["--record", str(file), "--steps", str(example.steps), "--workers", workers]
    options += [] if models is None else ["--models", models]
    script = [str(checkout / example.script), *example.arguments]
    try:
        run(Side.OURS, [*options, "--scale", str(example.scale), *script])
    except subprocess.CalledProcessError as error:
        raise ExampleError(f"{example.name} failed:\n{error.stdout[-1500:]}{error.stderr[-3000:]}") from None
    return Record(**json.loads(file.read_text()))


def falls(losses: Sequence[float]) -> bool:
    third = max(1, len(losses) // 3)
    return sum(losses[-third:]) < sum(losses[:third])


def measure_examples(checkout: Path, folder: Path) -> list[dict[str, Any]]:
    """Runs all examples. Returns for each what was recorded, or why it failed."""
    rows = []
    for example in EXAMPLES:
        row: dict[str, Any] = {"name": example.name}
        try:
            found = run_example(example, checkout, folder)
            row |= {"batches": found.batches, "losses": found.losses, "different": len(found.different)}
        except ExampleError as error:
            row["error"] = str(error).splitlines()[-1]
        rows.append(row)
        print(f"  {example.name}: {row.get('error', 'done')}", flush=True)
    return rows


#: The environment variable that names the checkout.
VARIABLE = "PYG_BATCHGNN_PYG_CHECKOUT"
RELEASE = "2.8.0.post1"


def pyg_checkout() -> Path | None:
    """Returns the folder of the checkout, or None if the environment names none."""
    named = os.environ.get(VARIABLE)
    if not named:
        return None
    folder = Path(named).resolve()
    if not (folder / "torch_geometric" / "__init__.py").is_file():
        raise FileNotFoundError(f"{VARIABLE}={named} is no checkout of PyG; name one of tag {RELEASE}")
    return folder


def missing() -> str:
    """Returns the text that says how to get a checkout."""
    return (
        f"{VARIABLE} must name a checkout of PyG, tag {RELEASE}: git clone --depth 1 --branch {RELEASE} "
        f"https://github.com/pyg-team/pytorch_geometric"
    )


RANKS = 2


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures, and replaces in the stored result what was measured, script by script."""
    parser = new_parser(__doc__)
    add = parser.add_argument
    add("--groups", nargs="+", choices=GROUPS, default=list(GROUPS), help="folders of PyG's benchmarks")
    add("--scale", type=float, default=0.01, help="size of the graphs, as a share of the real ones")
    add("--threads", type=int, default=1)
    add("--rounds", type=int, default=2, help="runs of each script and side")
    add("--busy", action="store_true", help="the machine does other work: tables say so")
    add_peer_option(parser)
    options = parser.parse_args(arguments)
    checkout = pyg_checkout()
    if checkout is None:
        parser.error(missing())
    peers = Peers(dict(options.peer))
    absent = {side.value: why for side in Side if (why := why_absent(side, peers.python(side.value)))}
    file = options.results / "pyg_scripts.json"

    def store(name: str, run: dict[str, Any]) -> None:
        runs = {**read_json(file).get("runs", {}), name: {**run, "busy": options.busy}}
        shown = {"scale": options.scale, "threads": options.threads, "rounds": options.rounds}
        ordered = dict(sorted(runs.items(), key=lambda one: GROUPS.index(one[1]["group"])))
        write_json(file, stamped("pyg_scripts", options=shown, absent=absent, runs=ordered))

    for case in (one for one in CASES if one.group in options.groups):
        print(case.name, flush=True)
        sides = [side for side in Side if side.value not in absent]
        found = [
            measure(case, side, checkout, peers, options)
            for number in range(options.rounds)
            for side in (sides if number % 2 == 0 else sides[::-1])
        ]
        store(case.name, {"group": case.group, **collected(found)})
    if "examples" in options.groups:
        with tempfile.TemporaryDirectory() as folder:
            store("examples", {"group": "examples", "rows": measure_examples(checkout, Path(folder))})


def measure(
    case: Case, side: Side, checkout: Path, peers: Peers, options: argparse.Namespace
) -> tuple[Side, list[Figure] | str]:
    """Returns the figures that a script prints, or the last line of its error."""
    ranks = ["--backend", case.backend] if case.backend else []
    script = [str(checkout / case.script), *case.arguments]
    try:
        printed = run(
            side,
            ["--scale", str(options.scale), *ranks, *script],
            python=peers.python(side.value),
            threads=options.threads,
            ranks=RANKS if case.backend else 0,
        )
    except subprocess.CalledProcessError as error:
        why = error.stderr.strip().splitlines()[-1]
        print(f"  {side.value} failed: {why}", flush=True)
        return side, why
    return side, list(figures(printed))


def collected(found: Sequence[tuple[Side, list[Figure] | str]]) -> dict[str, Any]:
    """Returns the mean of each figure by side, and the errors of the sides that failed."""
    rows: dict[str, dict[str, Any]] = {}
    errors: dict[str, str] = {}
    values: dict[tuple[str, str], list[float]] = {}
    for side, printed in found:
        if isinstance(printed, str):
            errors[side.value] = printed
            continue
        for one in printed:
            values.setdefault((one.what, side.value), []).append(one.value)
            rows.setdefault(one.what, {"what": one.what, "is_rate": one.is_rate})
    for (what, side_name), own in values.items():
        rows[what][side_name] = fmean(own)
    return {"rows": list(rows.values()), "errors": errors}


def table(result: Result) -> str:
    """Returns a table for each script, and one for the examples."""
    options = result["options"]
    parts = [
        paragraph(
            f"Graphs of benchmark scripts have {100 * options['scale']:g} % of the size of the real ones; "
            f"{options['threads']} thread(s), means of {options['rounds']} runs of each script."
        )
    ]
    parts += [paragraph(f"Not measured: {why}.") for why in result["absent"].values()]
    for name, run in result["runs"].items():
        name += " (while the machine did other work)" if run.get("busy") else ""
        if run["group"] == "examples":
            parts.append(f"**examples**\n\n{_examples(run['rows'])}")
            continue
        parts.append(f"**{name}**\n\n{_figures(run['rows'])}" if run["rows"] else f"**{name}**")
        parts += [paragraph(f"{side} failed: {why}") for side, why in run["errors"].items()]
    return "\n\n".join(parts)


def _figures(rows: list[dict[str, Any]]) -> str:
    unit = "samples/s" if rows[0]["is_rate"] else "s per pass"
    cells = [
        [row["what"], *(_number(row.get(side)) for side in ("pyg", "ours")), _times(row)] for row in rows
    ]
    return markdown([unit, "PyG's loader", "ours", "times as fast"], cells)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _times(row: dict[str, Any]) -> str:
    if "pyg" not in row or "ours" not in row or not min(row["pyg"], row["ours"]):
        return "-"
    ratio = row["ours"] / row["pyg"]
    return f"{ratio if row['is_rate'] else 1 / ratio:.1f}x"


def _examples(rows: list[dict[str, Any]]) -> str:
    cells = []
    for row in rows:
        if "error" in row:
            cells.append([row["name"], "-", "-", f"failed: {row['error']}"])
            continue
        third = max(1, len(row["losses"]) // 3)
        first, last = (sum(some) / third for some in (row["losses"][:third], row["losses"][-third:]))
        loss = f"{first:.3f} to {last:.3f}" + ("" if falls(row["losses"]) else " (does not fall)")
        same = "all" if row["different"] == 0 else "not all"
        cells.append([row["name"], str(row["batches"]), same, loss])
    return markdown(
        ["", "batches", "with PyG's names, dtypes and shapes", "loss, first to last third"], cells
    )
