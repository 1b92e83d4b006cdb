"""Hosts on one machine: network namespaces on a bridge, each with a link of limited rate.

Needs root. The names of a run begin with `bgnn`, its process id and a dash, so that several runs
can have their hosts at the same time. A run removes its own hosts, and those that processes left
that no longer exist. The limit is a token bucket on both ends of every link, so that a host sends
and receives at that rate at most.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

NETWORK = "10.213.0"
DEVICE = "batchgnn0"  # a host's own end of its link, the same name in every namespace
BUCKET = ["burst", "256kb", "latency", "50ms"]
UNLIMITED = "unlimited"
_NAME = re.compile(r"bgnn(\d+)-\w+")


def prefix_of(owner: int) -> str:
    return f"bgnn{owner}-"


def address(host: int) -> str:
    return f"{NETWORK}.{host + 1}"


def command_on(host: int, command: Sequence[str]) -> list[str]:
    return ["ip", "netns", "exec", f"{prefix_of(os.getpid())}{host}", *command]


def up(hosts: int, rate: str, owner: int) -> None:
    """Sets up namespaces with links of ``rate``, as tc writes it (1gbit, 100mbit) or unlimited."""
    _need_root()
    down(owner)
    bridge = f"{prefix_of(owner)}br"
    _do("ip", "link", "add", bridge, "type", "bridge")
    _do("ip", "link", "set", bridge, "up")
    for host in range(hosts):
        name, outer = f"{prefix_of(owner)}{host}", f"{prefix_of(owner)}v{host}"
        _do("ip", "netns", "add", name)
        _do("ip", "link", "add", outer, "type", "veth", "peer", "name", DEVICE, "netns", name)
        _do("ip", "link", "set", outer, "master", bridge, "up")
        _do("ip", "-n", name, "link", "set", "lo", "up")
        _do("ip", "-n", name, "link", "set", DEVICE, "up")
        _do("ip", "-n", name, "addr", "add", f"{address(host)}/24", "dev", DEVICE)
        if rate != UNLIMITED:
            _do("tc", "qdisc", "add", "dev", outer, "root", "tbf", "rate", rate, *BUCKET)
            _do("tc", "-n", name, "qdisc", "add", "dev", DEVICE, "root", "tbf", "rate", rate, *BUCKET)


def down(owner: int) -> None:
    """Takes down the namespaces and links of a run, and those of processes that no longer exist."""
    _need_root()
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    links = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True, check=True).stdout
    spaces = [line.split()[0] for line in listed.splitlines() if line.strip()]
    ends = [line.split(": ")[1].partition("@")[0] for line in links.splitlines()]
    for kind, names in (("netns", spaces), ("link", ends)):
        for name in names:
            if _is_left(name, owner):  # a link may go by itself, or another run be faster
                subprocess.run(["ip", kind, "del", name], capture_output=True, check=False)


def _is_left(name: str, owner: int) -> bool:
    if (found := _NAME.fullmatch(name)) is None:
        return False
    other = int(found[1])
    return other == owner or not Path(f"/proc/{other}").exists()


@contextlib.contextmanager
def hosts(number: int, rate: str) -> Iterator[None]:
    """Sets hosts of this process up for the time of a block."""
    up(number, rate, os.getpid())
    try:
        yield
    finally:
        down(os.getpid())


def _need_root() -> None:
    if os.geteuid() != 0:
        raise SystemExit(
            "network namespaces need root: run this with sudo, or leave --network loopback, where all ranks "
            "share one host's loopback and nothing limits the rate"
        )


def _do(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: {done.stderr.strip() or f'status {done.returncode}'}")
