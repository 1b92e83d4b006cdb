"""The snippets of the README and of two pages run and print what stands below them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def _run_snippet(page: str) -> tuple[list[str], list[str]]:
    """The lines that the page's first snippet prints, and those that the page shows."""
    found = re.search(r"```python\n(.*?)```\n\n```text\n(.*?)```", (ROOT / page).read_text(), re.S)
    assert found, f"{page} has no snippet with its output"
    code, output = found.groups()
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=240)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.splitlines(), output.splitlines()


def test_readme() -> None:
    seen, shown = _run_snippet("README.md")
    assert [re.sub(r"0\.\d+", "", line) for line in seen] == [re.sub(r"0\.\d+", "", line) for line in shown]
    # Another processor may round otherwise; the second decimal can move.
    for one, other in zip(seen, shown, strict=True):
        assert abs(_accuracy(one) - _accuracy(other)) <= 0.02


def test_loader_page() -> None:
    seen, shown = _run_snippet("docs/loader.md")
    assert seen == shown


def test_cache_page() -> None:
    seen, shown = _run_snippet("docs/cache.md")
    assert seen == shown


def _accuracy(line: str) -> float:
    return float(line.rsplit(" ", 1)[1])
