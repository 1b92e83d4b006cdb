"""Huge pages under the user's tables: which tables, and that nothing else changes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from pyg_batchgnn import ops
from tests.loader import job_huge_pages
from tests.support.loader_cases import EDGES, NODES, make_data, make_loader

LARGE = 17 << 20
ROOT = Path(__file__).parents[2]


def table(rows: int, of_bytes: int = LARGE) -> Tensor:
    return torch.ones(rows, of_bytes // (4 * rows))


def mapped(path: Path) -> Tensor:
    array = np.memmap(path, np.float32, "w+", shape=(NODES, LARGE // (4 * NODES)))
    return torch.from_numpy(array)


@pytest.mark.parametrize("export", ["pyg", "native"])
def test_large_tables_in_memory_are_advised(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, export: str
) -> None:
    asked: list[int] = []
    monkeypatch.setattr(ops, "advise_huge_pages", lambda tensor: asked.append(tensor.data_ptr()))
    data = make_data(
        large=table(NODES),
        of_edges=table(EDGES),
        numpy=table(NODES).numpy(),
        small=table(NODES, 1 << 20),
        file=mapped(tmp_path / "file"),
        strided=table(2 * NODES)[::2],
        whole_graph=table(7),
    )
    make_loader(data, export=export, features="auto" if export == "pyg" else "copy")
    names = {data[name].data_ptr(): name for name in ("large", "of_edges", "small", "file", "strided")}
    names |= {data.numpy.ctypes.data: "numpy", data.whole_graph.data_ptr(): "whole_graph", 0: "none"}
    assert {names[one] for one in asked if one in names} == {"large", "of_edges", "numpy"}


@pytest.mark.skipif(sys.platform != "linux", reason="counts pages in Linux's /proc")
def test_private_memory_moves_and_memory_that_a_fork_shares_is_not_copied() -> None:
    command = [sys.executable, "-m", "tests.loader.job_huge_pages"]
    with subprocess.Popen(command, cwd=ROOT, start_new_session=True) as parent:
        try:
            status = parent.wait(timeout=60)
        finally:
            if parent.poll() is None:
                os.killpg(parent.pid, signal.SIGKILL)
    if status == job_huge_pages.REFUSED:
        pytest.skip("the system gives no huge pages at once")
    assert status == 0
