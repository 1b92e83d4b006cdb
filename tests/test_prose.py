"""Prose has at most 100 columns, and none of a few words. ruff sees the columns of Python."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COLUMNS = 100
#: Words, with what is said instead.
BANNED = {
    r"\bfore(?:tell|told|see|saw|seen)s?\b|\bforetelling\b|\bforeseeing\b": "predict or prefetch",
    r"\bof no meaning\b": "ignored unless ...",
    r"\bwatchm[ae]n\b": "watchdog",
    r"\brehears\w+": "simulate",
    r"\b(?:RanksNeighborLoader|RelaySampler)\b": "a former name",
}
#: Tables, headings, pictures and lines of one link may be long.
FREE = re.compile(r"\s*(?:\||#|<img|\[!\[|!\[)|^\s*[-*]? ?\[[^\]]*\]\S*$")


def prose_of(path: Path) -> str:
    """The comment lines of C++, a page without its code; of Python nothing."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        blocks = r"^ *(```+|~~~+)[^\n]*\n.*?^ *\1"
        return re.sub(blocks, lambda block: "\n" * block[0].count("\n"), text, flags=re.MULTILINE | re.DOTALL)
    if path.suffix == ".py":
        return ""
    return "\n".join(line if re.match(r"\s*(?://|/\*|\*)", line) else "" for line in text.splitlines())


def test_prose_is_plain() -> None:
    top = [path for path in ROOT.iterdir() if not path.name.startswith((".", "_"))]
    found = []
    for path in (inner for one in top for inner in ([one] if one.is_file() else one.rglob("*"))):
        parts = path.relative_to(ROOT).parts
        if path.suffix not in {".py", ".md", ".cpp", ".h"} or path == Path(__file__).resolve():
            continue
        if {"build", "results", "__pycache__"} & set(parts):
            continue
        for number, line in enumerate(prose_of(path).splitlines(), 1):
            if len(line) > COLUMNS and "://" not in line and not (path.suffix == ".md" and FREE.match(line)):
                found.append(f"{path}:{number}: {len(line)} columns of prose; at most {COLUMNS}")
        text = " ".join(path.read_text(encoding="utf-8").split())
        for pattern, instead in BANNED.items():
            found += [f"{path}: {word[0]!r}: {instead}" for word in re.finditer(pattern, text, re.IGNORECASE)]
    assert not found, "\n".join(found)
