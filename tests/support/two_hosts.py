"""Two hosts on one machine: network namespaces that one cable joins. Needs root and `ip`."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

NETWORK = "10.214.7"
DEVICE = "docs0"
#: Names the host, shows it the names of both, and runs the command: all for this process alone.
_NAMED = 'hostname "$1" && mount --bind "$2" /etc/hosts && shift 2 && exec "$@"'


@dataclass(frozen=True)
class Ran:
    code: int
    stdout: str
    stderr: str


def missing_for_two_hosts() -> str | None:
    if os.geteuid() != 0:
        return "they need root"
    for program in ("ip", "unshare", "mount", "hostname"):
        if shutil.which(program) is None:
            return f"the program {program} is not installed"
    probe = f"batchgnn-probe-{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", probe], capture_output=True, text=True, check=False)
    if made.returncode:
        return made.stderr.strip() or "the system refuses them"
    subprocess.run(["ip", "netns", "del", probe], check=True)
    return None


class TwoHosts:
    """Two network namespaces for the time of a `with` block.

    The hosts are named node0 and node1 and know each other by these names. A command finds the
    network device in the environment variable `GLOO_SOCKET_IFNAME`.
    """

    def __init__(self) -> None:
        self._names = [f"batchgnn-docs{host}-{os.getpid()}" for host in range(2)]

    def __enter__(self) -> TwoHosts:
        first, second = self._names
        try:
            for name in self._names:
                _ip("netns", "add", name)
            _ip("-n", first, "link", "add", DEVICE, "type", "veth", "peer", "name", DEVICE, "netns", second)
            for host, name in enumerate(self._names):
                _ip("-n", name, "addr", "add", f"{NETWORK}.{host + 1}/24", "dev", DEVICE)
                _ip("-n", name, "link", "set", "lo", "up")
                _ip("-n", name, "link", "set", DEVICE, "up")
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._remove()

    def run(
        self, command: Sequence[str], folder: Path, environment: Mapping[str, str], seconds: float
    ) -> list[Ran]:
        """Runs a command on both hosts at the same time, each in its folder below ``folder``."""
        started = []
        names = folder / "hosts"
        addresses = "".join(f"{NETWORK}.{host + 1} node{host}\n" for host in range(len(self._names)))
        names.write_text("127.0.0.1 localhost\n" + addresses)
        for host, name in enumerate(self._names):
            place = folder / f"host{host}"
            place.mkdir(exist_ok=True)
            told = {**environment, "GLOO_SOCKET_IFNAME": DEVICE}
            inside = ["bash", "-c", _NAMED, "bash", f"node{host}", str(names), *command]
            line = ["ip", "netns", "exec", name, "unshare", "--uts", *inside]
            process = subprocess.Popen(
                line, cwd=place, env=told, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
            started.append(process)
        try:
            outputs = [process.communicate(timeout=seconds) for process in started]
        finally:
            for process in started:
                if process.poll() is None:
                    process.kill()
        return [Ran(process.returncode, *output) for process, output in zip(started, outputs, strict=True)]

    def _remove(self) -> None:
        for name in self._names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], capture_output=True, text=True, check=True)
