"""The limits of control groups, read from folders as the kernel makes them."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from pyg_batchgnn import machine
from pyg_batchgnn.machine import GroupLimits, read_limits


def group(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text + "\n")


def test_version_2_takes_the_least_of_all_groups_around(tmp_path: Path) -> None:
    root, own = tmp_path / "cgroup", tmp_path / "own"
    own.write_text("0::/pod/container\n")
    group(root)
    group(
        root / "pod", cpu__max="350000 100000", memory__max="1000", memory__current="900", memory__stat="x 1"
    )
    group(
        root / "pod" / "container",
        cpu__max="max 100000",
        memory__max="3000",
        memory__current="600",
        memory__stat="anon 200\ninactive_file 400",
    )
    assert read_limits(root, own) == GroupLimits(3.5, 1000, 100)


def test_version_1_has_a_folder_for_each_resource(tmp_path: Path) -> None:
    root, own = tmp_path / "cgroup", tmp_path / "own"
    own.write_text("4:memory:/job\n2:cpu,cpuacct:/job\n1:name=systemd:/x\n")
    group(root)
    group(root / "cpu,cpuacct" / "job", cpu__cfs_quota_us="200000", cpu__cfs_period_us="100000")
    group(root / "memory", memory__limit_in_bytes=str((1 << 63) - 4096), memory__usage_in_bytes="7")
    group(
        root / "memory" / "job",
        memory__limit_in_bytes="5000",
        memory__usage_in_bytes="4000",
        memory__stat="total_inactive_file 1500",
    )
    assert read_limits(root, own) == GroupLimits(2.0, 5000, 2500)


def test_in_a_container_the_path_may_be_the_hosts(tmp_path: Path) -> None:
    root, own = tmp_path / "cgroup", tmp_path / "own"
    own.write_text("0::/kubepods/pod7\n")
    group(root, cpu__max="50000 100000", memory__max="max")
    assert read_limits(root, own) == GroupLimits(0.5, None, None)


def test_no_groups_no_limits(tmp_path: Path) -> None:
    assert read_limits(tmp_path / "none", tmp_path / "none either") == GroupLimits()


def test_limits_bound_what_a_process_uses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "read_limits", lambda: GroupLimits(0.5, 1 << 20, 1 << 10))
    assert machine.processors() == 1
    assert machine.memory() == machine.Memory(1 << 20, 1 << 10)
    monkeypatch.setattr(machine, "read_limits", lambda: GroupLimits(1e6, 1 << 60, 1 << 60))
    assert machine.memory().total == psutil.virtual_memory().total
