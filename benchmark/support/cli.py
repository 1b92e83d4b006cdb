"""The options that benchmarks share on the command line, and their result files."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmark.networks.recipe import MODELS
from benchmark.support.graphs import GraphFolder
from benchmark.support.harness import Contestant, run_series
from benchmark.support.jobs import Options
from benchmark.support.machine import describe
from benchmark.support.prepare import chosen_graph
from benchmark.support.settings import BENCHMARK, MallocSetting, ProcessSetting

RESULTS = BENCHMARK / "results"


@dataclass(frozen=True)
class Peers:
    """The interpreter of each side.

    A peer lives in an environment of its own and cannot disturb ours.
    """

    pythons: dict[str, str]

    def python(self, side: str) -> str:
        """Returns the interpreter named for ``side``, else this one."""
        return self.pythons.get(side, sys.executable)

    def contestant(self, name: str, side: str, job: str, batches: int = 0) -> Contestant:
        """Returns a column of the table."""
        return Contestant(name, side, job, self.python(side), batches)


def peer(text: str) -> tuple[str, str]:
    """Parses one ``--peer SIDE=PYTHON``."""
    side, _, python = text.partition("=")
    if side not in ("pyg", "dgl", "ours") or not Path(python).is_file():
        raise argparse.ArgumentTypeError(
            f"{text!r} is not SIDE=/path/to/python with SIDE one of ours, pyg, dgl"
        )
    return side, python


def add_peer_option(result: argparse.ArgumentParser) -> None:
    """Lets the user name a side's interpreter."""
    text = "interpreter that has a side, for instance pyg=/envs/pyg/bin/python; default: this one"
    result.add_argument("--peer", type=peer, action="append", default=[], metavar="SIDE=PYTHON", help=text)


def parser(description: str, batches: int, rounds: int, threads: Sequence[int]) -> argparse.ArgumentParser:
    """Returns a parser with the common options; the arguments are a benchmark's own defaults."""
    result = argparse.ArgumentParser(
        description=description, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    add = result.add_argument
    add(
        "--graph",
        type=Path,
        help="folder with colptr.npy, row.npy, x.npy, y.npy, train_idx.npy (CSC by destination)",
    )
    add("--nodes", type=int, default=1_000_000, help="size of the generated graph if no folder is given")
    add_peer_option(result)
    add("--rounds", type=int, default=rounds, help="rounds measured, after one unmeasured")
    add("--batches", type=int, default=batches, help="minibatches per contestant and round")
    add("--batch-size", type=int, default=1024, help="seed nodes per minibatch")
    add("--fanouts", type=int, nargs="+", default=[15, 10, 5], help="neighbours per hop, from the seeds")
    add(
        "--models",
        nargs="+",
        choices=MODELS,
        default=list(MODELS),
        help="networks of the benchmarks that train",
    )
    add("--hidden", type=int, default=256, help="width of hidden layers")
    add("--macrobatch", type=int, default=0, help="minibatches sampled together; 0: the loader's own choice")
    add(
        "--threads",
        type=int,
        nargs="+",
        default=list(threads),
        help="thread counts to measure, one after another",
    )
    allocators = [setting.value for setting in MallocSetting]
    add("--malloc", choices=allocators, nargs="+", default=allocators, help="allocator settings to measure")
    add("--seed", type=int, default=0, help="seed that chooses the training nodes")
    add("--resume", action="store_true", help="keep pieces that were measured before")
    add("--results", type=Path, default=RESULTS, help="folder for the JSON file")
    return result


@dataclass(frozen=True)
class BenchmarkRun:
    """A parsed command line of a benchmark with the common options."""

    graph: GraphFolder
    options: Options
    peers: Peers
    settings: list[ProcessSetting]
    models: list[str]
    rounds: int
    resume: bool
    results: Path

    @classmethod
    def parse(cls, arguments: argparse.Namespace) -> BenchmarkRun:
        """Makes a run from the options of `parser`."""
        graph = chosen_graph(arguments.graph, arguments.nodes)
        options = Options(
            graph=str(graph.path.resolve()),
            fanouts=tuple(arguments.fanouts),
            batch_size=arguments.batch_size,
            batches=arguments.batches,
            macrobatch=arguments.macrobatch,
            hidden=arguments.hidden,
            seed=arguments.seed,
        )
        settings = [
            ProcessSetting(threads, MallocSetting(m))
            for m in arguments.malloc
            for threads in arguments.threads
        ]
        return cls(
            graph,
            options,
            Peers(dict(arguments.peer)),
            settings,
            arguments.models,
            arguments.rounds,
            arguments.resume,
            arguments.results,
        )

    def measure(self, columns: Sequence[tuple[str, str, str]], warmup: int = 1) -> list[dict[str, Any]]:
        """Measures all contestants in one setting after another; columns: (name, side, job)."""
        contestants = [self.peers.contestant(*column) for column in columns]
        return [
            run_series(contestants, self.options, setting, self.rounds, warmup).as_dict()
            for setting in self.settings
        ]

    def head(self, benchmark: str) -> dict[str, Any]:
        """Returns the head of every result file: graph, options, machine and time."""
        options = {
            key: value for key, value in self.options.as_dict().items() if key not in ("graph", "threads")
        }
        return {
            "benchmark": benchmark,
            "graph": self.graph.describe(),
            "options": {**options, "rounds": self.rounds},
            "machine": describe(),
            "when": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
        }

    def store(self, benchmark: str, found: dict[str, Any]) -> Path:
        """Writes ``RESULTS/BENCHMARK-GRAPH.json`` and prints its path."""
        content = {**self.head(benchmark), **found}
        return write_json(self.results / f"{benchmark}-{content['graph']['name']}.json", content)


def read_json(path: Path) -> dict[str, Any]:
    """Reads a result file; returns an empty one if there is none."""
    found: dict[str, Any] = json.loads(path.read_text()) if path.is_file() else {}
    return found


def write_datasets(path: Path, found: dict[str, Any], **others: Any) -> Path:
    """Writes a benchmark's results by data set, beside those of other data sets in the file.

    Every result has the machine that it was measured on: this one where it is new, and that of the
    file where it has not changed.
    """
    stored = read_json(path)
    datasets = {
        name: {**one, "machine": one.get("machine", stored.get("machine"))}
        for name, one in stored.get("datasets", {}).items()
    }
    here = describe()
    for name, one in json.loads(json.dumps(found)).items():
        before = datasets.get(name, {})
        is_old = before == {**one, "machine": before.get("machine")}
        datasets[name] = before if is_old else {**one, "machine": here}
    return write_json(path, {"benchmark": path.stem, "datasets": datasets, **others})


def pieces_folder(results: Path, benchmark: str) -> Path:
    """Makes the folder of a benchmark's pieces, from which its result is collected.

    It is not kept in the repository: a new measurement replaces its part of the stored result.
    """
    folder = results / "pieces" / benchmark
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def write_json(path: Path, content: dict[str, Any]) -> Path:
    """Writes through a temporary name, so that a stopped run leaves the last results whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(content, indent=1) + "\n")
    partial.replace(path)
    print(f"wrote {path}", flush=True)
    return path
