"""Parquet edge files."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from pyg_batchgnn.data import DatasetError, read_folder

SRC, DST = np.array([0, 3, 2, 1], np.int32), np.array([1, 1, 0, 2], np.int32)


def write(path: Path, **columns: object) -> Path:
    pq.write_table(pa.table(columns), path)
    return path


def test_files_are_read_in_order(tmp_path: Path) -> None:
    write(tmp_path / "edges-1.parquet", weight=[0.5, 0.5], src=SRC[2:], dst=DST[2:])
    write(tmp_path / "edges-0.parquet", src=SRC[:2], dst=DST[:2])
    dataset = read_folder(tmp_path)
    assert dataset.edge_index.dtype == torch.int32
    assert np.array_equal(dataset.edge_index.numpy(), np.stack([SRC, DST]))
    assert dataset.num_nodes == 4


def test_wide_ids_stay_wide(tmp_path: Path) -> None:
    write(tmp_path / "edges.parquet", src=SRC.astype(np.int64), dst=DST)
    assert read_folder(tmp_path).edge_index.dtype == torch.int64


@pytest.mark.parametrize(
    ("columns", "array", "fact"),
    [
        ({"src": SRC}, "dst", "no such column among ['src']"),
        ({"src": SRC, "dst": DST * 0.5}, "dst", "type is double"),
        ({"src": pa.array([0, None, 2, 1]), "dst": DST}, "src", "1 values are missing"),
        ({"src": SRC - 1, "dst": DST}, "edge_index", "node id -1"),
    ],
)
def test_bad_columns_are_named(tmp_path: Path, columns: dict[str, object], array: str, fact: str) -> None:
    path = write(tmp_path / "edges.parquet", **columns)
    with pytest.raises(DatasetError) as error:
        read_folder(tmp_path)
    assert str(error.value).startswith(f"{path}: {array}: ") and fact in str(error.value)


def test_truncated(tmp_path: Path) -> None:
    path = write(tmp_path / "edges.parquet", src=SRC, dst=DST)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DatasetError) as error:
        read_folder(tmp_path)
    assert str(error.value).startswith(f"{path}: src, dst: not readable as Parquet")


def test_without_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "edges.parquet", src=SRC, dst=DST)
    monkeypatch.setitem(__import__("sys").modules, "pyarrow.parquet", None)
    with pytest.raises(DatasetError, match="pip install pyarrow"):
        read_folder(tmp_path)
