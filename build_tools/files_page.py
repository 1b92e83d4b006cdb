"""Writes docs/files.md: every file of the package with the first sentence that it says of itself.

    python build_tools/files_page.py

A test holds the page to the files.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "files.md"
_ROOMS = (
    *("ops", "types", "disk", "comm", "data", "tables", "partition", "store", "cache", "sample", "fetch"),
    *("device", "embed", "history", "loader", "nn", "port", "planner", "train", "doctor"),
)
_OPENING = """# Where things are

Rooms from the ground floor up, as [the design](design.md#1-rooms) orders them. A file says in its
first sentence what it is about. `python build_tools/files_page.py` writes this page.
"""


def page() -> str:
    """Returns the text of the page.

    Raises:
        ValueError: a room is not in the list.
    """
    package = ROOT / "pyg_batchgnn"
    if unknown := {one.parent.name for one in package.glob("*/__init__.py")} - set(_ROOMS):
        raise ValueError(f"build_tools/files_page.py does not list the rooms {sorted(unknown)}; add them")
    parts = [_OPENING, "\n".join(["| file | |", "|---|---|", *_rows(package.glob("*.py"), package)]) + "\n"]
    for room in _ROOMS:
        folder = package / room
        shown = _rows(folder.rglob("*.py"), package)
        parts.append(f"## {room}\n\n{subject(folder / '__init__.py')}\n\n| file | |\n|---|---|")
        parts[-1] = "\n".join([parts[-1], *shown]) + "\n"
    return "\n".join(parts)


def _rows(files: Iterable[Path], package: Path) -> list[str]:
    """Returns a row for each file, but for the front doors of the package and of rooms."""
    doors = {package / "__init__.py", *(package / room / "__init__.py" for room in _ROOMS)}
    return [f"| `{path.relative_to(package)}` | {subject(path)} |" for path in sorted(set(files) - doors)]


def subject(path: Path) -> str:
    """Returns the first sentence of a file's docstring."""
    text = " ".join((ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").split())
    first = re.split(r"(?<=[.!?])(?<!al\.)\s", text, maxsplit=1)[0]
    return first.replace("|", "\\|").replace("<", "&lt;")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
