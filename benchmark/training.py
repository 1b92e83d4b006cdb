"""One training step of each network, everything included: ours, PyG's and DGL's.

Every series (network, threads, allocator, table of contestants) is stored as soon as it is
measured, in the place of the stored one of the same kind.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from benchmark.networks.recipe import MODELS, TITLES
from benchmark.support.cli import BenchmarkRun, merged, parser, read_json
from benchmark.support.harness import Players
from benchmark.support.plots import bars, subplots
from benchmark.support.tables import OURS, Line, Result, absences, figures_of, markdown, setting

#: A contestant: its name, side, job, and minibatches per round (0: all that the options say).
Column = tuple[str, str, str, int]
BFLOAT16, SLICES = "ours, bfloat16", "PyG hand-written slices"
_OURS: Column = (OURS, "ours", "training-native", 0)
_BFLOAT16: Column = (BFLOAT16, "ours", "training-native-bfloat16", 0)
_DGL: Column = ("DGL", "dgl", "training", 2)
_SLICES: Column = (SLICES, "pyg", "training-sliced", 1)
# Ours takes part in every table, each of which has to fit the memory. Slow contestants do the first
# minibatches of a round only; figures are of a minibatch.
TABLES: dict[str, list[Column]] = {
    "peers": [_OURS, _BFLOAT16, _DGL, _SLICES],
    "trimmed": [_OURS, ("PyG trim_to_layer", "pyg", "training-trimmed", 1)],
    # The peers one by one, for networks with which they do not fit together.
    "sliced": [_OURS, _BFLOAT16, _SLICES],
    "dgl": [_OURS, _DGL],
    # Both of ours alone, which takes little time and so allows many rounds.
    "precision": [_OURS, _BFLOAT16],
}
DEFAULT_TABLES = ("peers", "trimmed")
REFUSED = {"gcn": [SLICES]}  # PyG's GCNConv takes no bipartite graph


def series(run: BenchmarkRun, table: str, warmup: int) -> Iterator[dict[str, Any]]:
    """Yields all networks and settings at one table, the processes kept between networks."""
    columns = TABLES[table]
    contestants = [run.peers.contestant(*column) for column in columns]
    for where in run.settings:
        with Players(contestants, where) as players:
            for model in run.models:
                print(f"{model}, {where.threads} thread(s), malloc {where.malloc}", flush=True)
                names = [name for name, *_ in columns if name not in REFUSED.get(model, [])]
                found = players.series(replace(run.options, model=model), run.rounds, warmup, names)
                yield {**found.as_dict(), "model": model, "table": table}


def _case(one: dict[str, Any]) -> tuple[str, int, str, str]:
    return one["model"], one["threads"], one["malloc"], one["table"]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures; stores the JSON file after each series."""
    options = parser(__doc__ or "", batches=4, rounds=9, threads=(1, 2))
    options.add_argument("--tables", nargs="+", choices=list(TABLES), default=list(DEFAULT_TABLES))
    text = "unmeasured rounds; PyG's trim_to_layer needs three until its heap stops growing"
    options.add_argument("--warmup", type=int, default=1, help=text)
    parsed = options.parse_args(arguments)
    run = BenchmarkRun.parse(parsed)
    path = run.results / f"training-{run.graph.describe()['name']}.json"
    for table in parsed.tables:
        for one in series(run, table, parsed.warmup):
            stored = read_json(path).get("series", [])
            run.store("training", {"series": sorted(merged(stored, [one], _case), key=_case)})


OTHERS = ("PyG trim_to_layer", SLICES, "DGL")


def lines(result: Result) -> dict[tuple[str, str], Line]:
    """Returns a line for each network and setting, networks in their order."""
    found: dict[tuple[str, str], Line] = {}

    def place(one: dict[str, Any]) -> tuple[int, str, int]:
        return MODELS.index(one["model"]), one["malloc"], one["threads"]

    for one in sorted(result["series"], key=place):
        key = (one["model"], setting(one))
        found.setdefault(key, Line(f"{TITLES[key[0]]}, {key[1]}")).add(figures_of(one))
    return found


def table(result: Result) -> str:
    """Returns milliseconds per step, and how many times as fast ours is."""
    found, names = lines(result), [OURS, BFLOAT16, *OTHERS]
    taken = [[line.name, *(line.cells(name)[0] for name in names)] for line in found.values()]
    ratios = [
        [
            line.name,
            *(line.cells(name)[1] for name in OTHERS),
            f"{1 / line.times[BFLOAT16]:.2f}x" if BFLOAT16 in line.times else "-",
        ]
        for line in found.values()
    ]
    faster = markdown(["ours is faster than", *OTHERS, "bfloat16 against float32"], ratios)
    return f"{markdown(['ms per step', *names], taken)}\n\n{faster}{absences(still_absent(result, found))}"


def still_absent(result: Result, found: dict[tuple[str, str], Line]) -> list[dict[str, dict[str, str]]]:
    """Returns what no table of a line could measure; a contestant may fit into a smaller one."""
    return [
        {
            "absent": {
                name: why
                for name, why in one["absent"].items()
                if name not in found[one["model"], setting(one)].seconds
            }
        }
        for one in result["series"]
    ]


def plot(result: Result) -> Any:
    """Draws one panel per network and setting, with the ms per step of each contestant."""
    found = lines(result)
    models, settings = (list(dict.fromkeys(key[at] for key in found)) for at in (0, 1))
    size = (5 * max(2, len(settings)), 2.2 * len(models))
    figure, axes = subplots(len(models), len(settings), figsize=size)
    for panel in axes.flat:  # not everything is measured
        panel.set_visible(False)
    for (model, where), line in found.items():
        panel = axes[models.index(model)][settings.index(where)]
        panel.set_visible(True)
        names = sorted(line.seconds, key=lambda name: not name.startswith("ours"))
        bars(panel, names, [1e3 * line.seconds[name] for name in names], "ms per step", line.name)
        panel.locator_params(axis="x", nbins=5)
    return figure
