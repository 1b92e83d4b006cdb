"""Steps of modules that users write themselves: PyG, trimmed by hand, and after `accelerate`.

Most have two layers: a convolution with a skip connection, LayerNorm, `F.relu`, `F.dropout`, and a
convolution. PyG needs pyg-lib: name its environment with --peer. Choose cases with --rows, and
smaller generated graphs with --scale. What is not asked for stays as it is stored, if its options
are the same.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmark.contestants.loaders import LINKS
from benchmark.modes import in_short, store
from benchmark.networks.own import WITH_EDGES
from benchmark.support import mag
from benchmark.support.cli import Peers, add_peer_option, add_round_options, new_parser, stamped
from benchmark.support.graphs import GraphFolder, dataset_folder
from benchmark.support.harness import MALLOC, Players, ProcessSetting
from benchmark.support.jobs import Options
from benchmark.support.machine import CACHE
from benchmark.support.plots import steps_plot
from benchmark.support.tables import (
    SECONDS,
    Result,
    absences,
    figures_of,
    markdown,
    milliseconds,
    setting,
    times,
)

#: The graphs: by name, what `load_dataset` takes. The typed one is generated like ogbn-mag.
PRODUCTS, ARXIV, TYPED = "products-like", "arxiv-like", "mag-like"
GRAPHS: dict[str, dict[str, Any]] = {
    PRODUCTS: {"name": "generated", "nodes": 2_449_029, "degree": 60.5, "features": 100, "classes": 47},
    ARXIV: {"name": "generated", "nodes": 169_343, "degree": 8.0, "features": 128, "classes": 40},
    "amazon_photo": {"name": "amazon_photo"},
    "facebook_pages": {"name": "facebook_pages"},
}
#: The contestants. PyG's layers take seconds, so that those do one minibatch of a round.
WHOLE, TRIMMED, PLAIN, BATCH = "unchanged", "unchanged, trimmed", "accelerate", "model(batch)"
IMPORT = "import alone"
NATIVE, STOCK = "native batches", "native model"
COLUMNS = {
    WHOLE: ("pyg", "basic", 1),
    TRIMMED: ("pyg", "basic-trimmed", 1),
    IMPORT: ("ours", "import", 1),
    PLAIN: ("ours", "accelerate", 1),
    BATCH: ("ours", "batch", 0),
    NATIVE: ("ours", "native", 0),
    STOCK: ("ours", "stock", 0),
}
#: The rounds that are not measured: in two of them results are compared with plain ones.
WARMUP = 2
SCRIPTS = (WHOLE, TRIMMED, PLAIN, BATCH, NATIVE)


@dataclass(frozen=True)
class Row:
    """One module on one graph."""

    name: str  # its name on the command line and in the table
    model: str  # the module, one of ``networks.own``
    graph: str = PRODUCTS  # the name of the graph
    columns: tuple[str, ...] = SCRIPTS  # the contestants that can do it
    fanouts: tuple[int, ...] = (15, 10)  # neighbours per hop, from the seeds; as many layers
    work: str = ""  # links or in-batch: seeds are the ends of links, whose rows are multiplied


EDGE_ROWS = ("GINEConv", "GATv2Conv", "Transformer-edges", "NNConv", "updated-edges")
ROWS = {
    row.name: row
    for row in (
        Row("SAGEConv", "own-sage", columns=(*SCRIPTS, STOCK)),
        Row("GATConv", "own-gat", columns=(*SCRIPTS, STOCK)),
        Row("TransformerConv", "own-transformer"),
        Row("GraphConv", "own-graph"),
        *(
            Row(f"{name}{'' if graph == PRODUCTS else '-arxiv'}", model, graph, (IMPORT, PLAIN, BATCH))
            for graph in (PRODUCTS, ARXIV)
            for name, model in zip(EDGE_ROWS, WITH_EDGES, strict=True)
        ),
        Row("JumpingKnowledge", "own-jumping", columns=SCRIPTS[1:], fanouts=(15, 10, 5)),
        Row("HeteroConv", "own-typed", TYPED, (TRIMMED, BATCH, NATIVE)),  # more do not fit the memory
        *(
            Row(f"{name}-arxiv", model, ARXIV, (IMPORT, PLAIN, BATCH, *more))
            for name, model, *more in (
                *(("SAGEConv", "own-sage", NATIVE, STOCK), ("GATConv", "own-gat", NATIVE, STOCK)),
                ("TransformerConv", "own-transformer", NATIVE),
            )
        ),
        *(Row(f"{one}-arxiv", "own-sage", ARXIV, (IMPORT, PLAIN, BATCH), work=one) for one in LINKS),
        Row("amazon_photo", "own-sage", "amazon_photo", (*SCRIPTS, STOCK)),
        Row("facebook_pages", "own-sage", "facebook_pages", (*SCRIPTS, STOCK)),
    )
}


def series(
    rows: Sequence[Row], options: Options, where: ProcessSetting, peers: Peers, rounds: int
) -> Iterator[dict[str, Any]]:
    """Yields the series of each row; those of one graph share the processes."""
    needed = {name for row in rows for name in row.columns}
    contestants = [peers.contestant(name, *what) for name, what in COLUMNS.items() if name in needed]
    with Players(contestants, where) as players:
        for row in rows:
            print(f"{row.name}, {where.threads} thread(s), malloc {where.malloc}", flush=True)
            work = replace(options, model=row.model, fanouts=row.fanouts)
            work = replace(work, work="edges" if row.model in WITH_EDGES else row.work)
            found = players.series(work, rounds, WARMUP, row.columns).as_dict()
            yield {**found, "row": row.name, "graph": row.graph}


def _folder(name: str, scale: float) -> Path:
    end = "" if scale == 1 else f"-{scale:g}"
    if name == TYPED:
        return mag.generate(CACHE / "graphs" / f"mag-like-{scale:g}", scale).path
    choice = GRAPHS[name]
    if "nodes" in choice:
        return dataset_folder(f"{name}{end}", **{**choice, "nodes": int(choice["nodes"] * scale)}).path
    return dataset_folder(name, **choice).path


def _case(one: dict[str, Any]) -> Hashable:
    return one["row"], one["threads"], one["malloc"]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures the chosen rows; stores the JSON file after each of them."""
    parser = new_parser(__doc__)
    add = parser.add_argument
    add("--rows", nargs="+", choices=list(ROWS), default=list(ROWS), metavar="ROW", help=", ".join(ROWS))
    add("--scale", type=float, default=1.0, help="size of generated graphs, as a share of the originals'")
    add("--malloc", choices=MALLOC, nargs="+", default=["default"], help="allocator settings to measure")
    add("--hidden", type=int, default=256, help="width of hidden layers")
    add_round_options(parser, batches=4, rounds=9, threads=(1,))
    add_peer_option(parser)
    chosen = parser.parse_args(arguments)
    for name in dict.fromkeys(ROWS[one].graph for one in chosen.rows):
        folder = _folder(name, chosen.scale)
        graph = mag.TypedFolder.open(folder) if name == TYPED else GraphFolder.open(folder)
        sizes = {one: getattr(chosen, one) for one in ("batches", "batch_size", "hidden")}
        given = {"graph": str(folder), "typed_graph": str(folder), "seed": chosen.seed}
        options = Options(**given, **sizes, macrobatch=chosen.macrobatch)
        named = {**sizes, "rounds": chosen.rounds, "scale": chosen.scale}
        about = {"graphs": [graph.describe()], "options": named}
        rows = [ROWS[one] for one in chosen.rows if ROWS[one].graph == name]
        for where in (ProcessSetting(threads, one) for one in chosen.malloc for threads in chosen.threads):
            for found in series(rows, options, where, Peers(dict(chosen.peer)), chosen.rounds):
                content = stamped("own_models", **about, series=[found])
                store(chosen.results / "own_models.json", content, _case, ROWS)


#: A script and what it is compared with.
STEPS = (
    *((PLAIN, WHOLE), (BATCH, WHOLE), (BATCH, TRIMMED), (NATIVE, WHOLE), (NATIVE, TRIMMED)),
    (BATCH, IMPORT),
)


def title(series: Result) -> str:
    row = ROWS[series["row"]]
    name = row.name if row.graph in (PRODUCTS, TYPED) else f"SAGEConv, {row.graph}"
    name = f"{row.name.removesuffix('-arxiv')}, {ARXIV}" if row.graph == ARXIV else name
    return f"{name}, {setting(series)}"


def table(result: Result) -> str:
    """Returns milliseconds per step, and how many times as fast scripts are."""
    found = result["series"]
    taken = [[title(one), *(milliseconds(figures_of(one).get(name)) for name in COLUMNS)] for one in found]
    gains = [[title(one), *(times(one, *step) for step in STEPS), _of_stock(one)] for one in found]
    head = [*(f"{script} against {other}" for script, other in STEPS), "native batches take, of the model"]
    parts = [in_short(result), markdown(["ms per step", *COLUMNS], taken), markdown(["", *head], gains)]
    return "\n\n".join(parts) + absences(found)


def _of_stock(series: Result) -> str:
    figures = figures_of(series)
    if NATIVE not in figures or STOCK not in figures:
        return "-"
    return f"{figures[NATIVE][SECONDS] / figures[STOCK][SECONDS]:.2f}"


plot = steps_plot(tuple(COLUMNS), (WHOLE, TRIMMED, IMPORT), title)
