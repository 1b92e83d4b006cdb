"""The documentation's figures, links and citations agree with the code and the stored results."""

from __future__ import annotations

import re

import pytest

from benchmark.summary import PLOT, table
from tests.docs.blocks import ROOT
from tests.support import reference_sampler as reference


@pytest.mark.parametrize("page", ["README.md", "docs/benchmarks.md"])
def test_the_table_comes_from_stored_results(page: str) -> None:
    assert table() in (ROOT / page).read_text(encoding="utf-8"), (
        f"{page} has another table than `python -m benchmark.summary` prints: put it there"
    )


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
