"""The examples of training loops on native layers and of an own layer run and learn."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.support.programs import quick_programs

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize(
    ("name", "first", "epochs"),
    [("native_layers", r"loss (\d\.\d{4})", 5), ("own_layer", r"training accuracy (\d\.\d{4})", 4)],
)
def test_an_example_learns(name: str, first: str, epochs: int) -> None:
    environment = {**os.environ, **quick_programs()}
    command = ["python", str(EXAMPLES / f"{name}.py")]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=240, env=environment)
    assert ran.returncode == 0, ran.stderr
    form = rf"epoch \d  {first}  test accuracy (\d\.\d{{4}})(  \d+\.\d\d s)?"
    found = [re.fullmatch(form, line) for line in ran.stdout.splitlines()]
    seen, tested = zip(*(map(float, one.groups()[:2]) for one in found), strict=True)
    assert len(found) == epochs
    if name == "native_layers":
        assert seen[-1] < 0.8 < tested[-1]
    else:
        assert seen[-1] > seen[0] and tested[-1] > 0.6
