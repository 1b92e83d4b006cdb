"""Draws the result files and writes their tables into the README of each experiment, and what
`accelerate` gains into README.md and the tutorial, and docs/papers.md.

A README holds pairs of comments, ``<!-- results:NAME -->`` and ``<!-- end -->``. The text between
them is replaced by the tables of every ``results/NAME-*.json`` (or ``results/NAME.json``), one
graph after another. No figure is typed by hand: run this after a measurement.
"""

from __future__ import annotations

import argparse
import json
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt

from benchmark.accelerate import show as accelerate
from benchmark.accuracy import show as accuracy
from benchmark.caching import show as caching
from benchmark.communication import show as communication
from benchmark.convergence import show as convergence
from benchmark.embeddings import show as embeddings
from benchmark.footprint import show as footprint
from benchmark.growth import show as growth
from benchmark.historical import show as historical
from benchmark.inference import show as inference
from benchmark.layers import show as layers
from benchmark.loading import show as loading
from benchmark.memory import show as memory
from benchmark.modes import show as modes
from benchmark.papers import page as papers
from benchmark.partition_traffic import show as partition_traffic
from benchmark.partitioning import show as partitioning
from benchmark.planning import show as planning
from benchmark.pyg_scripts import show as pyg_scripts
from benchmark.rank_accuracy import show as rank_accuracy
from benchmark.ranks import show as ranks
from benchmark.sampling import show as sampling
from benchmark.support.cli import RESULTS
from benchmark.support.rounds import in_words
from benchmark.support.settings import BENCHMARK
from benchmark.support.tables import Result, paragraph
from benchmark.training import show as training
from benchmark.typed_layers import show as typed_layers

#: The pages outside of this folder that show what each step of porting a script gains.
GAINS_PAGES = tuple(BENCHMARK.parent / name for name in ("README.md", "docs/tutorials/port-a-pyg-script.md"))


@dataclass(frozen=True)
class Shown:
    """The Markdown tables of an experiment's result, and its picture if it has one."""

    table: Callable[[Result], str]
    plot: Callable[[Result], Any] | None


#: By the name that an experiment's result files start with.
EXPERIMENTS = {
    "accelerate": Shown(accelerate.table, accelerate.plot),
    "sampling": Shown(sampling.table, sampling.plot),
    "loading": Shown(loading.table, loading.plot),
    "modes": Shown(modes.table, None),
    "training": Shown(training.table, training.plot),
    "typed_layers": Shown(typed_layers.table, None),
    "footprint": Shown(footprint.table, footprint.plot),
    "layers": Shown(layers.table, None),
    "memory": Shown(memory.table, memory.plot),
    "accuracy": Shown(accuracy.table, accuracy.plot),
    "convergence": Shown(convergence.table, convergence.plot),
    "ranks": Shown(ranks.table, ranks.plot),
    "partitioning": Shown(partitioning.table, partitioning.plot),
    "partition_traffic": Shown(partition_traffic.table, partition_traffic.plot),
    "growth": Shown(growth.table, growth.plot),
    "rank_accuracy": Shown(rank_accuracy.table, rank_accuracy.plot),
    "historical": Shown(historical.table, historical.plot),
    "caching": Shown(caching.table, caching.plot),
    "embeddings": Shown(embeddings.table, None),
    "communication": Shown(communication.table, communication.plot),
    "planning": Shown(planning.table, planning.plot),
    "inference": Shown(inference.table, None),
    "pyg_scripts": Shown(pyg_scripts.table, None),
    "papers": Shown(lambda _: "The tables are in [docs/papers.md](../../docs/papers.md).", None),
}


def machine(result: Result) -> str:
    """Returns where and when the figures were measured: one sentence per machine."""
    if "machine" in result:
        return paragraph(_sentence(result, result["machine"]))
    of_machine: dict[str, list[str]] = {}
    for name, one in result["datasets"].items():
        of_machine.setdefault(_sentence(result, one["machine"]), []).append(name)
    if len(of_machine) == 1:
        return paragraph(*of_machine)
    return paragraph(" ".join(f"{', '.join(names)}: {text}" for text, names in of_machine.items()))


def _sentence(result: Result, where: dict[str, Any]) -> str:
    extensions = ", ".join(where["vector_extensions"])
    text = (
        f"{where['cpu']}, {where['cores']} cores, {where['memory_gib']} GiB, {extensions}; "
        f"transparent huge pages: {where['transparent_huge_pages']}; "
        f"Linux {where['kernel']}; {where['compiler']}"
    )
    versions: dict[str, str] = {}
    for series in result.get("series", []):
        for contestant in series["contestants"].values():
            versions.update(contestant["versions"])
    listed = ", ".join(f"{name} {version}" for name, version in sorted(versions.items()))
    text += f"; {listed}" if listed else ""
    text += f"; {result['when']}" if "when" in result else ""
    return f"{text}."


def heading(result: Result) -> str:
    """Returns the graph and the workload of a result file."""
    if "graph" not in result:
        return ""
    if "parts" in result:
        return f"**{result['graph']['name']}**\n\n"
    graph, options = result["graph"], result["options"]
    text = (
        f"**{graph['name']}**: {graph['nodes']:,} nodes, {graph['edges']:,} edges, "
        f"{graph['features']} features; batch {options['batch_size']:,}"
    )
    if "fanouts" not in options:
        return paragraph(f"{text}; {in_words(options['rounds'])}.") + "\n\n"
    fanouts = ", ".join(map(str, options["fanouts"]))
    text += f", fanout {fanouts}; {in_words(options['rounds'])} of {options['batches']} minibatches."
    return paragraph(text) + "\n\n"


def section(name: str, results: Path, folder: Path) -> str:
    """Returns the tables of one benchmark, or how to get them; ``folder``: the page's."""
    files = sorted([*results.glob(f"{name}-*.json"), *results.glob(f"{name}.json")])
    if not files:
        return f"Not measured yet: `python -m benchmark {name}`."
    parts = []
    for file in files:
        result = json.loads(file.read_text())
        picture = file.with_suffix(".png")
        image = f"\n\n![{name}]({os.path.relpath(picture, folder)})" if picture.is_file() else ""
        parts.append(f"{heading(result)}{EXPERIMENTS[name].table(result)}{image}\n\n{machine(result)}")
    return "\n\n".join(parts)


def render(readme: Path, results: Path) -> str:
    """Returns the text of a README with all tables between result comments replaced."""

    def replaced(match: re.Match[str]) -> str:
        return f"<!-- results:{match[1]} -->\n\n{section(match[1], results, readme.parent)}\n\n<!-- end -->"

    return re.sub(r"<!-- results:(\w+) -->.*?<!-- end -->", replaced, readme.read_text(), flags=re.DOTALL)


def with_gains(page: Path, results: Path) -> str:
    """Returns the text of a page with the gains of `accelerate` between its comments replaced."""
    graphs = list(accelerate.GAINS)[: 1 if page.name == "README.md" else None]
    table = f"<!-- gains -->\n\n{accelerate.gains(results, graphs)}\n\n<!-- end -->"
    return re.sub(r"<!-- gains -->.*?<!-- end -->", lambda _: table, page.read_text(), flags=re.DOTALL)


def draw(results: Path) -> None:
    """Draws every result file of a folder as a ``.png`` of the same name."""
    for file in sorted(results.glob("*.json")):
        result = json.loads(file.read_text())
        plot = EXPERIMENTS[result["benchmark"]].plot
        if plot is None:
            continue
        figure = plot(result)
        title = f"{result['benchmark']} {result.get('graph', {}).get('name', '')}".strip()
        figure.suptitle(title, fontsize=11)
        figure.tight_layout()
        figure.savefig(file.with_suffix(".png"), dpi=110, metadata={"Software": None})
        plt.close(figure)


def main(arguments: Sequence[str] | None = None) -> None:
    """Draws every result, then rewrites the tables of the READMEs."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--results", type=Path, default=RESULTS)
    parsed = parser.parse_args(arguments)
    draw(parsed.results)
    pages = {readme: render(readme, parsed.results) for readme in sorted(BENCHMARK.glob("*/README.md"))}
    pages |= {page: with_gains(page, parsed.results) for page in GAINS_PAGES}
    papers.write(parsed.results)
    for page, rendered in pages.items():
        if rendered != page.read_text():
            page.write_text(rendered)
            print(f"wrote {page}")
