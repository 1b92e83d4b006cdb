"""Writes docs/papers.md: the tables between its comments, and a picture for each publication."""

from __future__ import annotations

import re
from pathlib import Path

import matplotlib.pyplot as plt

from benchmark.papers import batchgnn, distdgl, distgnn_mb, fastsample, katana
from benchmark.papers.section import Source, draw
from benchmark.papers.stored import Stored
from benchmark.support.settings import BENCHMARK

PAGE = BENCHMARK.parent / "docs" / "papers.md"
SOURCES = {one.SOURCE.name: one.SOURCE for one in (batchgnn, fastsample, distgnn_mb, distdgl, katana)}


def write(results: Path, page: Path = PAGE) -> None:
    """Writes tables and pictures from the results in a folder."""
    stored = Stored(results)
    for source in SOURCES.values():
        figure = draw(source.panels(stored))
        figure.savefig(_picture(page, source), dpi=110, metadata={"Software": None})
        plt.close(figure)

    def replaced(match: re.Match[str]) -> str:
        return f"<!-- papers:{match[1]} -->\n\n{_section(SOURCES[match[1]], stored)}\n\n<!-- end -->"

    page.write_text(
        re.sub(r"<!-- papers:(\w+) -->.*?<!-- end -->", replaced, page.read_text(), flags=re.DOTALL)
    )


def _picture(page: Path, source: Source) -> Path:
    return page.parent / "assets" / f"papers-{source.name}.png"


def _section(source: Source, stored: Stored) -> str:
    picture = f"![Published figures of {source.title} and ours](assets/papers-{source.name}.png)"
    return "\n\n".join([picture, *(one.markdown() for one in source.tables(stored))])
