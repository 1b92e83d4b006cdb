"""Forks ranks from a process that has imported torch once, so that a launch takes milliseconds."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import importlib
import inspect
import json
import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed

import pyg_batchgnn.loader.rank_setup  # noqa: F401  (with the rooms that ranks use)
from pyg_batchgnn.comm import Communicator

_PR_SET_PDEATHSIG = 1


def main() -> int:
    gc.collect()
    gc.freeze()  # what is there now is shared with the ranks, not looked at and so copied
    for line in sys.stdin:
        request = json.loads(line)
        if request["do"] == "start":
            with contextlib.suppress(Exception):  # which the ranks tell
                importlib.import_module(request["function"].partition(":")[0])  # once for all launches
            answer: Any = []
            for rank, environment in enumerate(request["environments"]):
                pid = os.fork()
                if pid == 0:
                    code = _rank(request, rank, environment)
                    if not request["whole_end"]:
                        atexit._run_exitfuncs()
                        os._exit(code)
                    return code
                answer.append(pid)
        elif request["do"] == "poll":
            answer = [_exit_code(pid) for pid in request["pids"]]
        else:
            raise ValueError(f"unknown request {request}")
        print(json.dumps(answer), flush=True)
    return 0


def _exit_code(pid: int) -> int | None:
    ended, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if ended else None


def _rank(request: dict[str, Any], rank: int, environment: dict[str, str]) -> int:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    os.setsid()
    folder = Path(request["folder"]) / str(rank)
    for stream, name in ((0, os.devnull), (1, "stdout"), (2, "stderr")):
        file = os.open(name if stream == 0 else folder / name, os.O_RDWR | os.O_CREAT, 0o600)
        os.dup2(file, stream)
        os.close(file)
    os.environ.update(environment)
    tempfile.tempdir = None  # asked for anew, from the rank's TMPDIR
    os.chdir(folder)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    try:
        module, _, name = request["function"].partition(":")
        value = _call(getattr(importlib.import_module(module), name), request["arguments"])
        Path("value.part").write_text(json.dumps(value))
        Path("value.part").rename("value.json")
        return 0
    except Exception:
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


def _call(function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    with contextlib.ExitStack() as stack:
        for name, parameter in inspect.signature(function).parameters.items():
            if parameter.annotation == "Communicator":
                arguments[name] = stack.enter_context(Communicator.create(name, timeout=50))
        return function(**arguments)


if __name__ == "__main__":
    sys.exit(main())
