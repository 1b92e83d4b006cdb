"""Huge pages under the user's tables: which tables, and that nothing else changes."""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from pyg_batchgnn import ops
from tests.support.loader_cases import EDGES, NODES, make_data, make_loader

LARGE = 17 << 20


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


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="counts pages in Linux's /proc")
def test_memory_that_a_fork_shares_is_not_copied() -> None:
    shared = table(NODES)
    child = os.fork()
    if child == 0:
        try:
            before = own_bytes(shared)
            ops.advise_huge_pages(shared)
            os._exit(0 if own_bytes(shared) - before < LARGE // 2 else 1)
        finally:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    ops.advise_huge_pages(shared)
    assert bool((shared == 1).all())


def own_bytes(tensor: Tensor) -> int:
    """Returns the bytes that this process alone holds of the mappings of a tensor.

    Other memory may lie in the same mapping.
    """
    total, inside = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if found := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line):
            first, last = int(found[1], 16), int(found[2], 16)
            inside = first < tensor.data_ptr() + tensor.nbytes and tensor.data_ptr() < last
        elif inside and line.startswith(("Private_Clean:", "Private_Dirty:")):
            total += int(line.split()[1]) * 1024
    return total
