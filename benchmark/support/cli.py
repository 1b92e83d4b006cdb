"""The options that benchmarks share on the command line, and their result files."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmark.networks.recipe import MODELS
from benchmark.support.graphs import GraphFolder, chosen_graph
from benchmark.support.harness import BENCHMARK, MALLOC, Contestant, Players, ProcessSetting
from benchmark.support.jobs import Options
from benchmark.support.machine import describe

RESULTS = BENCHMARK / "results"
Series = dict[str, Any]


@dataclass(frozen=True)
class Peers:
    """The interpreter of each side."""

    pythons: dict[str, str]

    def python(self, side: str) -> str:
        return self.pythons.get(side, sys.executable)

    def contestant(self, name: str, side: str, job: str, batches: int = 0) -> Contestant:
        return Contestant(name, side, job, self.python(side), batches)


def peer(text: str) -> tuple[str, str]:
    """Parses one ``--peer SIDE=PYTHON``."""
    side, _, python = text.partition("=")
    if side not in ("pyg", "dgl", "ours") or not Path(python).is_file():
        raise argparse.ArgumentTypeError(
            f"{text!r} is not SIDE=/path/to/python with SIDE one of ours, pyg, dgl"
        )
    return side, python


#: The arrays of a graph folder.
GRAPH_FILES = "colptr.npy, row.npy, x.npy, y.npy, train_idx.npy"


class _Formatter(argparse.ArgumentDefaultsHelpFormatter, argparse.RawDescriptionHelpFormatter):
    pass


def new_parser(description: str | None) -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(description=description, formatter_class=_Formatter)
    result.add_argument("--results", type=Path, default=RESULTS, help="folder for the JSON files")
    return result


def add_peer_option(result: argparse.ArgumentParser) -> None:
    text = "interpreter that has a side, for instance pyg=/envs/pyg/bin/python; default: this one"
    result.add_argument("--peer", type=peer, action="append", default=[], metavar="SIDE=PYTHON", help=text)


def add_round_options(
    result: argparse.ArgumentParser, batches: int, rounds: int, threads: Sequence[int]
) -> None:
    """Adds the options of rounds in which contestants take turns; the arguments are defaults."""
    add = result.add_argument
    add("--rounds", type=int, default=rounds, help="rounds measured, after one unmeasured")
    add("--batches", type=int, default=batches, help="minibatches per contestant and round")
    add("--batch-size", type=int, default=1024, help="seed nodes or links per minibatch")
    add("--macrobatch", type=int, default=0, help="minibatches sampled together; 0: the loader's own choice")
    add("--threads", type=int, nargs="+", default=list(threads), help="thread counts, one after another")
    add("--seed", type=int, default=0, help="seed that chooses the training nodes")


def parser(description: str, batches: int, rounds: int, threads: Sequence[int]) -> argparse.ArgumentParser:
    """Returns a parser with the common options; the arguments are a benchmark's own defaults."""
    result = new_parser(description)
    add = result.add_argument
    add("--graph", type=Path, help=f"folder with {GRAPH_FILES} (CSC by destination)")
    add("--nodes", type=int, default=1_000_000, help="size of the generated graph if no folder is given")
    add_peer_option(result)
    add_round_options(result, batches, rounds, threads)
    add("--fanouts", type=int, nargs="+", default=[15, 10, 5], help="neighbours per hop, from the seeds")
    add(
        "--models",
        nargs="+",
        choices=MODELS,
        default=list(MODELS),
        help="networks of the benchmarks that train",
    )
    add("--hidden", type=int, default=256, help="width of hidden layers")
    add("--malloc", choices=MALLOC, nargs="+", default=list(MALLOC), help="allocator settings to measure")
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
        settings = [ProcessSetting(threads, m) for m in arguments.malloc for threads in arguments.threads]
        return cls(
            graph,
            options,
            Peers(dict(arguments.peer)),
            settings,
            arguments.models,
            arguments.rounds,
            arguments.results,
        )

    def measure(self, columns: Sequence[tuple[str, str, str]], warmup: int = 1) -> list[dict[str, Any]]:
        """Measures all contestants in one setting after another; columns: (name, side, job)."""
        contestants, found = [self.peers.contestant(*column) for column in columns], []
        for setting in self.settings:
            print(f"{setting.threads} thread(s), malloc {setting.malloc}", flush=True)
            with Players(contestants, setting) as players:
                found.append(players.series(self.options, self.rounds, warmup).as_dict())
        return found

    def head(self, benchmark: str) -> dict[str, Any]:
        """Returns the head of every result file: graph, options, machine and time."""
        options = {
            key: value for key, value in self.options.as_dict().items() if key not in ("graph", "threads")
        }
        return stamped(benchmark, graph=self.graph.describe(), options={**options, "rounds": self.rounds})

    def store(self, benchmark: str, found: dict[str, Any]) -> Path:
        content = {**self.head(benchmark), **found}
        return write_json(self.results / f"{benchmark}-{content['graph']['name']}.json", content)


def stamped(benchmark: str, **content: Any) -> dict[str, Any]:
    when = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
    return {"benchmark": benchmark, **content, "machine": describe(), "when": when}


def read_json(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text()) if path.is_file() else {}
    return found


def write_json(path: Path, content: dict[str, Any]) -> Path:
    """Writes through a temporary name, so that a stopped run leaves the last results whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(_rounded(content), separators=(",", ":")) + "\n")
    partial.replace(path)
    print(f"wrote {path}", flush=True)
    return path


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) < 1e15 else float(f"{value:.9g}")
    if isinstance(value, dict):
        return {name: _rounded(one) for name, one in value.items()}
    return [_rounded(one) for one in value] if isinstance(value, (list, tuple)) else value


def _with_machines(stored: dict[str, Any], kind: str) -> dict[str, Any]:
    """Returns the data sets or the parts of a result, each with its machine."""
    return {
        name: {**one, "machine": one.get("machine", stored.get("machine"))}
        for name, one in stored.get(kind, {}).items()
    }


def write_datasets(path: Path, found: dict[str, Any], **others: Any) -> Path:
    """Writes a benchmark's results by data set, beside those of other data sets in the file."""
    datasets, here = _with_machines(read_json(path), "datasets"), describe()
    for name, one in json.loads(json.dumps(_rounded(found))).items():
        before = datasets.get(name, {})
        is_old = before == {**one, "machine": before.get("machine")}
        datasets[name] = before if is_old else {**one, "machine": here}
    return write_json(path, {"benchmark": path.stem, "datasets": datasets, **others})


def write_part(
    path: Path, part: str, series: Sequence[Series], graph: dict[str, Any] | None, about: dict[str, Any]
) -> Path:
    """Writes a part of a benchmark's result beside the parts that are in the file."""
    parts = _with_machines(read_json(path), "parts")
    parts[part] = {"series": series, **about, "when": stamped("")["when"], "machine": describe()}
    content = {"benchmark": path.stem.partition("-")[0], **({"graph": graph} if graph else {})}
    return write_json(path, {**content, "parts": parts})


def merged(
    stored: Sequence[Series], found: Sequence[Series], key: Callable[[Series], Hashable]
) -> list[Series]:
    measured = set(map(key, found))
    return [*(one for one in stored if key(one) not in measured), *found]


def pieces_folder(results: Path, benchmark: str) -> Path:
    folder = results / "pieces" / benchmark
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def seeds_done(path: Path, task: Any) -> dict[int, dict[str, Any]]:
    """Returns the lines of a file of pieces that are of this very task, by seed."""
    lines = path.read_text().splitlines() if path.is_file() else []
    records = [json.loads(line) for line in lines]
    wanted = json.loads(json.dumps(task))
    return {record["seed"]: record for record in records if record["task"] == wanted}


def missing_seeds(path: Path, task: Any, seeds: int) -> list[int]:
    return sorted(set(range(seeds)) - set(seeds_done(path, task)))


def add_line(path: Path, record: dict[str, Any]) -> None:
    with path.open("a") as lines:
        lines.write(json.dumps(record) + "\n")
