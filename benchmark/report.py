"""Draws the result files and writes their tables into the pages of the experiments, what
`accelerate` gains into README.md and the tutorial, docs/papers.md, and docs/assets/speedup.png.

A page holds pairs of comments, ``<!-- results:NAME -->`` and ``<!-- end -->``. The text between
them is replaced by the tables of every ``results/NAME-*.json`` (or ``results/NAME.json``), one
graph after another. No figure is typed by hand: run this after a measurement.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmark import accelerate, summary
from benchmark.papers import page as papers
from benchmark.papers.batchgnn import BATCHGNN
from benchmark.papers.others import DISTDGL, DISTGNN_MB, FASTSAMPLE, KATANA
from benchmark.support.cli import RESULTS, new_parser, read_json
from benchmark.support.harness import BENCHMARK
from benchmark.support.plots import save
from benchmark.support.tables import Result, filled, in_words, paragraph

PAGES = BENCHMARK / "pages"
#: The pages outside of this folder that show what each step of porting a script gains.
GAINS_PAGES = tuple(BENCHMARK.parent / name for name in ("README.md", "docs/tutorials/port-a-pyg-script.md"))
PAPERS_PAGE = BENCHMARK.parent / "docs" / "papers.md"
SOURCES = {one.name: one for one in (BATCHGNN, FASTSAMPLE, DISTGNN_MB, DISTDGL, KATANA)}


def machine(result: Result) -> str:
    """Returns where and when the figures were measured: one sentence per machine."""
    if "machine" in result:
        return paragraph(_sentence(result, result["machine"]))
    of_machine: dict[str, list[str]] = {}
    for name, one in (result.get("datasets") or result["parts"]).items():
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
        for contestant in series.get("contestants", {}).values():
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
    fanouts = ", ".join(map(str, options["fanouts"]))
    text = (
        f"**{graph['name']}**: {graph['nodes']:,} nodes, {graph['edges']:,} edges, "
        f"{graph['features']} features; batch {options['batch_size']:,}, fanout {fanouts}; "
        f"{in_words(options['rounds'])} of {options['batches']} minibatches."
    )
    return paragraph(text) + "\n\n"


def section(name: str, results: Path, folder: Path) -> str:
    """Returns the tables of one benchmark, or how to get them; ``folder``: the page's."""
    files = sorted([*results.glob(f"{name}-*.json"), *results.glob(f"{name}.json")])
    if not files:
        return f"Not measured yet: `python -m benchmark {name}`."
    parts = []
    for file in files:
        result, picture = read_json(file), file.with_suffix(".png")
        image = f"\n\n![{name}]({os.path.relpath(picture, folder)})" if picture.is_file() else ""
        table = import_module(f"benchmark.{name}").table(result)
        parts.append(f"{heading(result)}{table}{image}\n\n{machine(result)}")
    return "\n\n".join(parts)


def render(page: Path, results: Path) -> str:
    """Returns the text of a page with all tables between result comments replaced."""
    return filled(page.read_text(), "results", lambda name: section(name, results, page.parent))


def with_gains(page: Path, results: Path) -> str:
    graphs = list(accelerate.GAINS)[: 1 if page.name == "README.md" else None]
    return filled(page.read_text(), "gains", lambda _: accelerate.gains(results, graphs))


def draw(results: Path) -> None:
    """Draws every result file of a folder as a ``.png`` of the same name."""
    for file in sorted(results.glob("*.json")):
        result = read_json(file)
        name = result["benchmark"].partition("-")[0]
        plot = None if name == "papers" else getattr(import_module(f"benchmark.{name}"), "plot", None)
        if plot is not None and (figure := plot(result)) is not None:
            title = f"{name} {result.get('graph', {}).get('name', '')}".strip()
            top = 1 - 0.1 / figure.get_figheight()  # 0.1 inch below the edge
            figure.suptitle(title, fontsize=11, y=top, va="top")
            save(figure, file.with_suffix(".png"))


def main(arguments: Sequence[str] | None = None) -> None:
    """Draws every result, then rewrites the tables of all pages."""
    results = new_parser(__doc__).parse_args(arguments).results
    draw(results)
    pages = {page: render(page, results) for page in sorted(PAGES.glob("*.md"))}
    pages |= {page: with_gains(page, results) for page in GAINS_PAGES}
    pages[PAPERS_PAGE] = papers.render(PAPERS_PAGE, results, SOURCES)
    for page, rendered in pages.items():
        if rendered != page.read_text():
            page.write_text(rendered)
            print(f"wrote {page}")
    if results == RESULTS:
        summary.plot()
