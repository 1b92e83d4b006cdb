"""The examples of docs/data.md run."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs" / "data.md"
NOT_RUN = "# not run here"


def test_examples_run(
    nowhere: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(nowhere)
    blocks = re.findall(r"```python\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    namespace: dict[str, object] = {}
    for block in blocks:
        if not block.startswith(NOT_RUN):
            exec(compile(block, str(DOCS), "exec"), namespace)
    printed = capsys.readouterr().out.splitlines()
    promised = re.findall(r"print\(.*?\) +# (.*)", "\n".join(blocks))
    assert len(printed) == len(promised) == 5
    for line, promise in zip(printed, promised, strict=True):
        assert re.fullmatch(re.escape(promise).replace(re.escape("..."), ".*"), line)
