"""Writes docs/files.md: every file of the package with the first sentence that it says of itself.

    python build_tools/files_page.py

A test holds the page to the files.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "files.md"
_ROOMS = (
    *("types", "ops", "comm", "data", "tables", "partition", "store", "cache", "sample", "fetch", "embed"),
    *("history", "loader", "nn", "port", "planner", "train", "doctor"),
)
_OPENING = """# Where things are

Rooms from the ground floor up, as [the design](design.md#1-rooms) orders them. A file says in its
first sentence what it is about. `python build_tools/files_page.py` writes this page.
"""


def page() -> str:
    """Returns the text of the page."""
    parts = [_OPENING]
    for room in _ROOMS:
        folder = ROOT / "pyg_batchgnn" / room
        rows = [
            f"| `{path.relative_to(folder.parent)}` | {subject(path)} |"
            for path in sorted(folder.rglob("*.py"))
        ]
        shown = [row for row in rows if f"| `{room}/__init__.py`" not in row]
        parts.append(f"## {room}\n\n{subject(folder / '__init__.py')}\n\n| file | |\n|---|---|")
        parts[-1] = "\n".join([parts[-1], *shown]) + "\n"
    return "\n".join(parts)


def subject(path: Path) -> str:
    """Returns the first sentence of a file's docstring."""
    text = " ".join((ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").split())
    first = re.split(r"(?<=[.!?])\s", text, maxsplit=1)[0]
    return first.replace("|", "\\|").replace("<", "&lt;")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
