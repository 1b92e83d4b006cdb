"""The example in docs/sampling.md runs and prints what the page says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support import reference_sampler as reference

PAGE = Path(__file__).parents[2] / "docs" / "sampling.md"


def test_example(capsys: pytest.CaptureFixture[str]) -> None:
    page = PAGE.read_text(encoding="utf-8")
    ((code, output),) = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", page, flags=re.DOTALL)
    exec(compile(code, str(PAGE), "exec"), {})
    assert capsys.readouterr().out == output


def test_constants_are_those_of_the_reference() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert f"GAMMA = 0x{reference.GAMMA:X}" in page
    assert f"SHUFFLE = 0x{reference.SHUFFLE:X}" in page
    assert f"{reference.FEISTEL_ROUNDS} rounds" in page
