"""The example of a training loop on native layers runs and learns."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from tests.support.programs import quick_programs

# Example ##########################################################################################


SCRIPT = Path(__file__).parents[2] / "examples" / "native_layers.py"


def test_native_layers() -> None:
    environment = {**os.environ, **quick_programs()}
    ran = subprocess.run(
        ["python", str(SCRIPT)], capture_output=True, text=True, timeout=240, env=environment
    )
    assert ran.returncode == 0, ran.stderr
    lines = ran.stdout.splitlines()
    form = r"epoch \d  loss (\d\.\d{4})  test accuracy (\d\.\d{4})  \d+\.\d\d s"
    losses, accuracies = zip(*(re.fullmatch(form, line).groups() for line in lines), strict=True)
    assert len(lines) == 5 and float(losses[-1]) < 0.8 < float(accuracies[-1])


# Own layer example ################################################################################


OWN_LAYER = Path(__file__).parents[2] / "examples" / "own_layer.py"


def test_own_layer() -> None:
    environment = {**os.environ, **quick_programs()}
    ran = subprocess.run(
        ["python", str(OWN_LAYER)], capture_output=True, text=True, timeout=240, env=environment
    )
    assert ran.returncode == 0, ran.stderr
    lines = ran.stdout.splitlines()
    form = r"epoch \d  training accuracy (\d\.\d{4})  test accuracy (\d\.\d{4})"
    trained, tested = zip(*(map(float, re.fullmatch(form, line).groups()) for line in lines), strict=True)
    assert len(lines) == 4 and trained[-1] > trained[0] and tested[-1] > 0.6
