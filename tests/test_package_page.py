"""The README on a package index has no link that leads nowhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from build_tools.package_page import package_page

README = (Path(__file__).resolve().parent.parent / "README.md").read_text(encoding="utf-8")
TARGET = re.compile(r"\]\(([^)]+)\)")


@pytest.mark.parametrize("url", [None, "https://example.org/repository/blob/main/"])
def test_links_are_absolute_or_gone(url: str | None) -> None:
    page = package_page(README, url)
    targets = TARGET.findall(page)
    assert targets and all(target.startswith("https://") for target in targets)
    assert "<!--" not in page
    kept = [
        target for target in targets if target.startswith("https://example.org/repository/blob/main/docs/")
    ]
    assert bool(kept) == (url is not None)


def test_text_stays_where_a_link_goes() -> None:
    text = "See [the design](docs/design.md), [BatchGNN](https://arxiv.org/x) and ![a plot](plot.png)."
    assert package_page(text, None) == "See the design, [BatchGNN](https://arxiv.org/x) and ."
    assert package_page(text, "https://a.org/b") == (
        "See [the design](https://a.org/b/docs/design.md), [BatchGNN](https://arxiv.org/x) and "
        "![a plot](https://a.org/b/plot.png)."
    )
