"""Runs Python programs in forks of a process that has imported the package once.

``python -m tests.support.program_server SOCKET``. A client (`program_client`) connects for every
program. It sends the interpreter's arguments, its folder, its environment and its first three
files, then the number of each signal that it gets. The answer is the program's exit code. A program
ends with its client, and with this process.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import os
import runpy
import selectors
import signal
import socket
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
import torch.distributed.run

import pyg_batchgnn.planner
import pyg_batchgnn.train.start  # noqa: F401

_PR_SET_PDEATHSIG = 1
_MOST_BYTES = 1 << 17
#: Seconds between two looks at the programs that run.
_PAUSE = 0.01


def main(address: str) -> None:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(address)
    listener.listen()
    print("ready", flush=True)
    gc.collect()
    gc.freeze()  # what is there now is shared with the programs, not looked at and so copied
    programs: dict[int, socket.socket] = {}
    with selectors.DefaultSelector() as selector:
        for source in (listener, sys.stdin):
            selector.register(source, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select(_PAUSE if programs else None):
                if key.fileobj is sys.stdin:  # its end: the tests have ended
                    return
                if key.fileobj is not listener:
                    _pass_on(key.fileobj, key.data)
                    continue
                client, _ = listener.accept()
                message, files, _, _ = socket.recv_fds(client, _MOST_BYTES, 3)
                pid = os.fork()
                if pid == 0:
                    for descriptor in (listener, client, *programs.values()):
                        descriptor.close()
                    selector.close()
                    _run(json.loads(message), files)
                    return
                with contextlib.suppress(PermissionError, ProcessLookupError):  # the program has done it
                    os.setpgid(pid, pid)
                for file in files:
                    os.close(file)
                programs[pid] = client
                selector.register(client, selectors.EVENT_READ, pid)
            for pid in list(programs):
                ended, status = os.waitpid(pid, os.WNOHANG)
                if ended:
                    client = programs.pop(pid)
                    selector.unregister(client)
                    _answer(client, os.waitstatus_to_exitcode(status))


def _pass_on(client: Any, pid: int) -> None:
    """Sends a program the signal that its client got, or kills it where the client is gone."""
    signals = client.recv(1)
    os.killpg(pid, signals[0] if signals else signal.SIGKILL)


def _answer(client: socket.socket, code: int) -> None:
    with client:
        try:
            client.send(str(code).encode())
        except BrokenPipeError:
            return


def _run(request: dict[str, Any], files: list[int]) -> None:
    """Becomes the program. Whatever it raises goes on, as in an interpreter of its own."""
    os.setpgid(0, 0)  # here and in the server: whoever comes first, signals reach the program
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    # The server's own know whether its files could seek.
    sys.stdout, sys.stderr = (open(file, "w", buffering=1, closefd=False) for file in (1, 2))  # noqa: SIM115
    for number in request["ignored"]:
        signal.signal(number, signal.SIG_IGN)
    os.environ.clear()
    os.environ.update(request["environment"])
    tempfile.tempdir = None  # asked for anew, from the program's TMPDIR
    os.chdir(request["folder"])
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", torch.get_num_threads())))
    first, *rest = [argument for argument in request["arguments"] if argument != "-u"]
    if first == "-c":
        sys.argv, sys.path[0] = ["-c", *rest[1:]], request["folder"]
        exec(compile(rest[0], "<string>", "exec"), {"__name__": "__main__"})
    elif first == "-m":
        sys.argv, sys.path[0] = rest, request["folder"]
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv, sys.path[0] = [first, *rest], str(Path(first).resolve().parent)
        runpy.run_path(first, run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1])
