"""The identity of a rank's process, and what other processes of the machine can see of it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

_PROC = Path("/proc")
_HOST_VARIABLES = ("GROUP_RANK", "SLURM_NODEID")


def host_from(environment: Mapping[str, str]) -> int:
    """Returns the number of the host as the launcher counts (torchrun's GROUP_RANK, Slurm's
    SLURM_NODEID), or 0 without a launcher.

    The host's name is never used. Containers of one machine may have several names, and two
    machines may have the same name.
    """
    for variable in _HOST_VARIABLES:
        if value := environment.get(variable):
            if not value.isdecimal():
                raise ValueError(f"{variable} must be a number from 0, not {value!r}")
            return int(value)
    return 0


class Liveness(Enum):
    """The state of another process, as far as this process can see it."""

    RUNNING = "is running"
    STOPPED = "is stopped (SIGSTOP, or a debugger)"
    GONE = "no longer exists"
    UNKNOWN = "cannot be seen from here"


@dataclass(frozen=True)
class ProcessInfo:
    """The identity of a process. A later process with the same number has another identity.

    Attributes:
        machine: identity of the running kernel and of the namespace of process numbers.
        pid: the process number.
        started: clock ticks from the start of the kernel to the start of the process.
    """

    machine: str
    pid: int
    started: int

    @classmethod
    def own(cls) -> ProcessInfo:
        """Returns the identity of this process."""
        pid = os.getpid()
        return cls(_machine(), pid, _stat(pid)[1])

    def liveness(self) -> Liveness:
        """Returns whether the process still runs. Unknown for a process of another machine."""
        if not self.machine or self.machine != _machine():
            return Liveness.UNKNOWN
        try:
            state, started = _stat(self.pid)
        except OSError:
            return Liveness.GONE
        if started != self.started or state in "ZXx":
            return Liveness.GONE
        return Liveness.STOPPED if state in "Tt" else Liveness.RUNNING


def _machine() -> str:
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


def _stat(pid: int) -> tuple[str, int]:
    """Returns the state's letter and the start time. The program's name before them may hold spaces
    and parentheses."""
    try:
        words = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except ProcessLookupError as gone:  # it ended between opening and reading
        raise FileNotFoundError(pid) from gone
    return words[0], int(words[19])
