"""The documentation's figures, links and citations agree with the code and the stored results."""

from __future__ import annotations

import importlib
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from benchmark.report import GAINS_PAGES, with_gains
from benchmark.summary import PLOT, table
from benchmark.support.cli import RESULTS
from benchmark.support.tables import FOR_A_MEDIAN, typical
from build_tools import docs_hooks, files_page
from tests.docs.blocks import ROOT
from tests.support import reference_sampler as reference


@pytest.mark.parametrize("page", ["README.md", "docs/benchmarks.md"])
def test_the_table_comes_from_stored_results(page: str) -> None:
    assert table() in (ROOT / page).read_text(encoding="utf-8"), (
        f"{page} has another table than `python -m benchmark.summary` prints: put it there"
    )


@pytest.mark.parametrize("page", GAINS_PAGES, ids=lambda page: page.name)
def test_the_gains_come_from_stored_results(page: Path) -> None:
    assert with_gains(page, RESULTS) == page.read_text(encoding="utf-8"), (
        f"{page} has other gains than the stored results: run `python -m benchmark report`"
    )
    assert "<!-- gains -->" in page.read_text(encoding="utf-8")


#: A page, what it says, and the experiment and the line of its tables that say so.
CLAIMS = [
    ("README.md", "takes 138 ms", "training", "| SAGE, 1 thread, malloc kept | 224 | 138 |"),
    ("README.md", "step takes 1.2 s", "training", "| 224 | 138 | 4,998 | 1,222 |"),
    ("docs/benchmarks.md", "take 0.1 page", "memory", "malloc default: ours | 0.1 |"),
    ("docs/benchmarks.md", "takes 53,869", "memory", "PyG NeighborLoader | 53,869.1 |"),
    (
        "docs/benchmarks.md",
        "2 ranks | 2,415,350 | 84,491 | 28.6",
        "ranks",
        "| 45 | 2,415,350 | 84,491 | 28.6 |",
    ),
    ("docs/benchmarks.md", "4 ranks | 1,817,168 | 126,587 | 14.4", "ranks", "1,817,168 | 126,587 | 14.4 |"),
    ("docs/benchmarks.md", "14.7 s | 1.5 s | 9.5 times", "ranks", "| B = all | 1.54 | 9.5x |"),
    ("docs/benchmarks.md", "1.12 times the CPU seconds", "ranks", "| 4 | 16.3 | 1.12 |"),
    ("docs/benchmarks.md", "takes 7.8 s, and 28.2 s with DistDGL", "ranks", "| DistDGL | 28.15 |"),
    ("docs/benchmarks.md", "takes 7.8 s, and 28.2 s with DistDGL", "ranks", "| B = all | 7.82 |"),
    ("docs/benchmarks.md", "sampling | 48.3 M edges/s | 7.6x | 3.8x |", "modes", "| 7.6x | 28.0 |"),
    ("docs/benchmarks.md", "14.5 ms | 100.1 ms (6.9x)", "modes", "| 100.1 | 336,954 | 6.9x |"),
    ("docs/benchmarks.md", "37.6 ms | 305.5 ms (8.1x)", "modes", "| 305.5 | 644,803 | 8.1x |"),
    ("docs/benchmarks.md", "17,748 ms (18.7x)", "typed_layers", "| 17,748.3 | 18.7x |"),
    ("docs/benchmarks.md", "4,278 ms (4.1x)", "typed_layers", "| 4,277.6 | 4.1x |"),
    ("docs/benchmarks.md", "21,777 ms (11.1x)", "typed_layers", "| 21,777.0 | 11.1x |"),
    ("docs/benchmarks.md", "14,596 ms (7.3x)", "typed_layers", "| 14,595.8 | 7.3x |"),
    ("docs/benchmarks.md", "8,382 ms (44.0x)", "typed_layers", "| 8,382.4 | 44.0x |"),
    ("docs/benchmarks.md", "DistDGL takes 24.7 s", "ranks", "| DistDGL | 24.70 | 2,433,838 |"),
    ("docs/benchmarks.md", "takes 21.3 s with DistDGL", "ranks", "| DistDGL | 21.34 | 6.97 |"),
    ("docs/benchmarks.md", "2.3 to 4.8 times as fast", "convergence", "| 2.3x |"),
    ("docs/benchmarks.md", "2.3 to 4.8 times as fast", "convergence", "| 4.8x |"),
]


@pytest.mark.parametrize(("page", "claim", "experiment", "line"), CLAIMS)
def test_a_claim_stands_in_a_table(page: str, claim: str, experiment: str, line: str) -> None:
    assert claim in " ".join((ROOT / page).read_text(encoding="utf-8").split())
    assert line in (ROOT / "benchmark" / "pages" / f"{experiment}.md").read_text(encoding="utf-8")


SITE = ROOT / "docs"
PAGES = [*ROOT.glob("*.md"), *SITE.rglob("*.md"), *(ROOT / "benchmark").rglob("*.md")]


def few_rounds(text: str) -> list[str]:
    """Returns what a text says of medians of fewer than nine rounds."""
    found = re.finditer(r"[Mm]edians?\s+of\s+(\d+)\b[^.;|]{0,30}", text)
    return [one[0] for one in found if int(one[1]) < FOR_A_MEDIAN]


def test_no_page_prints_medians_of_few_rounds() -> None:
    found = {str(page): few_rounds(page.read_text(encoding="utf-8")) for page in PAGES}
    assert not {page: words for page, words in found.items() if words}
    assert few_rounds("medians of 8\nrounds of 2 minibatches; medians of 9 rounds") == [
        "medians of 8\nrounds of 2 minibatches"
    ]


def test_stored_medians_are_of_nine_rounds_or_more() -> None:
    """The figures of few rounds are their least, whatever the page says."""
    for file in RESULTS.glob("*.json"):
        for series in json.loads(file.read_text()).get("series", []):
            for one in series["contestants"].values():
                if walls := one.get("walls"):
                    assert one["figures"]["wall_per_minibatch"] == typical(walls), file


def test_the_plot_is_small() -> None:
    assert PLOT.stat().st_size < 60_000


def test_constants_of_the_sampling_contract_are_those_of_the_reference() -> None:
    page = (ROOT / "docs" / "concepts" / "sampling-contract.md").read_text(encoding="utf-8")
    assert f"GAMMA = 0x{reference.GAMMA:X}" in page
    assert f"SHUFFLE = 0x{reference.SHUFFLE:X}" in page
    assert f"{reference.FEISTEL_ROUNDS} rounds" in page


def test_the_page_of_files_is_that_of_the_files() -> None:
    """Every file of the package stands there with its first sentence."""
    assert files_page.PAGE.read_text(encoding="utf-8") == files_page.page(), (
        "docs/files.md is out of date: run `python build_tools/files_page.py`"
    )


def test_the_readme_is_short() -> None:
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) < 150
    assert [line for line in lines if len(line) > 100] == []


def test_the_first_page_leads_to_every_page() -> None:
    """The pages of the API and the single decisions are behind the first of theirs."""
    text = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    pages = [path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")]
    behind = ("reference/api/", "decisions/0", "index.md")
    missing = [page for page in pages if not page.startswith(behind) and f"({page})" not in text]
    assert not missing


def without_blocks(text: str) -> str:
    """Returns a page without its code blocks."""
    return re.sub(r"^(`{3,}).*?^\1$", "", text, flags=re.MULTILINE | re.DOTALL)


def anchors_of(text: str) -> set[str]:
    """Returns the anchors of a page's headings, as mkdocs and GitHub make them, and its own."""
    headings = re.findall(r"^#+ (.+)$", without_blocks(text), re.MULTILINE)
    words = (re.sub(r"\{#.*\}|\[([^]]*)\]\([^)]*\)", r"\1", heading) for heading in headings)
    slugs = {re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", one).strip().lower()) for one in words}
    return slugs | set(re.findall(r"(?:\{#|id=\"|name=\")([\w-]+)", text))


def broken_links(page: Path, text: str, others: Mapping[Path, str]) -> list[str]:
    """Returns the links of a page that lead to no file, no heading, or out of the site.

    ``others``: the contents of all pages; those outside have no anchors that are known.
    """
    inline = r"\]\(<?([^)>\s]+)[^)]*\)|^\[[^]^]+\]:\s+(\S+)|(?:src|href)=\"([^\"]+)\""
    prose = re.sub(r"`[^`\n]*`", "", without_blocks(text))
    links = ["".join(found) for found in re.findall(inline, prose, re.MULTILINE)]
    broken = []
    for link in links:
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        to = Path(os.path.normpath(page.parent / name)) if name else page
        leaves_site = SITE in page.parents and SITE not in to.parents
        is_there = to in others or to.exists()
        if leaves_site or not is_there or (anchor and to in others and anchor not in anchors_of(others[to])):
            broken.append(link)
    return broken


def test_links_lead_somewhere() -> None:
    """Links between pages, and to their sections, as `mkdocs build --strict` has them."""
    texts = {page: page.read_text(encoding="utf-8") for page in PAGES}
    texts[SITE / docs_hooks.COMMAND_LINE] = docs_hooks.command_line()
    found = {str(page.relative_to(ROOT)): broken_links(page, text, texts) for page, text in texts.items()}
    assert not {page: links for page, links in found.items() if links}


def test_a_broken_link_is_seen() -> None:
    page, other = SITE / "how-to" / "one.md", SITE / "two.md"
    text = "# One page\n[a](../two.md#its-end) [b](#one-page) [c](https://x.org/y.md) `[d](e.md)`\n"
    others = {page: text, other: "## Its `end`\n"}
    assert broken_links(page, text, others) == []
    wrong = "[a](../three.md) [b](../two.md#end) [c](#its-end) [d](../../README.md)\n[e]: four.md\n"
    assert broken_links(page, wrong, others) == [*re.findall(r"\((.*?)\)", wrong), "four.md"]


def test_docstrings_cite_pages_that_are_there() -> None:
    cited = {}
    for folder in ("pyg_batchgnn", "csrc", "tests", "benchmark", "examples"):
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in {".py", ".h", ".cpp"}:
                for page in re.findall(r"\bdocs/[\w/-]+\.md", path.read_text(encoding="utf-8")):
                    cited[page] = path
    wrong = {page: path for page, path in cited.items() if not (ROOT / page).is_file()}
    assert not wrong


def test_docstrings_cite_sections_that_are_there() -> None:
    sections = set(re.findall(r"^## (\d+)\.", (ROOT / "docs" / "design.md").read_text(), re.MULTILINE))
    wrong = []
    for folder in ("pyg_batchgnn", "csrc", "tests"):
        for path in (ROOT / folder).rglob("*.py"):
            for numbers in re.findall(r"design, sections? ([\d, and]+)", path.read_text(encoding="utf-8")):
                wrong += [(path, one) for one in re.findall(r"\d+", numbers) if one not in sections]
    assert not wrong


#: Rooms whose names stand in the pages; `loader` and `data` are variables there.
ROOMS = "cache|comm|fetch|nn|ops|partition|planner|sample|store|train"
FOLDERS = "benchmark|build_tools|csrc|examples|kernels|pyg_batchgnn|tests"


def spans(pattern: str) -> list[tuple[str, str]]:
    """Returns the pages and the words in code type that match a pattern."""
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    return [
        (str(page.relative_to(ROOT)), found)
        for page in pages
        for found in re.findall(rf"`({pattern})(?=[`(])", page.read_text(encoding="utf-8"))
    ]


def is_importable(path: list[str]) -> bool:
    """Returns whether a dotted path inside the package leads to something."""
    found: Any = importlib.import_module("pyg_batchgnn")
    for part in path:
        try:
            found = getattr(found, part)
        except AttributeError:
            try:
                found = importlib.import_module(f"{found.__name__}.{part}")
            except (AttributeError, ImportError):
                return False
    return True


def test_names_in_the_pages_exist() -> None:
    missing = []
    for page, name in spans(rf"(?:pyg_batchgnn\.|(?:{ROOMS})\.)[\w.]*\w"):
        path = name.removeprefix("pyg_batchgnn.").split(".")
        if not path[0].startswith("_") and not is_importable(path):
            missing.append((page, name))
    assert not missing


def test_files_in_the_pages_exist() -> None:
    missing = [
        (page, name)
        for page, name in spans(rf"(?:{FOLDERS})/[\w./-]*|\w+/[\w/]*\w\.py")
        if not any((ROOT / folder / name).exists() for folder in (".", "csrc", "pyg_batchgnn"))
    ]
    assert not missing
