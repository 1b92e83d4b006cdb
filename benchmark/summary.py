"""The table and the plot of the README, from the stored results on the products-like graph.

    python -m benchmark.summary     prints the table

The table stands in README.md and docs/benchmarks.md; a test compares it with the stored results.
`python -m benchmark report` draws docs/assets/speedup.png.
"""

from __future__ import annotations

from collections.abc import Callable

from benchmark.support.cli import RESULTS, read_json
from benchmark.support.harness import BENCHMARK
from benchmark.support.plots import save, subplots
from benchmark.support.tables import OURS, SECONDS, Line, figures_of

PLOT = BENCHMARK.parent / "docs" / "assets" / "speedup.png"
HEAD = "| one thread | ours | PyG 2.8 with pyg-lib | DGL 1.1 |\n|---|---:|---:|---:|"
PYG, DGL = "PyG", "DGL"
#: The contestants' names in the stored results, by experiment.
PEERS = {
    "sampling": {PYG: "pyg-lib", DGL: "DGL fused"},
    "loading": {PYG: "PyG NeighborLoader"},
    "training": {PYG: "PyG trim_to_layer", DGL: "DGL"},
}
#: The contestants' names in the plot.
NAMES = {PYG: "PyG 2.8 with pyg-lib", DGL: "DGL 1.1"}
MODELS = {"sage": "GraphSAGE", "gcn": "GCN", "gin": "GIN", "gat": "GAT"}


def lines() -> list[Line]:
    """Returns the lines of the table, all on one thread."""
    sampling = _line("sampling", "sampling", "default", cost=_seconds_per_edge)
    loading = _line("sampling and features", "loading", "kept")
    steps = [_line(f"a {MODELS[model]} step", "training", "kept", model) for model in MODELS]
    return [sampling, loading, *steps]


def _seconds_per_edge(figures: dict[str, float]) -> float:
    return 1 / figures["edges_per_second"]


def _line(
    name: str,
    experiment: str,
    malloc: str,
    model: str | None = None,
    cost: Callable[[dict[str, float]], float] = lambda figures: figures[SECONDS],
) -> Line:
    line, names = Line(name), {OURS: OURS, **{who: peer for peer, who in PEERS[experiment].items()}}
    for series in read_json(RESULTS / f"{experiment}-products-like.json")["series"]:
        if (series["threads"], series["malloc"], series.get("model")) == (1, malloc, model):
            found = {names[who]: one for who, one in figures_of(series).items() if who in names}
            if OURS in found:
                line.add({who: {SECONDS: cost(one)} for who, one in found.items()})
    return line


def table() -> str:
    """Returns the table in Markdown."""
    rows = []
    for line in lines():
        assert line.seconds, f"no stored result has {line.name}"
        rows.append(f"| {line.name} | {' | '.join(_cell(line, side) for side in (OURS, PYG, DGL))} |")
    return "\n".join([HEAD, *rows])


def plot() -> None:
    """Draws how many times as fast ours is."""
    shown = lines()
    figure, ((axes,),) = subplots(figsize=(7.2, 3.4))
    for peer, shift, colour in ((PYG, -0.19, "#3949ab"), (DGL, 0.19, "#e07b39")):
        for place, line in enumerate(shown):
            if peer in line.times:
                axes.barh(place + shift, line.times[peer], height=0.36, color=colour)
                axes.text(
                    line.times[peer] + 0.2, place + shift, f"{line.times[peer]:.1f}x", va="center", size=8
                )
        axes.barh(0, 0, color=colour, label=NAMES[peer])
    axes.axvline(1, color="#37474f", linewidth=1, linestyle="--")
    axes.set_title("How many times as fast as other libraries", loc="left", size=11, weight="bold")
    axes.set_yticks(range(len(shown)), [line.name for line in shown])
    axes.invert_yaxis()
    axes.set_xlabel("times as fast on one thread, a graph with the shape of ogbn-products")
    axes.legend(title="compared with", loc="lower right", frameon=False, fontsize=9, title_fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)
    save(figure, PLOT)


def _cell(line: Line, side: str) -> str:
    if side not in line.seconds:
        return "-"
    cost = line.seconds[side]
    text = f"{1e-6 / cost:.1f} M edges/s" if line.name == "sampling" else f"{1e3 * cost:,.0f} ms"
    return text if side == OURS else f"{text} ({line.times[side]:.1f}x)"


if __name__ == "__main__":
    print(table())
