"""Programs that start at once: forks of a process that has imported the package."""

from __future__ import annotations

import atexit
import functools
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
_REAL = Path(sys.executable).parent
_CLIENT = Path(__file__).with_name("program_client.py")


def real_programs() -> dict[str, str]:
    """Returns variables that make `python`, `batchgnn` and `torchrun` those of this interpreter."""
    path = os.pathsep.join([str(_REAL), os.environ["PATH"]])
    return {"PATH": path, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}


def quick_programs() -> dict[str, str]:
    """Returns variables that make these, and what torchrun starts, forks of one process."""
    folder, real = _folder_of_programs(), real_programs()
    path = os.pathsep.join([str(folder), real["PATH"]])
    return {**real, "PATH": path, "PYTHON_EXEC": str(folder / "python")}


def run_text(program: str, *arguments: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **quick_programs(), **variables}
    command = ["python", "-c", program, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=250)


def run_python(
    *arguments: str | Path, timeout: float = 120, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Runs this interpreter in the project's folder, with variables added to its environment."""
    command, environment = [sys.executable, *arguments], {**os.environ, **variables}
    return subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=timeout)


#: The limits to the instructions, and the widths in bits that kernels may have with each.
WIDTHS = {"": {0, 256, 512}, "avx2": {0, 256}, "baseline": {0}}


def run_at_level(level: str, program: str, *arguments: str | Path) -> list[str]:
    """Returns what words a program prints, on two threads, with kernels of a level of WIDTHS."""
    ran = run_text(program, *arguments, OMP_NUM_THREADS="2", PYG_BATCHGNN_SIMD=level)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.split()


@functools.cache
def _folder_of_programs() -> Path:
    """Starts the server, and writes the programs that have it run them."""
    folder = Path(tempfile.mkdtemp(prefix="programs-"))
    atexit.register(shutil.rmtree, folder)
    address = folder / "server"
    for name in ("python", "batchgnn", "torchrun"):
        words = [sys.executable, "-IS", str(_CLIENT), str(address)]
        words += [] if name == "python" else [str(_REAL / name)]
        program = folder / name
        program.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
        program.chmod(0o755)
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.support.program_server", str(address)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
    )
    atexit.register(server.kill)
    assert server.stdout is not None and server.stdout.readline() == b"ready\n"
    return folder
