"""The doctor's findings on packages, the machine and backends, whether they work or not."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pyg_batchgnn.doctor import Finding, FindingState, as_json, as_table, findings, is_healthy
from pyg_batchgnn.doctor.findings import Package
from pyg_batchgnn.train.cli import main
from tests.support.programs import quick_programs
from tests.support.tiers import ALL


def test_it_prints_what_works_here(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if not ALL:  # this process has imported both, and programs that exchange rows are forks
        monkeypatch.setattr(findings, "_import_error", lambda _: "")
        monkeypatch.setattr(sys, "executable", quick_programs()["PYTHON_EXEC"])
    with pytest.raises(SystemExit) as ended:
        main(["doctor", "--json"])
    said = json.loads(capsys.readouterr().out)
    assert ended.value.code == 0 and said["healthy"]
    found = {finding["name"]: finding for finding in said["findings"]}
    assert {"torch", "PyG", "pyg-lib", "DGL", "METIS", "oneCCL", "instructions"} <= found.keys()
    assert {"huge pages", "shared memory", "backend gloo", "backend ccl", "backend mpi"} <= found.keys()
    assert {"CUDA", "Triton", "locked memory"} <= found.keys()
    for name in ("torch", "PyG", "backend gloo", "processor"):
        assert found[name]["state"] == "works", found[name]
    assert "GB/s between two processes" in found["backend gloo"]["seen"]
    for finding in found.values():
        assert finding["state"] == "works" or finding["remedy"], finding


@pytest.mark.parametrize("has", [True, False])
def test_metis_is_the_library_that_the_policy_calls(has: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(findings, "has_metis", lambda: has)
    found = findings.check_metis()
    assert (found.state is FindingState.WORKS) == has and ("pip install cmeel-metis" in found.remedy) != has


def test_what_is_needed_decides() -> None:
    broken = Finding("backend ccl", FindingState.BROKEN, "it [never] ends", "see its log")
    findings = [Finding("torch", FindingState.WORKS, "2.13", needed=True), broken]
    assert is_healthy(findings) and as_json(findings)["findings"][1]["state"] == "broken"
    assert as_table(findings).row_count == 2
    assert not is_healthy([*findings, Finding("PyG", FindingState.BROKEN, needed=True)])


@pytest.mark.parametrize(
    ("package", "state", "seen"),
    [
        (Package("x", "no_such_module", "no-such", "get it"), FindingState.ABSENT, "not installed"),
        (Package("x", "no_such_module", "no-such", "get it", (1,)), FindingState.BROKEN, "not installed"),
        (Package("x", "numpy", "numpy", "get it", (999, 0)), FindingState.BROKEN, ", not 999.0"),
        (Package("x", "numpy", "numpy", "", (1, 24)), FindingState.WORKS, "."),
    ],
)
def test_packages(package: Package, state: FindingState, seen: str) -> None:
    found = findings.check_package(package)
    assert found.state is state and seen in found.seen and found.needed == bool(package.least)
    assert state is FindingState.WORKS or found.remedy == "get it"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("raise ImportError('libtorch.so: undefined symbol')", "ImportError: libtorch.so: undefined symbol"),
        ("import os; os.abort()", "the process ended with -6"),
    ],
)
def test_a_package_that_cannot_be_imported_takes_nothing_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, says: str
) -> None:
    (tmp_path / "of_another_torch.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    found = findings.check_package(Package("x", "of_another_torch", "none", "build it again"))
    assert found.state is FindingState.BROKEN and says in found.seen


@pytest.mark.parametrize(
    ("soft", "hard", "seen"),
    [(-1, -1, "no limit"), (8 << 20, -1, "8.0 MiB (ulimit -l)"), (64 << 10, 64 << 10, "(ulimit -l)")],
)
def test_locked_memory(soft: int, hard: int, seen: str) -> None:
    found = findings.locked_memory(soft, hard)
    assert seen in found.seen and bool(found.remedy) == (seen != "no limit")


def test_cores_of_a_container() -> None:
    assert findings.cores(8, 8, {}).remedy == ""
    found = findings.cores(8, 2, {})
    assert "2 of 8 cores" in found.seen and "export OMP_NUM_THREADS=2" in found.remedy
    assert findings.cores(8, 2, {"OMP_NUM_THREADS": "2"}).remedy == ""


@pytest.mark.parametrize(
    ("address", "state"), [("10.0.0.7", FindingState.WORKS), ("127.0.1.1", FindingState.LIMITED)]
)
def test_a_host_name_that_others_cannot_reach(
    monkeypatch: pytest.MonkeyPatch, address: str, state: FindingState
) -> None:
    monkeypatch.setattr("socket.gethostbyname", lambda _: address)
    found = findings.host_name()
    assert found.state is state and address in found.seen
    assert state is FindingState.WORKS or "GLOO_SOCKET_IFNAME" in found.remedy


def test_huge_pages(tmp_path: Path) -> None:
    setting = tmp_path / "enabled"
    for text, state in (
        ("always [madvise] never", FindingState.WORKS),
        ("always madvise [never]", FindingState.LIMITED),
    ):
        setting.write_text(text)
        assert findings.huge_pages(setting).state is state
    assert findings.huge_pages(tmp_path / "none").seen == "unknown"


@pytest.mark.parametrize(
    ("chosen", "state"),
    [
        ({}, FindingState.LIMITED),
        ({"OMP_WAIT_POLICY": "active"}, FindingState.LIMITED),
        ({"GOMP_SPINCOUNT": "infinity"}, FindingState.LIMITED),
        ({"GOMP_SPINCOUNT": "3m"}, FindingState.LIMITED),
        ({"OMP_WAIT_POLICY": "PASSIVE"}, FindingState.WORKS),
        ({"GOMP_SPINCOUNT": "3k"}, FindingState.WORKS),
        ({"GOMP_SPINCOUNT": "0"}, FindingState.WORKS),
        ({"KMP_BLOCKTIME": "0"}, FindingState.WORKS),
    ],
)
def test_threads_that_spin(chosen: dict[str, str], state: FindingState) -> None:
    found = findings.waiting_threads(chosen)
    assert found.state is state and all(f"{name}={value}" in found.seen for name, value in chosen.items())
    assert ("export GOMP_SPINCOUNT=3000" in found.remedy) is (state is FindingState.LIMITED)


def test_shared_memory(tmp_path: Path) -> None:
    assert findings.shared_memory(tmp_path / "none").state is FindingState.LIMITED
    assert "GiB free of" in findings.shared_memory(tmp_path).seen


def _raise(error: Exception) -> Callable[..., str]:
    def fail(*_: object) -> str:
        raise error

    return fail


@pytest.mark.parametrize(
    ("exchange", "seen"),
    [
        (_raise(RuntimeError("connection refused")), "connection refused"),
        (lambda _name: "not numbers", "Expecting value"),
        (lambda _name: "", "out of range"),
    ],
)
def test_a_backend_that_fails_is_broken(
    monkeypatch: pytest.MonkeyPatch, exchange: Callable[..., str], seen: str
) -> None:
    monkeypatch.setattr(findings, "_exchange", exchange)
    found = findings.check_backend_works("gloo")
    assert found.state is FindingState.BROKEN and found.needed and seen in found.seen and found.remedy


def test_processes_that_hang_or_fail_are_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    def started(command: str) -> subprocess.Popen[str]:
        return subprocess.Popen(["sh", "-c", command], stdout=-1, stderr=-1, text=True)

    with pytest.raises(RuntimeError, match="the last line"):
        findings._end(started("echo the last line >&2; exit 3"))
    monkeypatch.setattr(findings, "LIMIT", 0.1)
    hanging = started("exec sleep 60")
    with pytest.raises(RuntimeError, match="had not exchanged anything"):
        findings._end(hanging)
    assert hanging.poll() is not None
