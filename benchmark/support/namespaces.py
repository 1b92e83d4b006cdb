"""Hosts on one machine: network namespaces on a bridge, each with a link of limited rate.

Needs root.

    sudo python -m benchmark.support.namespaces up --hosts 4 --rate 1gbit   set them up
    sudo python -m benchmark.support.namespaces run 2 -- ping 10.213.0.1    run on host 2
    sudo python -m benchmark.support.namespaces down                        take them down

The names of a run begin with `bgnn`, its process id and a dash, so that several runs can have their
hosts at the same time. Those of the command line have the number 0 and stay until they are taken
down. A run removes its own hosts, and those that processes left that no longer exist. The limit is
a token bucket on both ends of every link, so that a host sends and receives at that rate at most.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

NETWORK = "10.213.0"
DEVICE = "batchgnn0"  # a host's own end of its link, the same name in every namespace
BUCKET = ["burst", "256kb", "latency", "50ms"]
UNLIMITED = "unlimited"
#: Takes the place of the process id in what the command line sets up.
COMMAND_LINE = 0
_NAME = re.compile(r"bgnn(\d+)-\w+")


def prefix_of(owner: int) -> str:
    """Returns the beginning of all names of a run. Linux allows 15 characters for a whole name."""
    return f"bgnn{owner}-"


def address(host: int) -> str:
    """The host's address on the bridge."""
    return f"{NETWORK}.{host + 1}"


def command_on(host: int, command: Sequence[str], owner: int | None = None) -> list[str]:
    """Returns the command line that runs ``command`` on a host of a run, by default of this
    process."""
    name = f"{prefix_of(os.getpid() if owner is None else owner)}{host}"
    return ["ip", "netns", "exec", name, *command]


def up(hosts: int, rate: str, owner: int) -> None:
    """Sets up namespaces with links of ``rate``, as tc writes it (1gbit, 100mbit) or unlimited.

    Args:
        hosts: how many.
        rate: of every link.
        owner: the process that they are for, or `COMMAND_LINE`.
    """
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
    """Returns whether a name is of a run, or of a process that no longer exists."""
    if (found := _NAME.fullmatch(name)) is None:
        return False
    other = int(found[1])
    return other == owner or (other != COMMAND_LINE and not Path(f"/proc/{other}").exists())


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


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    ways = parser.add_subparsers(dest="way", required=True)
    one = ways.add_parser("up", help="set the hosts up")
    one.add_argument("--hosts", type=int, default=4)
    one.add_argument("--rate", default="1gbit", help="of every link, as tc writes it")
    ways.add_parser("down", help="take all hosts down")
    one = ways.add_parser("run", help="run a command on a host")
    one.add_argument("host", type=int)
    one.add_argument("command", nargs=argparse.REMAINDER)
    parsed = parser.parse_args(arguments)
    if parsed.way == "up":
        up(parsed.hosts, parsed.rate, COMMAND_LINE)
    elif parsed.way == "down":
        down(COMMAND_LINE)
    else:
        command = [word for at, word in enumerate(parsed.command) if at or word != "--"]
        return subprocess.run(command_on(parsed.host, command, COMMAND_LINE), check=False).returncode
    return 0


if __name__ == "__main__":
    sys.exit(main())
