"""Keys of nodes: by id, ids by key, and what the times of a folder mean."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest

from pyg_batchgnn.data import Clock, DatasetError, FolderKeys, KeyTable, named_apart, read_ids
from pyg_batchgnn.types import Group, RowKind

COUNT = 57
IDS = np.arange(COUNT)
KEYS: dict[str, dict[str, Any]] = {
    "strings": {"id": [f"{(7 * one) % COUNT:04d}" for one in IDS]},
    "large strings": {"id": pa.array([f"k{one}" for one in IDS], pa.large_string())},
    "words": {"id": pa.array([f"k{one}" for one in IDS]).dictionary_encode()},
    "hashes": {"id": pa.array((IDS.astype(np.uint64) + 1) * np.uint64(0x9E3779B97F4A7C15))},
    "uuids": {"id": pa.array([bytes([one] * 16) for one in IDS], pa.binary(16))},
    "days": {"id": pa.array(IDS.astype("datetime64[D]"))},
    "composite": {"bank": pa.array(IDS % 3, pa.int16()), "number": [f"{one // 3:02d}" for one in IDS]},
}


@pytest.fixture(params=KEYS)
def table(request: pytest.FixtureRequest, tmp_path: Path) -> KeyTable:
    (tmp_path / "keys").mkdir()
    keys = pa.table(KEYS[request.param])
    pq.write_table(keys, tmp_path / "keys" / "card.parquet", row_group_size=10)
    found = FolderKeys.of(str(tmp_path))
    assert found is not None
    return found.table("card", COUNT)


def test_keys_by_id_and_ids_by_key(table: KeyTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyg_batchgnn.data.keys._KEPT", 100)  # bytes: a row group or two
    ids = np.random.default_rng(0).integers(COUNT, size=200)
    every = pq.read_table(tmp_path / "keys" / "card.parquet")
    taken = table.take(ids)
    assert taken.to_pylist() == every.take(pa.array(ids)).to_pylist()
    assert table.take(ids[:0]).num_rows == 0 and table.take(ids[:0]).schema == taken.schema
    more = taken.append_column("more", pa.array(np.zeros(200)))
    pq.write_table(more, tmp_path / "wanted.parquet")
    assert read_ids(tmp_path / "wanted.parquet", [table], [""])[0].tolist() == ids.tolist()
    both = taken.rename_columns([f"a_{name}" for name in taken.column_names])
    other = table.take(ids[::-1].copy())
    for name in other.column_names:
        both = both.append_column(f"b_{name}", other.column(name))
    pq.write_table(both, tmp_path / "pairs.parquet")
    found = read_ids(tmp_path / "pairs.parquet", [table, table], ["a_", "b_"])
    assert [one.tolist() for one in found] == [ids.tolist(), ids[::-1].tolist()]


@pytest.mark.parametrize("name", ["strings", "hashes", "days", "composite"])
def test_keys_in_csv_keep_their_types(tmp_path: Path, name: str) -> None:
    """As strings they keep their zeros."""
    (tmp_path / "keys").mkdir()
    keys = pa.table(KEYS[name])
    pq.write_table(keys, tmp_path / "keys" / "a.parquet", row_group_size=10)
    table = KeyTable("a", COUNT, tmp_path / "keys" / "a.parquet")
    pc.write_csv(keys.take(pa.array(IDS[::-3])), tmp_path / "some.csv")
    assert read_ids(tmp_path / "some.csv", [table], [""])[0].tolist() == IDS[::-3].tolist()


@pytest.mark.parametrize(("kind", "most"), [(pa.float16(), 2**11), (pa.float32(), 2**24)])
def test_floats_that_are_several_keys_are_refused(tmp_path: Path, kind: Any, most: int) -> None:
    table, file = KeyTable("user", most + 2, None), tmp_path / "some.parquet"
    pq.write_table(pa.table({"id": pa.array([3.0, float(most - 1)], kind)}), file)
    assert read_ids(file, [table], [""])[0].tolist() == [3, most - 1]
    pq.write_table(pa.table({"id": pa.array([3.0, float(most)], kind)}), file)
    with pytest.raises(DatasetError, match=f"id, row 1: is {float(most)} as .* store the column as int64"):
        read_ids(file, [table], [""])


def test_positions_are_keys_where_there_are_no_others(tmp_path: Path) -> None:
    (tmp_path / "keys").mkdir()
    found = FolderKeys.of(f"{tmp_path}:hold_out=0.1")
    assert found is not None and FolderKeys.of(None) is None and FolderKeys.of("cora") is None
    table = found.table("a", 5)
    assert table.take(np.array([3, 1])).to_pydict() == {"id": [3, 1]}
    (tmp_path / "some.csv").write_text("id\n4\n0\n")
    assert read_ids(tmp_path / "some.csv", [table], [""])[0].tolist() == [4, 0]
    (tmp_path / "some.csv").write_text("id\n4\n5\n-1\n")
    with pytest.raises(DatasetError, match=r"row 1: no a of the data set has the key id=5 \(2 such rows\)"):
        read_ids(tmp_path / "some.csv", [table], [""])


def test_names_that_two_tables_have_are_told_apart() -> None:
    tables = [KeyTable("a", 5, None), KeyTable("b", 5, None)]
    assert named_apart(tables, ["source_", "target_"]) == [{"id": "source_id"}, {"id": "target_id"}]
    assert named_apart(tables[:1], ["source_"]) == [{"id": "id"}]


@pytest.mark.parametrize(
    ("file", "content", "says"),
    [
        ("absent.csv", None, "absent.csv: no such file; give a .parquet or .csv file of keys"),
        ("a.csv", "key\n1\n", r"a\.csv: bank: no such column among \['key'\]; name the key"),
        ("a.csv", "bank,number\n1,01\nx,01\n", r"a\.csv: bank as int16, number as string: cannot be read"),
        ("a.csv", "bank,number,bank\n1,01,1\n", r"a\.csv: bank: 2 columns of this name; rename all but one"),
        ("a.csv", "bank,number\n1,01\n2,77\n", r"row 1: no card of the data .* key bank=2, number='77';"),
        ("a.parquet", "none", r"a\.parquet: bank as int16, number as string: cannot be read"),
    ],
)
def test_files_that_name_no_nodes(tmp_path: Path, file: str, content: str | None, says: str) -> None:
    pq.write_table(pa.table(KEYS["composite"]), tmp_path / "card.parquet")
    table = KeyTable("card", COUNT, tmp_path / "card.parquet")
    if content is not None:
        (tmp_path / file).write_text(content)
    with pytest.raises(DatasetError, match=says):
        read_ids(tmp_path / file, [table], [""])


def test_damage_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = tmp_path / "keys"
    keys.mkdir()
    pq.write_table(pa.table(KEYS["strings"]), keys / "a.parquet")
    (keys / "b.parquet").write_bytes(b"no")
    (keys / "a.classes.json").write_text(json.dumps({"column": "y"}))
    (keys / "times.json").write_text(json.dumps({"unit": "h"}))
    found = FolderKeys.of(str(tmp_path))
    a, b = (Group(RowKind.NODE, name) for name in "ab")
    assert found is not None and found.classes(b) is None
    for broken, says in (
        (lambda: found.table("a", 3), r"a\.parquet: keys: has 57 rows for 3 nodes"),
        (lambda: found.table("b", 3), r"b\.parquet: keys: not readable as Parquet"),
        (lambda: found.classes(a), r"a\.classes\.json: values: is None, expected a list"),
        (lambda: found.clock, r"times\.json: unit: is 'h', expected one of s, ms, us, ns, D"),
    ):
        with pytest.raises(DatasetError, match=says):
            broken()
    monkeypatch.setitem(__import__("sys").modules, "pyarrow.parquet", None)
    with pytest.raises(DatasetError, match="predictions with keys are Parquet files and need pyarrow"):
        FolderKeys.of(str(tmp_path))


@pytest.mark.parametrize(
    ("unit", "text", "time"),
    [
        (None, "-17", -17),
        ("s", "17", 17),
        ("s", "1970-01-02", 86400),
        ("s", "1970-01-02T00:00:01+01:00", 82801),
        ("ms", "1970-01-01 00:00:01.5", 1500),
        ("ns", "2024-03-01", 1709251200 * 10**9),
        ("D", "2024-03-01", 19783),
        ("D", "1969-12-31T23:00", -1),
    ],
)
def test_moments(unit: str | None, text: str, time: int) -> None:
    assert Clock(unit, "UTC").moment(text) == time


@pytest.mark.parametrize(("unit", "text"), [(None, "2024-03-01"), ("s", "yesterday"), ("s", "1.5")])
def test_texts_that_are_no_moments(unit: str | None, text: str) -> None:
    with pytest.raises(DatasetError, match=text):
        Clock(unit).moment(text)


@pytest.mark.parametrize(
    ("unit", "zone", "kind"),
    [
        (None, None, pa.int64()),
        ("D", None, pa.date32()),
        ("ms", "Europe/Berlin", pa.timestamp("ms", "Europe/Berlin")),
        ("ns", None, pa.timestamp("ns")),
    ],
)
def test_times_as_columns(unit: str | None, zone: str | None, kind: Any) -> None:
    times = np.array([0, -3, 19783])
    found = Clock(unit, zone).column(times)
    assert found.type == kind
    whole = found.cast(pa.int32()) if unit == "D" else found
    assert whole.cast(pa.int64()).to_pylist() == times.tolist()
