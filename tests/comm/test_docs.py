"""The snippets of docs/distributed.md run, alone and in two ranks."""

from __future__ import annotations

import contextlib
import io
import re

import pytest

from tests.support.ranks import ROOT, run_ranks


def run_snippet() -> str:
    code = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "distributed.md").read_text(), re.DOTALL)
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile("\n".join(code), "distributed.md", "exec"), {})
    return printed.getvalue()


@pytest.mark.parametrize("ranks", [1, 2])
def test_snippet(ranks: int) -> None:
    for result in run_ranks("tests.comm.test_docs:run_snippet", ranks):
        said = "True every training node once\n"
        said += f"{[1] * ranks} {[float(ranks)] * 2}\n1 round of features\n"
        assert result.value == said + f"{ranks} parts, 2,000 nodes\n"
