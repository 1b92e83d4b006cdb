"""Bad rows: named by file, row group, row and value, or set aside and counted."""

from __future__ import annotations

import tempfile
from datetime import date
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyg_batchgnn.data import DatasetError
from pyg_batchgnn.tables import GraphDescription, convert
from tests.tables.conftest import Converted

USERS = '[nodes.user]\nfiles = "users.parquet"\nkey = "id"\n'
LINKS = '[edges."user,knows,user"]\nfiles = "links.parquet"\nsource = "a"\ntarget = "b"\nreverse = false\n'
GOOD = {"id": ["u", "v", "w"]}


def features(encoder: str) -> str:
    return f"{USERS}features = {{ n = '{encoder}' }}"


TIMED = USERS + "time = 'n'"
DATES = [date(1969, 1, 1), date(1970, 1, 1), date(9999, 12, 31)]
AS_CSV = USERS.replace("parquet", "csv")


@pytest.mark.parametrize(
    ("said", "columns", "message"),
    [
        (USERS, {"id": ["u", "v", None]}, "users.parquet: row group 1, row 2: id: None is a key without"),
        (USERS, {"id": ["u", "v", "w", "v"]}, "group 1, row 3: id: 'v' is the key of an earlier row"),
        (features("number"), {"n": ["1", "2.5", "three"]}, "row group 1, row 2: n: 'three' cannot be read"),
        (features("number"), {"n": [1.0, float("inf"), 3.0]}, "row group 0, row 1: n: inf cannot be read"),
        (features("boolean"), {"n": ["true", "no", "perhaps"]}, "n: 'perhaps' cannot be read"),
        (features("list"), {"n": [[1.0, 2.0], None, [3.0]]}, r"n: \[3.0\] cannot be read"),
        (TIMED, {"n": ["2024-01-01", None, "2024"]}, "n: '2024' cannot be read"),
        (TIMED, {"n": [1, None, 3]}, "row 1: n: None has no value"),
        (TIMED, {"n": pa.array([1, 2**63, 3], pa.uint64())}, f"row 1: n: {2**63} cannot be read"),
        (TIMED + "\n[options]\ntime_unit = 'ns'", {"n": DATES}, r"row 2: n: .*9999, 12, 31"),
        (USERS + "time = { column = 'n', timezone = 'Mars/Base' }", {}, "timezone is 'Mars/Base'; give"),
        (USERS + "foreign_keys = { f = 'user' }", {"f": [None, "u", "z"]}, "row 2: f: 'z' is the key"),
        (USERS.replace('"id"', '"no"'), {}, "key: there is no column 'no' in .*; it has id"),
        (USERS.replace('"id"', '"f"'), {"f": [1.5] * 3}, "key: f has the type double; keys are texts"),
        (USERS + "features = { id = 'number' }", {"id": [b"u"]}, "has the type binary, expected numbers"),
        (USERS.replace("users.p", "no.p"), {}, "'no.parquet' stands for no file"),
    ],
)
def test_a_bad_row_is_named(
    converted: Converted, tmp_path: Path, said: str, columns: dict, message: str
) -> None:
    with pytest.raises(DatasetError, match=message):
        converted(said, users={**GOOD, **columns})
    assert not (tmp_path / "data").exists() and not list(tmp_path.glob(".data*"))


@pytest.mark.parametrize(
    ("said", "tables", "message"),
    [
        (
            USERS + LINKS,
            {"users": {"id": [2**53, 1]}, "links": {"a": [1.0, 2.0**53 + 1], "b": [1, 1]}},
            "row 1: a: 9007199254740992.0 is the key of no user",
        ),
        (
            LINKS,
            {"links": {"a": pa.array([2**63, 1], pa.uint64()), "b": [-1, 1]}},
            "a: keys of the types uint64 and int64 do not fit one type",
        ),
        (
            USERS.replace("users", "users*") + LINKS,
            {
                "users1": {"id": pa.array([1], pa.int64())},
                "users2": {"id": pa.array([2**63], pa.uint64())},
                "links": {"a": [1], "b": [1]},
            },
            "value .*9223372036854775808.*; give all files one type",
        ),
        (
            USERS + LINKS,
            {"users": GOOD, "links": {"a": ["u", "v", "u"], "b": ["u", "x", "y"]}},
            r"links.parquet: row group 0, row 1: b: 'x' is the key of no user \(2 rows\)",
        ),
        (
            USERS + LINKS,
            {"users": GOOD, "links": {"a": ["u", None], "b": ["u", "v"]}},
            "a: None is a key without",
        ),
        (
            AS_CSV + "features = { n = 'number' }",
            {"users": 'id,n\nu,1\n"two\nlines",2\nv,x\n'},
            r"users.csv: line 5: n: 'x' cannot be read",
        ),
        (
            AS_CSV + "features = { n = 'number' }\ndelimiter = ';'",
            {"users": 'n;id\n\n1;"u,\n"\n2;"two\nlines"\nx;v\n'},
            r"users.csv: line 7: n: 'x' cannot be read",
        ),
        (AS_CSV, {"users": "id,n\nu,1\nv,2,3\n"}, "users.csv: .*not readable as CSV"),
        (AS_CSV, {"users": "id,id\nu,1\n"}, "starts with the names of its columns"),
        (
            USERS.replace('key = "id"', "") + LINKS,
            {"users": GOOD, "links": {"a": ["u"], "b": ["v"]}},
            "source: a has the type string, but user has no key, so its rows are named by position",
        ),
    ],
)
def test_a_bad_row_of_tables_is_named(converted: Converted, said: str, tables: dict, message: str) -> None:
    with pytest.raises(DatasetError, match=message):
        converted(said, **tables)


def test_bad_rows_are_set_aside(converted: Converted, tmp_path: Path) -> None:
    aside = 'on_bad_rows = "set aside"\n'
    users = {"id": ["u", None, "v", "u", "w", "x"], "n": [1.0, 2.0, float("inf"), 4.0, 5.0, 6.0]}
    links = {"a": ["w", "v", "x", "u", "w"], "b": ["u", "u", None, "x", "w"]}
    found = converted(
        USERS + aside + "features = { n = 'number' }\n" + LINKS + aside, users=users, links=links
    )
    # The users are u, w and x: v has a value that cannot be read.
    assert pq.read_table(tmp_path / "data/keys/user.parquet")["id"].to_pylist() == ["u", "w", "x"]
    assert found["edge_index/user__knows__user"].tolist() == [[1, 0, 1], [0, 2, 1]]
    assert found["nodes/user/x"][:, 0] == pytest.approx([-1.3887, 0.4629, 0.9258], abs=1e-4)
    rows = pq.read_table(tmp_path / "data/bad_rows/user.parquet").to_pydict()
    assert rows["row"] == [1, 2, 3] and rows["row_group"] == [0, 1, 1]
    assert rows["value"] == [None, "inf", "u"]
    assert rows["reason"] == [
        "is a key without a value",
        "cannot be read",
        "is the key of an earlier row too",
    ]
    rows = pq.read_table(tmp_path / "data/bad_rows/user__knows__user.parquet").to_pydict()
    assert rows["value"] == ["v", None] and rows["column"] == ["a", "b"]


def test_torn_lines_of_csv_are_set_aside(tmp_path: Path) -> None:
    (tmp_path / "users.csv").write_text("id,n\nu,1\nv\nw,3\n")
    (tmp_path / "graph.toml").write_text(
        '[nodes.user]\nfiles = "users.csv"\nkey = "id"\non_bad_rows = "set aside"\n'
        'foreign_keys = { n = "number" }\n'
    )
    made = convert(GraphDescription.read(tmp_path), tmp_path / "data")
    assert made.nodes == {"user": 2, "number": 2}
    assert made.bad == {"user": {"wrong number of columns": 1}}
    rows = pq.read_table(tmp_path / "data/bad_rows/user.parquet").to_pylist()
    assert rows[0]["value"] == "v" and rows[0]["reason"] == "wrong number of columns"


def test_positions_are_keys_where_a_table_has_none(converted: Converted) -> None:
    users = {"n": [1.0, float("inf"), 3.0]}
    links = {"a": pa.array([2, 1, 3, 0], pa.int32()), "b": ["x", "y", "z", "x"]}
    aside = 'on_bad_rows = "set aside"\n'
    said = '[nodes.user]\nfiles = "users.parquet"\nfeatures = { n = "number" }\n' + aside
    said += '[edges."user,has,thing"]\nfiles = "links.parquet"\nsource = "a"\ntarget = "b"\n' + aside
    found = converted(said, users=users, links=links)
    assert found["edge_index/user__has__thing"].tolist() == [[1, 0], [0, 0]]


KEYS = st.none() | st.sampled_from("abcdefgh")


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.tuples(KEYS, KEYS, st.sampled_from(["1", "x", None])), max_size=12),
    st.lists(st.tuples(KEYS, KEYS), max_size=12),
)
def test_what_is_left_is_what_plain_python_leaves(
    users: list[tuple[str | None, str | None, str | None]], links: list[tuple[str | None, str | None]]
) -> None:
    aside = 'on_bad_rows = "set aside"\n'
    said = USERS + aside + "features = { n = 'number' }\nforeign_keys = { f = 'user' }\n" + LINKS + aside
    ids: dict[str, int] = {}
    friends, bad = list[str | None](), 0
    for key, friend, number in users:
        if key is None or key in ids or number == "x":
            bad += 1
            continue
        ids[key] = len(ids)
        friends.append(friend)
    edges = [(ids[a], ids[b]) for a, b in links if a in ids and b in ids]
    knows = [(at, ids[one]) for at, one in enumerate(friends) if one in ids]
    with tempfile.TemporaryDirectory() as work:
        folder = Path(work)
        text = pa.string()
        columns = zip(*users, strict=True) if users else ((), (), ())
        table = {name: pa.array(list(one), text) for name, one in zip("ifn", columns, strict=True)}
        pq.write_table(
            pa.table({"id": table["i"], "f": table["f"], "n": table["n"]}), folder / "users.parquet"
        )
        ends = zip(*links, strict=True) if links else ((), ())
        pq.write_table(
            pa.table({name: pa.array(list(one), text) for name, one in zip("ab", ends, strict=True)}),
            folder / "links.parquet",
        )
        (folder / "graph.toml").write_text(said)
        made = convert(GraphDescription.read(folder), folder / "data", threads=1)
        assert made.nodes == {"user": len(ids)}
        assert sum(made.bad.get("user", {}).values()) == bad
        assert sum(made.bad.get("user,knows,user", {}).values()) == len(links) - len(edges)
        found = np.load(folder / "data/edge_index/user__knows__user.npy")
        assert found.T.tolist() == [list(pair) for pair in edges]
        assert np.load(folder / "data/edge_index/user__f__user.npy").T.tolist() == [
            list(one) for one in knows
        ]
        assert pq.read_table(folder / "data/keys/user.parquet")["id"].to_pylist() == list(ids)
