"""Forks in place of programs get the arguments, and end as programs do."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

from tests.support.programs import quick_programs

_WAITS = """
import os, pathlib, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
pathlib.Path("pid").write_text(str(os.getpid()))
time.sleep(100)
"""


def start(folder: Path, code: str, *arguments: str) -> subprocess.Popen[str]:
    (folder / "program.py").write_text(code)
    environment = {**os.environ, **quick_programs(), "COLOUR": "blue"}
    command = ["python", "program.py", *arguments]
    streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, cwd=folder, env=environment, text=True, **streams)


def started(folder: Path) -> int:
    """Waits until a program has written its number; returns it."""
    file = folder / "pid"
    for _ in range(6000):
        if file.exists() and (text := file.read_text()):
            return int(text)
        time.sleep(0.01)
    raise AssertionError("the program has not started")


def test_arguments_folder_environment_and_files(tmp_path: Path) -> None:
    code = "import os, sys\nprint(sys.argv[1:], os.environ['COLOUR'], os.getcwd(), input())\nsys.exit(5)"
    program = start(tmp_path, code, "a b", "-u c")
    out, err = program.communicate("said\n", timeout=120)
    assert (program.returncode, err) == (5, "")
    assert out == f"['a b', '-u c'] blue {tmp_path} said\n"


def test_a_signal_reaches_the_program_and_a_killed_one_leaves_no_fork(tmp_path: Path) -> None:
    with start(tmp_path, _WAITS) as program:
        started(tmp_path)
        program.send_signal(signal.SIGTERM)
        assert program.wait(timeout=120) == 7
    (tmp_path / "pid").unlink()
    with start(tmp_path, _WAITS) as program:
        pid = started(tmp_path)
        program.kill()
    for _ in range(6000):
        if not Path("/proc", str(pid)).exists():
            return
        time.sleep(0.01)
    raise AssertionError("the fork lives on")
