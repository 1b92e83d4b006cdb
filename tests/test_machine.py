"""The machine at hand: limits of control groups, and levels of vector instructions."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from pyg_batchgnn import machine
from pyg_batchgnn.machine import GroupLimits, read_limits
from tests.support.programs import WIDTHS, run_at_level


def group(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text + "\n")


def test_version_2_takes_the_least_of_all_groups_around(tmp_path: Path) -> None:
    root, own = tmp_path / "cgroup", tmp_path / "own"
    own.write_text("0::/pod/container\n")
    group(root)
    memory = {"memory__max": "1000", "memory__current": "900", "memory__stat": "x 1"}
    group(root / "pod", cpu__max="350000 100000", **memory)
    memory = {"memory__max": "3000", "memory__current": "600", "memory__stat": "anon 200\ninactive_file 400"}
    group(root / "pod" / "container", cpu__max="max 100000", **memory)
    assert read_limits(root, own) == GroupLimits(3.5, 1000, 100)


def test_version_1_has_a_folder_for_each_resource(tmp_path: Path) -> None:
    root, own = tmp_path / "cgroup", tmp_path / "own"
    own.write_text("4:memory:/job\n2:cpu,cpuacct:/job\n1:name=systemd:/x\n")
    group(root)
    group(root / "cpu,cpuacct" / "job", cpu__cfs_quota_us="200000", cpu__cfs_period_us="100000")
    group(root / "memory", memory__limit_in_bytes=str((1 << 63) - 4096), memory__usage_in_bytes="7")
    used = {"memory__usage_in_bytes": "4000", "memory__stat": "total_inactive_file 1500"}
    group(root / "memory" / "job", memory__limit_in_bytes="5000", **used)
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


PROGRAM = """
import torch
from pyg_batchgnn import CscGraph, MacrobatchSampler, SamplingPlan, ops

torch.manual_seed(0)
answers = []
for dtype in (torch.int32, torch.int64):
    for size in (1, 7, 64, 65, 1000, 5000):
        values = torch.randint(-1000, 1000, (size,)).to(dtype)
        assert ops.extent(values) == (int(values.min()), int(values.max()))
        assert ops.is_ascending(values.sort().values)
        for at in {0, size // 2, size - 1}:
            broken = values.sort().values
            broken[at] -= 5000
            assert ops.is_ascending(broken) == (at == 0), (size, at)
nodes = torch.randint(0, 5000, (3000,))
unique, (row,) = ops.unique_nodes([nodes], 5000)
assert torch.equal(unique, nodes.unique()) and torch.equal(unique[row], nodes)
table = torch.randn(5000, 33)
assert torch.equal(ops.gather_rows(table, nodes), table[nodes])
graph = CscGraph.from_edge_index(torch.randint(0, 5000, (2, 60000)), 5000)
for one in MacrobatchSampler(graph, SamplingPlan((10, 5)), seed=1).sample([nodes[:50], nodes[50:99]], 3):
    answers += [one.node, one.indices, one.edge]
print(ops.simd_level(), ops.minibatch_key(torch.cat(answers)))
"""


@pytest.fixture(scope="module")
def answers() -> dict[str, list[int]]:
    return {level: [int(word) for word in run_at_level(level, PROGRAM)] for level in WIDTHS}


@pytest.mark.parametrize("level", WIDTHS)
def test_every_level_gives_the_same(level: str, answers: dict[str, list[int]]) -> None:
    bits, key = answers[level]
    assert bits in WIDTHS[level]
    assert key == answers[""][1]
