"""Reading gzip CSV tables."""

import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyg_batchgnn.data import DatasetError, DatasetNotFoundError
from pyg_batchgnn.data.ogb.csv_gz import csv_gz_pieces, read_csv_gz
from tests.support.tiers import examples
from tests.support.tiny_datasets import write_csv


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("csv") / "t.csv.gz"


@examples(40)
@given(
    st.lists(st.tuples(st.integers(-(2**62), 2**62), st.integers(0, 9)), min_size=1, max_size=30),
    st.integers(1, 64),
)
def test_pieces_of_any_size_give_the_same_rows(table: Path, rows: list[tuple[int, int]], size: int) -> None:
    write_csv(table, rows)
    pieces = list(csv_gz_pieces(table, "a", np.int64, 2, piece_bytes=size))
    assert np.concatenate(pieces).tolist() == [list(row) for row in rows]


def test_floats_are_read_to_the_last_bit(tmp_path: Path) -> None:
    values = np.random.default_rng(0).standard_normal((50, 7)).astype(np.float32)
    write_csv(tmp_path / "x.csv.gz", values.tolist())
    assert np.array_equal(read_csv_gz(tmp_path / "x.csv.gz", "x", np.float32), values)


@pytest.mark.parametrize(
    "text", [b"1,2\r\n3,4\r\n", b"1,2\n3,4", b"1,2\n3,4\n"], ids=["crlf", "no last newline", "plain"]
)
def test_line_ends(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(text))
    assert read_csv_gz(tmp_path / "t.csv.gz", "a", np.int64).tolist() == [[1, 2], [3, 4]]


def test_nan_and_an_empty_table(tmp_path: Path) -> None:
    write_csv(tmp_path / "t.csv.gz", ["1", "nan"])
    values = read_csv_gz(tmp_path / "t.csv.gz", "a", np.float64, 1)
    assert values[0, 0] == 1 and np.isnan(values[1, 0])
    write_csv(tmp_path / "t.csv.gz", [])
    assert read_csv_gz(tmp_path / "t.csv.gz", "a", np.int64, 1).shape == (0, 1)


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        (b"1,2\n3\n", "row 1 has 1 fields, expected 2"),
        (b"1,2\n3,4,5\n", "row 1 has 3 fields, expected 2"),
        (b"1,2\n3,four\n", "row 1 holds 'four', not int64"),
        (b"1,2\n3,\n", "row 1 holds '', not int64"),
        (b"1,2\n3,4.5\n", "row 1 holds '4.5', not int64"),
        (b"src,dst\n3,4\n", "row 0 holds 'src', not int64"),
        (b"1,2\n3,nan\n", "row 1 holds 'nan', not int64"),
    ],
)
@pytest.mark.parametrize("piece_bytes", [1 << 20, 4])
def test_bad_rows_are_named(tmp_path: Path, text: bytes, fact: str, piece_bytes: int) -> None:
    path = tmp_path / "edge.csv.gz"
    path.write_bytes(gzip.compress(text))
    with pytest.raises(DatasetError) as error:
        list(csv_gz_pieces(path, "edge_index", np.int64, 2, piece_bytes))
    assert str(error.value).startswith(f"{path}: edge_index: ") and fact in str(error.value)


@pytest.mark.parametrize("kind", ["truncated", "altered", "foreign"])
def test_damaged_gzip_is_named(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "edge.csv.gz"
    content = gzip.compress(b"1,2\n" * 1000)
    middle = len(content) // 2
    path.write_bytes(
        {
            "truncated": content[:-9],
            "altered": content[:middle] + bytes([content[middle] ^ 255]) + content[middle + 1 :],
            "foreign": b"1,2\n",
        }[kind]
    )
    with pytest.raises(DatasetError) as error:
        read_csv_gz(path, "edge_index", np.int64)
    assert str(error.value).startswith(f"{path}: edge_index: truncated or damaged gzip")


def test_absent(tmp_path: Path) -> None:
    with pytest.raises(DatasetNotFoundError, match=r"t\.csv\.gz: y: the file does not exist"):
        read_csv_gz(tmp_path / "t.csv.gz", "y", np.int64)
