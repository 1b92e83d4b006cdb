"""The local addresses of a process's TCP connections.

A transport's error names the address of a connection's other end. With the addresses of all ranks
it can be turned into a rank.
"""

from __future__ import annotations

import ipaddress
import re
from pathlib import Path

_PROC = Path("/proc")


def endpoints() -> list[str]:
    """Returns the local addresses of this process's TCP sockets, each as ``address port``. The list
    is empty where /proc does not list them."""
    try:
        sockets = {_socket(entry) for entry in (_PROC / "self/fd").iterdir()}
        lines = [line for name in ("tcp", "tcp6") for line in _table(_PROC / "self/net" / name)]
    except OSError:
        return []
    return sorted({_address(words[1]) for words in map(str.split, lines) if words[9] in sockets})


def endpoints_in(text: str) -> list[str]:
    """Returns the addresses that an error text names as ``[address]:port``."""
    found = []
    for address, port in re.findall(r"\[([0-9a-fA-F.:]+)\]:(\d+)", text):
        try:
            found.append(_endpoint(address, int(port)))
        except ValueError:
            continue
    return found


def _socket(entry: Path) -> str:
    """Returns the inode of an open socket, or "" for another file or one that was closed
    meanwhile."""
    try:
        found = re.fullmatch(r"socket:\[(\d+)\]", str(entry.readlink()))
    except OSError:
        return ""
    return found.group(1) if found else ""


def _table(path: Path) -> list[str]:
    return path.read_text().splitlines()[1:] if path.exists() else []


def _address(text: str) -> str:
    """Converts the kernel's hexadecimal form: words of four bytes, each in the machine's
    (little-endian) order."""
    address, port = text.split(":")
    words = [bytes.fromhex(address[at : at + 8])[::-1] for at in range(0, len(address), 8)]
    return _endpoint(str(ipaddress.ip_address(b"".join(words))), int(port, 16))


def _endpoint(address: str, port: int) -> str:
    ip = ipaddress.ip_address(address)
    mapped = ip.ipv4_mapped if isinstance(ip, ipaddress.IPv6Address) else None
    return f"{mapped or ip} {port}"
