"""Renders the result files as the tables of README.md. Figures are never typed: run this after a measurement.

README.md holds pairs of comments, ``<!-- results:NAME -->`` and ``<!-- end -->``; what stands between them
is replaced by the tables of every ``results/NAME-*.json`` (or ``results/NAME.json``), graph after graph.
"""

from __future__ import annotations

import argparse
import json
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import tables
from caching_tables import caching
from cli import RESULTS
from communication import show as communication
from distributed_tables import distributed, rank_accuracy
from growth_show import growth
from planning_tables import planning
from settings import HERE
from tables import Result
from training_tables import footprint, layers, training

RENDERERS: dict[str, Callable[[Result], str]] = {
    "sampling": tables.sampling,
    "loading": tables.speeds,
    "training": training,
    "footprint": footprint,
    "layers": layers,
    "memory": tables.memory,
    "accuracy": tables.accuracy,
    "convergence": tables.convergence,
    "distributed": distributed,
    "growth": growth,
    "rank_accuracy": rank_accuracy,
    "caching": caching,
    "communication": communication.table,
    "planning": planning,
}


def machine(result: Result) -> str:
    """One sentence on where and when the figures were measured."""
    where = result["machine"]
    extensions = ", ".join(where["vector_extensions"])
    sentence = (
        f"{where['cpu']}, {where['cores']} cores, {where['memory_gib']} GiB, {extensions}; "
        f"transparent huge pages: {where['transparent_huge_pages']}; "
        f"Linux {where['kernel']}; {where['compiler']}"
    )
    versions: dict[str, str] = {}
    for series in result.get("series", []):
        for contestant in series["contestants"].values():
            versions.update(contestant["versions"])
    listed = ", ".join(f"{name} {version}" for name, version in sorted(versions.items()))
    return (
        sentence
        + (f"; {listed}" if listed else "")
        + (f"; {result['when']}" if "when" in result else "")
        + "."
    )


def heading(result: Result) -> str:
    """The graph and the workload of a result file."""
    if "graph" not in result:
        return ""
    if "parts" in result:
        return f"**{result['graph']['name']}**\n\n"
    graph, options = result["graph"], result["options"]
    fanouts = ", ".join(map(str, options["fanouts"]))
    return (
        f"**{graph['name']}**: {graph['nodes']:,} nodes, {graph['edges']:,} edges, "
        f"{graph['features']} features; batch {options['batch_size']:,}, fanout {fanouts}; "
        f"medians of {options['rounds']} rounds of {options['batches']} minibatches.\n\n"
    )


def section(name: str, results: Path, folder: Path) -> str:
    """All tables of one benchmark, or how to get them; pictures are linked as seen from ``folder``."""
    files = sorted([*results.glob(f"{name}-*.json"), *results.glob(f"{name}.json")])
    if not files:
        return f"Not measured yet: `python benchmark/run.py {name}`."
    parts = []
    for file in files:
        result = json.loads(file.read_text())
        picture = file.with_suffix(".png")
        image = f"\n\n![{name}]({os.path.relpath(picture, folder)})" if picture.is_file() else ""
        parts.append(f"{heading(result)}{RENDERERS[name](result)}{image}\n\n{machine(result)}")
    return "\n\n".join(parts)


def render(readme: Path, results: Path) -> str:
    """The text of ``readme`` with everything between result comments replaced."""

    def replaced(match: re.Match[str]) -> str:
        return f"<!-- results:{match[1]} -->\n\n{section(match[1], results, readme.parent)}\n\n<!-- end -->"

    return re.sub(r"<!-- results:(\w+) -->.*?<!-- end -->", replaced, readme.read_text(), flags=re.DOTALL)


def main(arguments: Sequence[str] | None = None) -> None:
    """Rewrite the result sections of a file; plots first where matplotlib is present."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--readme", type=Path, default=HERE / "README.md")
    parsed = parser.parse_args(arguments)
    from plots import plot_all

    plot_all(parsed.results)
    parsed.readme.write_text(render(parsed.readme, parsed.results))
    print(f"wrote {parsed.readme}")


if __name__ == "__main__":
    main()
