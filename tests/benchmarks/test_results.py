"""Result files that were measured in pieces, and hosts that are network namespaces."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmark.accuracy import absences
from benchmark.report import machine
from benchmark.support import cli, namespaces
from benchmark.support.machine import describe
from tests.support.two_hosts import missing_for_two_hosts

# Results ##########################################################################################


def test_every_result_keeps_its_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of three data sets are measured anew elsewhere, one with the same figures; the file had
    one machine for all."""
    path, here = tmp_path / "accuracy.json", describe()
    old: dict[str, Any] = {"cora": {"seeds": 1, "mean": {2: 1.5}}, "arxiv": {"seeds": 2}, "pubmed": {}}
    cli.write_json(path, {"benchmark": "accuracy", "datasets": old, "machine": {**here, "cpu": "First"}})
    before = machine(cli.read_json(path))
    monkeypatch.setattr(cli, "describe", lambda: {**here, "cpu": "Second", "load_average": 9.0})
    cli.write_datasets(path, {"cora": old["cora"], "arxiv": {"seeds": 3}}, absent={})
    found = cli.read_json(path)
    assert found["datasets"]["arxiv"]["seeds"] == 3 and "machine" not in found
    cpus = {name: one["machine"]["cpu"] for name, one in found["datasets"].items()}
    assert cpus == {"cora": "First", "arxiv": "Second", "pubmed": "First"}
    text = " ".join(machine(found).split())
    assert text.startswith(f"cora, pubmed: {' '.join(before.split())} arxiv: Second, ")
    del found["datasets"]["arxiv"]
    assert machine(found) == before


def test_what_was_not_asked_for_stays_absent() -> None:
    stored = {"cora pyg": "no pyg-lib", "cora ours": "killed", "arxiv pyg": "no pyg-lib"}
    asked = [("cora", "ours"), ("cora", "pyg"), ("pubmed", "pyg")]
    assert absences(stored, {"cora pyg": "too old"}, asked) == {
        "arxiv pyg": "no pyg-lib",
        "cora pyg": "too old",
    }


# Namespaces #######################################################################################

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
