"""The documentation's figures, links and citations agree with the code and the stored results."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

import pytest

from benchmark.report import GAINS_PAGES, with_gains
from benchmark.summary import PLOT, RESULTS, table
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
    ("README.md", "takes 250 ms", "training", "| SAGE, 1 thread, malloc kept | 371 | 250 |"),
    ("README.md", "step takes 1.6 s", "training", "| 371 | 250 | 737 | 5,748 | 1,601 |"),
    ("README.md", "graph takes 1.6 s", "ranks", "| B = all | 1.59 | 9.4x |"),
    ("README.md", "14.9 s one by one", "ranks", "| B = 1 | 14.90 | 1.0x |"),
    ("docs/benchmarks.md", "take 0.6 page", "memory", "malloc default: ours | 0.6 |"),
    ("docs/benchmarks.md", "takes 53,887", "memory", "PyG NeighborLoader | 53,886.9 |"),
    (
        "docs/benchmarks.md",
        "2 ranks | 2,415,350 | 84,491 | 28.6",
        "ranks",
        "| 45 | 2,415,350 | 84,491 | 28.6 |",
    ),
    ("docs/benchmarks.md", "4 ranks | 1,817,168 | 126,587 | 14.4", "ranks", "1,817,168 | 126,587 | 14.4 |"),
    ("docs/benchmarks.md", "14.9 s | 1.6 s | 9.4 times", "ranks", "| B = all | 1.59 | 9.4x |"),
    ("docs/benchmarks.md", "1.11 times the CPU seconds", "ranks", "| 4 | 16.3 | 1.11 |"),
    ("docs/benchmarks.md", "takes 8.0 s, and 28.6 s with DistDGL", "ranks", "| DistDGL | 28.56 |"),
    ("docs/benchmarks.md", "takes 8.0 s, and 28.6 s with DistDGL", "ranks", "| B = all | 7.97 |"),
    ("docs/benchmarks.md", "sampling | 46.4 M edges/s | 7.6x | 3.7x |", "modes", "| 7.6x (5) | 28.7 |"),
    ("docs/benchmarks.md", "15.0 ms | 101.8 ms (6.8x)", "modes", "| 101.8 | 337,204 | 6.8x (4) |"),
    ("docs/benchmarks.md", "38.1 ms | 312.0 ms (8.2x)", "modes", "| 312.0 | 645,068 | 8.2x (6) |"),
    ("docs/benchmarks.md", "18,786 ms (18.9x)", "typed_layers", "| 18,785.8 | 18.9x (12x) |"),
    ("docs/benchmarks.md", "4,935 ms (4.6x)", "typed_layers", "| 4,934.6 | 4.6x (4x) |"),
    ("docs/benchmarks.md", "22,770 ms (10.7x)", "typed_layers", "| 22,769.8 | 10.7x (8x) |"),
    ("docs/benchmarks.md", "16,766 ms (8.1x)", "typed_layers", "| 16,766.1 | 8.1x (4x) |"),
    ("docs/benchmarks.md", "9,051 ms (46.4x)", "typed_layers", "| 9,051.1 | 46.4x (10x) |"),
    ("docs/benchmarks.md", "DistDGL takes 25.1 s", "ranks", "| DistDGL | 25.12 | 2,433,838 |"),
    ("docs/benchmarks.md", "takes 21.4 s with DistDGL", "ranks", "| DistDGL | 21.45 | 7.00 |"),
    ("docs/benchmarks.md", "2.3 to 4.8 times as fast", "convergence", "| 2.3x |"),
    ("docs/benchmarks.md", "2.3 to 4.8 times as fast", "convergence", "| 4.8x |"),
]


@pytest.mark.parametrize(("page", "claim", "experiment", "line"), CLAIMS)
def test_a_claim_stands_in_a_table(page: str, claim: str, experiment: str, line: str) -> None:
    assert claim in " ".join((ROOT / page).read_text(encoding="utf-8").split())
    assert line in (ROOT / "benchmark" / experiment / "README.md").read_text(encoding="utf-8")


def test_the_plot_is_small() -> None:
    assert PLOT.stat().st_size < 60_000


def test_constants_of_the_sampling_contract_are_those_of_the_reference() -> None:
    page = (ROOT / "docs" / "concepts" / "sampling-contract.md").read_text(encoding="utf-8")
    assert f"GAMMA = 0x{reference.GAMMA:X}" in page
    assert f"SHUFFLE = 0x{reference.SHUFFLE:X}" in page
    assert f"{reference.FEISTEL_ROUNDS} rounds" in page


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


@pytest.mark.parametrize("page", ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "benchmark/README.md"])
def test_links_outside_the_site_lead_somewhere(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    links = [link for link in re.findall(r"\]\(([^)#\s]+)", text) if "://" not in link]
    missing = [link for link in links if not (ROOT / page).parent.joinpath(link).exists()]
    assert not missing, f"{page} links to {missing}"


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
        for page, name in spans(rf"(?:{FOLDERS})/[\w./-]*")
        if not (ROOT / name).exists() and not (ROOT / "csrc" / name).exists()
    ]
    assert not missing
