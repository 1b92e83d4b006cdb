"""Hosts on one machine: network namespaces on a bridge, each with a link of limited rate.

Needs root.

    sudo python -m benchmark.support.namespaces up --hosts 4 --rate 1gbit   set them up
    sudo python -m benchmark.support.namespaces run 2 -- ping 10.213.0.1    run on host 2
    sudo python -m benchmark.support.namespaces down                        take them down

Everything is named `batchgnn...`; `down` removes whatever of that name is there, also what a killed
run left. The limit is a token bucket on both ends of every link, so that a host sends and receives
at that rate at most.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence

BRIDGE = "batchgnn-br"
NETWORK = "10.213.0"
DEVICE = "batchgnn0"  # a host's own end of its link, the same name in every namespace
BUCKET = ["burst", "256kb", "latency", "50ms"]
UNLIMITED = "unlimited"


def name_of(host: int) -> str:
    """The namespace of a host."""
    return f"batchgnn{host}"


def address(host: int) -> str:
    """The host's address on the bridge."""
    return f"{NETWORK}.{host + 1}"


def command_on(host: int, command: Sequence[str]) -> list[str]:
    """The command line that runs ``command`` on a host."""
    return ["ip", "netns", "exec", name_of(host), *command]


def up(hosts: int, rate: str) -> None:
    """Sets up namespaces with links of ``rate``, as tc writes it (1gbit, 100mbit) or unlimited."""
    _need_root()
    down()
    _do("ip", "link", "add", BRIDGE, "type", "bridge")
    _do("ip", "link", "set", BRIDGE, "up")
    for host in range(hosts):
        name, outer = name_of(host), f"batchgnn-v{host}"
        _do("ip", "netns", "add", name)
        _do("ip", "link", "add", outer, "type", "veth", "peer", "name", DEVICE, "netns", name)
        _do("ip", "link", "set", outer, "master", BRIDGE, "up")
        _do("ip", "-n", name, "link", "set", "lo", "up")
        _do("ip", "-n", name, "link", "set", DEVICE, "up")
        _do("ip", "-n", name, "addr", "add", f"{address(host)}/24", "dev", DEVICE)
        if rate != UNLIMITED:
            _do("tc", "qdisc", "add", "dev", outer, "root", "tbf", "rate", rate, *BUCKET)
            _do("tc", "-n", name, "qdisc", "add", "dev", DEVICE, "root", "tbf", "rate", rate, *BUCKET)


def down() -> None:
    """Takes down all namespaces and the bridge, whoever set them up."""
    _need_root()
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    names = [line.split()[0] for line in listed.splitlines() if line.strip()]
    for name in names:
        if name.startswith("batchgnn") and name.removeprefix("batchgnn").isdigit():
            _do("ip", "netns", "del", name)
    links = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True, check=True).stdout
    for line in links.splitlines():
        link = line.split(": ")[1].partition("@")[0]
        if link == BRIDGE or link.startswith("batchgnn-v"):
            subprocess.run(["ip", "link", "del", link], capture_output=True, check=False)  # may go by itself


@contextlib.contextmanager
def hosts(number: int, rate: str) -> Iterator[None]:
    """`up` for the time of a block."""
    up(number, rate)
    try:
        yield
    finally:
        down()


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
        up(parsed.hosts, parsed.rate)
    elif parsed.way == "down":
        down()
    else:
        command = [word for at, word in enumerate(parsed.command) if at or word != "--"]
        return subprocess.run(command_on(parsed.host, command), check=False).returncode
    return 0


if __name__ == "__main__":
    sys.exit(main())
