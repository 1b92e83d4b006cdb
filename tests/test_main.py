"""The command, from its first moment on."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pyg_batchgnn.spinning import TURNS, VARIABLES


@pytest.mark.skipif(
    not Path("/proc/self/maps").exists(), reason="sees through /proc when torch is being imported"
)
def test_interrupted_while_importing() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "pyg_batchgnn", "datasets"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # As in a terminal: a background job ignores the signal, and its children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    try:
        end = time.monotonic() + 60
        while "libtorch" not in Path(f"/proc/{process.pid}/maps").read_text() and time.monotonic() < end:
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    assert (process.returncode, errors) == (130, "batchgnn: interrupted\n")


def spins(**environment: str) -> list[str]:
    """Returns the turns that OpenMP's runtime says that it took over, when torch was loaded."""
    kept = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    ran = subprocess.run(
        [sys.executable, "-m", "pyg_batchgnn", "datasets", "generated:nodes=100"],
        env={**kept, "OMP_DISPLAY_ENV": "verbose", **environment},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert ran.returncode == 0, ran.stderr
    return re.findall(r"GOMP_SPINCOUNT = '(\d+)'", ran.stderr)


def test_a_command_bounds_the_spinning_of_threads_before_torch_is_loaded() -> None:
    found = spins()
    if not found:
        pytest.skip("another runtime than GNU's OpenMP")
    assert set(found) == {str(TURNS)}
    assert set(spins(GOMP_SPINCOUNT="77")) == {"77"}, "what the user has chosen stays"
    assert set(spins(OMP_WAIT_POLICY="passive")) == {"0"}


def test_importing_the_package_leaves_the_environment_as_it_is() -> None:
    program = (
        "import os, sys; before = dict(os.environ); import pyg_batchgnn.spinning as spinning\n"
        "assert dict(os.environ) == before\n"
        "import torch; spinning.bound_spinning()\n"
        "assert dict(os.environ) == before and spinning.chosen_by_user() == {}\n"
    )
    kept = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    subprocess.run([sys.executable, "-c", program], env=kept, check=True, timeout=120)


def test_the_room_of_training_has_a_front_door() -> None:
    import pyg_batchgnn.train

    names = pyg_batchgnn.train.__all__
    assert dir(pyg_batchgnn.train) == names == sorted(names)
    assert all(getattr(pyg_batchgnn.train, name).__name__ == name for name in names)
    with pytest.raises(AttributeError, match="has no attribute 'loss'"):
        _ = pyg_batchgnn.train.loss


def test_rooms_are_imported_when_they_are_used() -> None:
    program = (
        "import sys, pyg_batchgnn as package\n"
        "assert not {'torch', 'torch_geometric'} & sys.modules.keys()\n"
        "assert package.nn.SAGE is package.nn.models.SAGE\n"
        "assert package.data.load_dataset and {'nn', 'plan'} <= set(dir(package))\n"
        "try:\n    package.neural\nexcept AttributeError as error:\n    print(error)\n"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert answer.stdout == "module 'pyg_batchgnn' has no attribute 'neural'\n", answer.stderr
