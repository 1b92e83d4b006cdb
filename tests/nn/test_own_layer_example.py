"""The example of a layer of one's own runs and learns."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from tests.support.programs import quick_programs

SCRIPT = Path(__file__).parents[2] / "examples" / "own_layer.py"


def test_own_layer() -> None:
    environment = {**os.environ, **quick_programs()}
    ran = subprocess.run(
        ["python", str(SCRIPT)], capture_output=True, text=True, timeout=240, env=environment
    )
    assert ran.returncode == 0, ran.stderr
    lines = ran.stdout.splitlines()
    form = r"epoch \d  training accuracy (\d\.\d{4})  test accuracy (\d\.\d{4})"
    trained, tested = zip(*(map(float, re.fullmatch(form, line).groups()) for line in lines), strict=True)
    assert len(lines) == 4 and trained[-1] > trained[0] and tested[-1] > 0.6
