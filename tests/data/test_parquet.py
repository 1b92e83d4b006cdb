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


@pytest.mark.parametrize(
    "names", [("edges-0", "edges-1"), ("edges.2", "edges.10"), ("edges", "edges.0"), ("edges9b", "edges10a")]
)
def test_files_are_read_in_the_order_of_their_numbers(tmp_path: Path, names: tuple[str, str]) -> None:
    write(tmp_path / f"{names[1]}.parquet", src=SRC[2:], dst=DST[2:])
    write(tmp_path / f"{names[0]}.parquet", src=SRC[:2], dst=DST[:2])
    dataset = read_folder(tmp_path)
    assert dataset.edge_index.dtype == torch.int32
    assert np.array_equal(dataset.edge_index.numpy(), np.stack([SRC, DST]))
    assert dataset.num_nodes == 4


def test_columns_that_are_not_read_are_named(tmp_path: Path) -> None:
    path = write(tmp_path / "edges.parquet", weight=[0.5] * 4, src=SRC, dst=DST, time=SRC)
    with pytest.warns(UserWarning, match=rf"{path}: the columns 'weight', 'time' are not read\. Put each"):
        read_folder(tmp_path)


def test_a_column_that_is_there_twice(tmp_path: Path) -> None:
    table = pa.Table.from_arrays([pa.array(SRC), pa.array(DST), pa.array(SRC)], ["src", "dst", "src"])
    pq.write_table(table, tmp_path / "edges.parquet")
    with pytest.raises(DatasetError, match=r"edges.parquet: src: 2 columns of this name among"):
        read_folder(tmp_path)


def test_edges_in_two_forms(tmp_path: Path) -> None:
    write(tmp_path / "edges.parquet", src=SRC, dst=DST)
    np.save(tmp_path / "src.npy", SRC)
    with pytest.warns(UserWarning, match="src.npy: is not read"):
        read_folder(tmp_path)
    np.save(tmp_path / "dst.npy", DST)
    with pytest.raises(DatasetError, match=r"edges.parquet: edge_index: src.npy is there too; remove one"):
        read_folder(tmp_path)
    np.save(tmp_path / "edge_index.npy", np.stack([SRC, DST]))
    with pytest.raises(DatasetError, match=r"src.npy: edge_index: edge_index.npy is there too; remove one"):
        read_folder(tmp_path)


def test_a_table_of_values_is_no_second_form(tmp_path: Path) -> None:
    np.save(tmp_path / "edge_index.npy", np.stack([SRC, DST]))
    write(tmp_path / "edges_attr.parquet", w=SRC)
    with pytest.warns(UserWarning, match="edges_attr.parquet: is not read"):
        assert read_folder(tmp_path).num_edges == len(SRC)


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
