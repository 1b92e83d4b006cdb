"""The places of mapped tables in their files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from pyg_batchgnn.disk import DiskTable, are_mapped, is_mapped, is_written, mapped_tables


@pytest.fixture
def mapped(tmp_path: Path) -> Tensor:
    np.save(tmp_path / "x.npy", np.arange(60_000, dtype=np.float32).reshape(20_000, 3))
    return torch.from_numpy(np.load(tmp_path / "x.npy", mmap_mode="c"))


def test_mapped_tables_are_found(mapped: Tensor, tmp_path: Path) -> None:
    path = str(tmp_path / "x.npy")
    assert DiskTable.of(mapped) == DiskTable(path, 128, 20_000, (3,), torch.float32)
    assert DiskTable.of(mapped[7:]) == DiskTable(path, 128 + 84, 19_993, (3,), torch.float32)
    assert DiskTable.of(mapped.view(torch.int32)[:4, None]) == DiskTable(path, 128, 4, (1, 3), torch.int32)
    table = DiskTable.of(mapped)
    assert table is not None and (table.row_bytes, table.nbytes) == (12, 240_000)
    assert torch.equal(table.map(), mapped) and DiskTable.from_json(table.to_json()) == table
    mapped[11_000] = 5.0  # a page of the process's own, in the middle
    assert is_written(mapped) and DiskTable.of(mapped) is None  # the file has other values
    assert not is_written(mapped[:10_000]) and DiskTable.of(mapped[12_000:]) is not None


@pytest.mark.parametrize("name", ["a\nb", "a\rb", "a\u2028b", "a\\012b", "a (deleted)", "a\udcffb"])
def test_paths_of_any_characters(name: str, tmp_path: Path) -> None:
    np.save(tmp_path / f"{name}.npy", np.zeros((2000, 3)))
    found = DiskTable.of(torch.from_numpy(np.load(tmp_path / f"{name}.npy", mmap_mode="c")))
    assert found is not None and found.path == str(tmp_path / f"{name}.npy")


def test_a_table_whose_pages_cannot_be_told_is_not_read_from_its_file(
    mapped: Tensor, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(mapped_tables, "_PAGES", tmp_path / "missing")
    assert DiskTable.of(mapped) is None and is_mapped(mapped)


def test_other_tables_are_not(mapped: Tensor, tmp_path: Path) -> None:
    assert DiskTable.of(torch.zeros(4, 4)) is None
    assert DiskTable.of(mapped[:, 1:]) is None and DiskTable.of(mapped[:0]) is None
    assert DiskTable.of(mapped[0, 0]) is None
    assert are_mapped([mapped, torch.zeros(3), mapped[:0]]) == [True, False, False]
    assert is_mapped(mapped) and not is_mapped(torch.zeros(1).share_memory_())
    (tmp_path / "x.npy").unlink()
    assert DiskTable.of(mapped) is None
