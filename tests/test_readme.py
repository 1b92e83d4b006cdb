"""The README's snippet runs and prints what the README says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

README = (Path(__file__).parents[1] / "README.md").read_text()


def test_snippet_prints_what_the_readme_shows() -> None:
    code, output = re.search(r"```python\n(.*?)```\n\n```text\n(.*?)```", README, re.S).groups()  # type: ignore[union-attr]
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=240)
    assert ran.returncode == 0, ran.stderr
    seen, shown = ran.stdout.splitlines(), output.splitlines()
    assert [re.sub(r"0\.\d+", "", line) for line in seen] == [re.sub(r"0\.\d+", "", line) for line in shown]
    # Another processor may round otherwise; the second decimal can move.
    for one, other in zip(seen, shown, strict=True):
        assert abs(_accuracy(one) - _accuracy(other)) <= 0.02


def _accuracy(line: str) -> float:
    return float(line.rsplit(" ", 1)[1])
