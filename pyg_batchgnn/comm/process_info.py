"""Where a rank runs, and how others on the machine can see whether it still does."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

_PROC = Path("/proc")
_HOST_VARIABLES = ("GROUP_RANK", "SLURM_NODEID")


def host_from(environment: Mapping[str, str]) -> int:
    """Number of the host as the launcher counts (torchrun's GROUP_RANK, Slurm's SLURM_NODEID), else 0.

    Never the host's name: containers of one machine may have several, and machines may share one.
    """
    for variable in _HOST_VARIABLES:
        if value := environment.get(variable):
            if not value.isdecimal():
                raise ValueError(f"{variable} must be a number from 0, not {value!r}")
            return int(value)
    return 0


class Liveness(Enum):
    """What this process can see of another one."""

    RUNNING = "is running"
    STOPPED = "is stopped (SIGSTOP, or a debugger)"
    GONE = "no longer exists"
    UNKNOWN = "cannot be seen from here"


@dataclass(frozen=True)
class ProcessInfo:
    """A process so that it cannot be mistaken for a later one of the same number."""

    machine: str  # identity of the running kernel and of the process numbers' namespace
    pid: int
    started: int  # clock ticks from the kernel's start

    @classmethod
    def mine(cls) -> ProcessInfo:
        pid = os.getpid()
        return cls(_machine(), pid, _stat(pid)[1])

    def life(self) -> Liveness:
        """Whether it still runs, where it is a process of this machine."""
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
    """State letter and start time; the name before them may hold spaces and parentheses."""
    try:
        words = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except ProcessLookupError as gone:  # it ended between opening and reading
        raise FileNotFoundError(pid) from gone
    return words[0], int(words[19])


def endpoints() -> list[str]:
    """Local addresses of this process's TCP sockets, as ``address port``; empty where /proc does not tell.

    A transport's error text names the address of a connection's other end: with these lists it names a rank.
    """
    try:
        sockets = {_socket(entry) for entry in (_PROC / "self/fd").iterdir()}
        lines = [line for name in ("tcp", "tcp6") for line in _table(_PROC / "self/net" / name)]
    except OSError:
        return []
    return sorted({_address(words[1]) for words in map(str.split, lines) if words[9] in sockets})


def _socket(entry: Path) -> str:
    """The inode of an open socket, "" of anything else (or of what was closed meanwhile)."""
    try:
        found = re.fullmatch(r"socket:\[(\d+)\]", str(entry.readlink()))
    except OSError:
        return ""
    return found.group(1) if found else ""


def _table(path: Path) -> list[str]:
    return path.read_text().splitlines()[1:] if path.exists() else []


def _address(text: str) -> str:
    """The kernel's hexadecimal form: words of four bytes, each in the machine's (little-endian) order."""
    address, port = text.split(":")
    words = [bytes.fromhex(address[at : at + 8])[::-1] for at in range(0, len(address), 8)]
    return _endpoint(str(ipaddress.ip_address(b"".join(words))), int(port, 16))


def _endpoint(address: str, port: int) -> str:
    ip = ipaddress.ip_address(address)
    mapped = ip.ipv4_mapped if isinstance(ip, ipaddress.IPv6Address) else None
    return f"{mapped or ip} {port}"


def endpoints_in(text: str) -> list[str]:
    """Addresses that an error text names as ``[address]:port``."""
    found = []
    for address, port in re.findall(r"\[([0-9a-fA-F.:]+)\]:(\d+)", text):
        try:
            found.append(_endpoint(address, int(port)))
        except ValueError:
            continue
    return found
