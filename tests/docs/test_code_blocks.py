"""Every code block of the README and of the documentation runs, and prints what the page shows.

`make test` runs those of the pages that a reader tries first, and of pages that have changed since
they were green here.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.blocks import FIRST_PAGES, ROOT, Page, blocks_of, is_shown
from tests.support.tiers import Stamp
from tests.support.two_hosts import missing_for_two_hosts

PAGES = sorted(["README.md", *(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md"))])
PAGES_WITH_CODE = [page for page in PAGES if blocks_of((ROOT / page).read_text(encoding="utf-8"))]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", PAGES_WITH_CODE)
def test_blocks_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    green = Stamp.of(name, [text])
    if name not in FIRST_PAGES and not green.is_due:
        pytest.skip("the page has not changed since it was green")
    # The blocks show the graphs that a reader without real ones has.
    monkeypatch.setenv("PYG_BATCHGNN_DATA", str(tmp_path / "no-real-graphs"))
    blocks = blocks_of(text)
    if any(block.note == "on two hosts" for block in blocks) and (missing := missing_for_two_hosts()):
        pytest.skip(f"{name} needs two hosts, network namespaces here: {missing}")
    page = Page(name, tmp_path)
    for block in blocks:
        page.run(block)
    green.write()


def test_notes_are_known() -> None:
    for name in PAGES:
        for block in blocks_of((ROOT / name).read_text(encoding="utf-8")):
            known = block.note in ("", "on two hosts") or block.note.startswith("file: ") or block.reason
            assert known, f"{name}:{block.line}: the note {block.note!r} is none, or gives no reason"


def test_commands_stand_in_fences() -> None:
    for name in PAGES:
        indented = re.findall(r"^(?: {4}|\t)\$ .*", (ROOT / name).read_text(encoding="utf-8"), re.MULTILINE)
        assert not indented, f"{name}: these commands would not be run: {indented}"


@pytest.mark.parametrize(
    ("printed", "shown", "same"),
    [
        ("one\ntwo\n", "one\ntwo\n", True),
        ("one\ntwo\n", "one\n", False),
        ("one 3\n", "one 4\n", False),
        ("took 0.813 s\n", "took ... s\n", True),
        ("a\nb\nc\nd\n", "a\n...\nd\n", True),
        ("a\nb\n", "...\nd\n", False),
        ("accuracy 0.41\n", "accuracy 0.42\n", True),
        ("accuracy 0.41\n", "accuracy 0.45\n", False),
        ("1012.0 rows\n", "1000.0 rows\n", True),
        ("(a) 1.5.\n", "(a) 1.5.\n", True),
    ],
)
def test_outputs_are_compared(printed: str, shown: str, same: bool) -> None:
    assert is_shown(printed, shown) is same


_SAMPLE = """Text.

```python
print("one")
```

```text
one
```

<!-- not run: needs a cluster -->
```sh
srun hostname
```

<!-- file: two.py -->
```python
print("two")
```

```sh
python two.py
```

```text
2
```
"""


def test_blocks_are_found() -> None:
    first, second, third, fourth = blocks_of(_SAMPLE)
    assert (first.language, first.line, first.output) == ("python", 3, "one\n")
    assert (second.reason, second.output) == ("needs a cluster", None)
    assert third.note == "file: two.py"
    assert fourth.output == "2\n"


def test_a_wrong_output_is_seen(tmp_path: Path) -> None:
    page = Page("sample", tmp_path)
    *before, last = blocks_of(_SAMPLE)
    for block in before:
        page.run(block)
    with pytest.raises(AssertionError, match=r"sample:21 prints\ntwo"):
        page.run(last)
