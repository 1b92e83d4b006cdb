"""The prose of code and pages keeps the rules that `tests/support/prose.py` can see."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.prose import violations

ROOT = Path(__file__).resolve().parent.parent
SUFFIXES = {".py", ".md", ".cpp", ".h"}
#: These quote what they forbid.
QUOTING = {ROOT / "tests" / "test_prose.py", ROOT / "tests" / "support" / "prose.py"}


def files() -> list[Path]:
    """Returns the files that hold prose, in order."""
    top = [path for path in ROOT.iterdir() if not path.name.startswith((".", "_"))]
    found = [inner for path in top for inner in ([path] if path.is_file() else path.rglob("*"))]
    return sorted(
        path
        for path in found
        if path.suffix in SUFFIXES
        and path not in QUOTING
        and not {"build", "results", "__pycache__"} & set(path.relative_to(ROOT).parts)
    )


def test_prose_is_plain() -> None:
    found = [violation for path in files() for violation in violations(path)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("name", "source", "faults"),
    [
        ("a.py", '"""A part of the graph."""', []),
        ("a.py", '"""Of rows and ids."""', ["'Of'"]),
        ("a.py", '"""What a rank holds."""', ["'What'"]),
        ("a.py", 'def f():\n    """Return the rows."""', ["'Return'"]),
        ("a.py", 'def f():\n    """Returns the rows."""', []),
        ("a.py", 'class Rows:\n    """Small rows."""', ["'Small'"]),
        ("a.py", "# one row a node", ["row a node"]),
        ("a.py", "# one row\n# a node", ["row a node"]),
        ("a.py", "# one row per node", []),
        ("a.py", "# the nodes whose minibatches a rank trains", ["whose minibatches a rank"]),
        ("a.py", "x = 1  # at most so many bytes", ["so many"]),
        ("a.py", "# so many that nobody counts", []),
        ("a.py", 'help = "foretells what a run costs"', ["foretells"]),
        ("a.py", "# " + "word " * 25, ["126 columns"]),
        ("a.py", f"x = {'1 + ' * 30}1", []),
        ("a.h", "int a;  // one row a node", ["row a node"]),
        ("a.h", "/* one row\n   a node */", ["row a node"]),
        ("a.h", 'auto a = "// one row a node";', []),
        ("a.md", "It is of no meaning here.", ["of no meaning"]),
        ("a.md", "word " * 25, ["125 columns"]),
        ("a.md", "```\n" + "word " * 25 + "\n```", []),
        ("a.md", "| " + "word " * 25, []),
        ("a.md", "`one row a node`", []),
    ],
)
def test_the_rules_see_violations(tmp_path: Path, name: str, source: str, faults: list[str]) -> None:
    path = tmp_path / name
    path.write_text(source + "\n")
    found = violations(path)
    assert len(found) == len(faults)
    for violation, fault in zip(found, faults, strict=True):
        assert fault in violation
