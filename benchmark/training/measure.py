"""One training step of each network, everything included: ours, PyG's and DGL's.

Every piece (network, threads, allocator, table of contestants) is stored as soon as it is measured,
in ``results/training/GRAPH/``; with ``--resume`` pieces of the same options are kept. Beside them
the rates that bound a step are measured, once for every setting (``limits.py``).
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import Any

from benchmark.networks.recipe import MODELS
from benchmark.support.cli import BenchmarkRun, parser, pieces_folder, read_json, write_json
from benchmark.support.harness import Players, Series
from benchmark.support.settings import ProcessSetting
from benchmark.training.limits import ModelStep, Rates, steps, summary


@dataclass(frozen=True)
class Column:
    """A contestant: its name, side, job, and minibatches a round (0: all that the options say)."""

    name: str
    side: str
    job: str
    batches: int = 0


OURS = Column("ours", "ours", "training-native")
BFLOAT16 = Column("ours, bfloat16", "ours", "training-native-bfloat16")
DGL = Column("DGL", "dgl", "training", batches=2)
SLICES = Column("PyG hand-written slices", "pyg", "training-sliced", batches=1)
# Ours takes part in every table, each of which has to fit the memory. Slow contestants do the first
# minibatches of a round only; figures are of a minibatch.
TABLES = {
    "peers": [OURS, BFLOAT16, DGL, SLICES],
    "trimmed": [OURS, Column("PyG trim_to_layer", "pyg", "training-trimmed", batches=1)],
    "layers": [OURS, Column("ours, PyG's layers", "ours", "training", batches=2)],
    # The peers one by one, for networks with which they do not fit together.
    "sliced": [OURS, BFLOAT16, SLICES],
    "dgl": [OURS, DGL],
    # Both of ours alone, which takes little time a round and so allows many.
    "precision": [OURS, BFLOAT16],
}
DEFAULT_TABLES = ("peers", "trimmed", "layers")
REFUSED = {"gcn": ["PyG hand-written slices"]}  # PyG's GCNConv takes no bipartite graph


def graph_pieces(run: BenchmarkRun) -> Path:
    """Returns the folder of the pieces of the run's graph."""
    return pieces_folder(run.results, f"training/{run.graph.describe()['name']}")


def piece_path(run: BenchmarkRun, table: str, model: str, setting: ProcessSetting) -> Path:
    """The file of one piece."""
    name = f"{model}-{setting.threads}-{setting.malloc.value}-{table}.json"
    return graph_pieces(run) / name


def measured_before(path: Path, head: dict[str, Any]) -> bool:
    """Returns whether the piece is there, with the same options and graph."""
    if not path.is_file():
        return False
    found = json.loads(path.read_text())
    return all(found[key] == json.loads(json.dumps(head[key])) for key in ("options", "graph"))


def measure_table(run: BenchmarkRun, table: str, setting: ProcessSetting, warmup: int) -> None:
    """All networks at one table, the processes kept from one to the next."""
    columns = TABLES[table]
    contestants = [run.peers.contestant(*astuple(column)) for column in columns]
    with Players(contestants, setting) as players:
        for model in run.models:
            one = replace(run, options=replace(run.options, model=model))
            path, head = piece_path(run, table, model, setting), one.head("training")
            if run.resume and measured_before(path, head):
                continue
            started = time.perf_counter()
            print(f"{model}, {setting.threads} thread(s), malloc {setting.malloc.value}", flush=True)
            names = [column.name for column in columns if column.name not in REFUSED.get(model, [])]
            series: Series = players.series(one.options, run.rounds, warmup, names)
            seconds = round(time.perf_counter() - started, 1)
            about = {"model": model, "table": table, "warmup": warmup, "seconds": seconds}
            write_json(path, {**head, **about, **series.as_dict()})


def measure_limits(
    run: BenchmarkRun, wanted: dict[str, ModelStep], before: Rates | None, threads: int
) -> Rates:
    """Measures the rates, keeps the better ones of before, and stores them by network."""
    now = Rates.measure(wanted, threads)
    best = now.better(before) if before else now
    found = {model: summary(step, best) for model, step in wanted.items()}
    content = {**run.head("limits"), "threads": threads, "models": found, "rates": best.as_dict()}
    write_json(graph_pieces(run) / f"limits-{threads}.json", content)
    return best


def without_rounds(series: dict[str, Any]) -> dict[str, Any]:
    """A piece for the collected file: figures and versions of its contestants."""
    kept = ("model", "table", "threads", "malloc", "environment", "absent", "seconds", "when")
    contestants = {
        name: {key: one[key] for key in ("versions", "ready", "figures")}
        for name, one in series["contestants"].items()
    }
    return {**{key: series[key] for key in kept}, "contestants": contestants}


def piece_key(series: dict[str, Any]) -> tuple[str, int, str, str]:
    """Returns what tells a piece from the others: network, threads, allocator and table."""
    return series["model"], series["threads"], series["malloc"], series["table"]


def collect(run: BenchmarkRun) -> None:
    """Puts all pieces into the one file of which tables and pictures are made.

    Results in the file that have no piece stay as they are.
    """
    stored = read_json(run.results / f"training-{run.graph.describe()['name']}.json")
    known = {piece_key(one): one for one in stored.get("series", [])}
    for path in sorted(graph_pieces(run).glob("*-*-*-*.json")):
        piece = without_rounds(json.loads(path.read_text()))
        known[piece_key(piece)] = piece
    series = [known[key] for model in MODELS for key in sorted(known) if key[0] == model]
    limits = stored.get("limits", {})
    for path in sorted(graph_pieces(run).glob("limits-*.json")):
        found = json.loads(path.read_text())
        limits[str(found["threads"])] = found["models"]
    run.store("training", {"series": series, "limits": limits})


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures, then stores the JSON files."""
    options = parser(__doc__ or "", batches=4, rounds=9, threads=(1, 2))
    options.add_argument("--tables", nargs="+", choices=list(TABLES), default=list(DEFAULT_TABLES))
    options.add_argument(
        "--warmup",
        type=int,
        default=1,
        help="rounds before those measured; PyG's trim_to_layer needs three until its heap stops growing",
    )
    options.add_argument("--no-limits", action="store_true", help="keep the rates that bound a step")
    parsed = options.parse_args(arguments)
    run = BenchmarkRun.parse(parsed)
    wanted = {} if parsed.no_limits else steps(run.options, run.models, run.graph.num_nodes)
    rates: dict[int, Rates] = {}
    for setting in run.settings:
        if wanted:
            rates[setting.threads] = measure_limits(run, wanted, rates.get(setting.threads), setting.threads)
        for table in parsed.tables:
            measure_table(run, table, setting, parsed.warmup)
    collect(run)


if __name__ == "__main__":
    main()
