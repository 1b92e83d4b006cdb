"""The house stays one that an engineer can carry, and its prose fits on a screen."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.house_bounds import BOUNDS
from tests.support import house

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


@pytest.mark.parametrize("measure", [house.sizes, house.crossed, house.loaded], ids=lambda one: one.__name__)
def test_the_house_is_within_its_bounds(measure: Callable[[], dict[str, int]]) -> None:
    over = {name: value for name, value in measure().items() if value > BOUNDS[name]}
    assert not over, f"{over} where tests/house_bounds.py allows {[BOUNDS[name] for name in over]}"


def prose_of(path: Path) -> str:
    """The comment lines of C++, a page without its code. ruff sees the columns of Python."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        return re.sub(r"^ *(```+|~~~+)[^\n]*\n.*?^ *\1", "", text, flags=re.MULTILINE | re.DOTALL)
    comments = re.findall(r"^\s*(?://|/\*|\*).*", text, re.MULTILINE)
    return "" if path.suffix == ".py" else "\n".join(comments)


def test_prose_is_plain() -> None:
    top = [path for path in house.ROOT.iterdir() if not path.name.startswith((".", "_"))]
    found = []
    for path in (inner for one in top for inner in ([one] if one.is_file() else one.rglob("*"))):
        left_out = {"build", "results", "__pycache__"} & set(path.relative_to(house.ROOT).parts)
        if path.suffix not in {".py", ".md", ".cpp", ".h"} or path == Path(__file__).resolve() or left_out:
            continue
        for line in prose_of(path).splitlines():
            if len(line) > COLUMNS and "://" not in line and not (path.suffix == ".md" and FREE.match(line)):
                found.append(f"{path}: {len(line)} columns of prose; at most {COLUMNS}: {line}")
        text = " ".join(path.read_text(encoding="utf-8").split())
        for pattern, instead in BANNED.items():
            found += [f"{path}: {word[0]!r}: {instead}" for word in re.finditer(pattern, text, re.IGNORECASE)]
    assert not found, "\n".join(found)
