"""Runs with hosts of their own at the same time."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from benchmark.support import namespaces
from tests.support.two_hosts import missing_for_two_hosts

OTHER = """
import os
from benchmark.support import namespaces
with namespaces.hosts(1, namespaces.UNLIMITED):
    print(os.getpid(), flush=True)
    input()
"""


def standing() -> set[str]:
    """Returns the names of all namespaces and links."""
    spaces, links = (
        subprocess.run(["ip", *words], capture_output=True, text=True, check=True).stdout.splitlines()
        for words in (("netns", "list"), ("-o", "link"))
    )
    return {line.split()[0] for line in spaces} | {
        line.split()[1].rstrip(":").split("@")[0] for line in links
    }


@pytest.mark.timeout(60)
def test_a_run_removes_its_own_hosts_and_those_of_dead_processes() -> None:
    if missing := missing_for_two_hosts():
        pytest.skip(f"hosts are network namespaces: {missing}")
    other = subprocess.Popen(
        [sys.executable, "-c", OTHER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert other.stdout is not None
    owner = int(other.stdout.readline())
    theirs, ours = (
        {f"{namespaces.prefix_of(one)}{end}" for end in ("0", "br", "v0")} for one in (owner, os.getpid())
    )
    with namespaces.hosts(1, namespaces.UNLIMITED):
        assert theirs | ours <= standing()
        subprocess.run(namespaces.command_on(0, ["true"]), check=True)
    assert theirs <= standing() and not ours & standing()
    other.kill()  # leaves its hosts behind
    other.communicate()
    with namespaces.hosts(1, namespaces.UNLIMITED):
        assert ours <= standing() and not theirs & standing()
