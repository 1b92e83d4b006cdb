"""The table and the plot of the README, from the stored results on the products-like graph.

    python -m benchmark.summary     prints the table

The table stands in README.md and docs/benchmarks.md; a test compares it with the stored results.
`python -m benchmark report` draws docs/assets/speedup.png.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from benchmark.support.cli import RESULTS, read_json
from benchmark.support.harness import BENCHMARK
from benchmark.support.plots import save, subplots
from benchmark.support.tables import OURS

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


@dataclass
class Line:
    """One line of the table."""

    name: str  # what is measured
    figure: str = "wall_per_minibatch"  # the name of the stored figure
    ours: float | None = None  # the figure of ours, of the run in which ours was fastest
    theirs: dict[str, float] = field(default_factory=dict)
    times: dict[str, float] = field(default_factory=dict)

    @property
    def is_rate(self) -> bool:
        return self.figure == "edges_per_second"

    def better(self, one: float | None, other: float) -> float:
        if one is None:
            return other
        return max(one, other) if self.is_rate else min(one, other)

    def text(self, value: float) -> str:
        return f"{value / 1e6:.1f} M edges/s" if self.is_rate else f"{1e3 * value:,.0f} ms"


def lines() -> list[Line]:
    """Returns the lines of the table, all on one thread."""
    sampling = _fill(Line("sampling", "edges_per_second"), "sampling", malloc="default")
    loading = _fill(Line("sampling and features"), "loading", malloc="kept")
    steps = [_fill(Line(f"a {MODELS[model]} step"), "training", "kept", model) for model in MODELS]
    return [sampling, loading, *steps]


def table() -> str:
    """Returns the table in Markdown."""
    rows = []
    for line in lines():
        assert line.ours is not None, f"no stored result has {line.name}"
        cells = [line.text(line.ours), *(_cell(line, peer) for peer in (PYG, DGL))]
        rows.append(f"| {line.name} | " + " | ".join(cells) + " |")
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


def _fill(line: Line, experiment: str, malloc: str, model: str | None = None) -> Line:
    for series in read_json(RESULTS / f"{experiment}-products-like.json")["series"]:
        if (series["threads"], series["malloc"], series.get("model")) != (1, malloc, model):
            continue
        found = {who: one["figures"][line.figure] for who, one in series["contestants"].items()}
        if OURS not in found:
            continue
        line.ours = line.better(line.ours, found[OURS])
        for peer, who in PEERS[experiment].items():
            if who in found:
                ratio = found[OURS] / found[who]
                line.theirs[peer] = line.better(line.theirs.get(peer), found[who])
                line.times[peer] = ratio if line.is_rate else 1 / ratio
    return line


def _cell(line: Line, peer: str) -> str:
    return f"{line.text(line.theirs[peer])} ({line.times[peer]:.1f}x)" if peer in line.times else "-"


if __name__ == "__main__":
    print(table())
