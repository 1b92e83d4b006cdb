"""Tables to data folders: as in plain Python, whatever the files and kills; bad rows are named."""

from __future__ import annotations

import gzip
import hashlib
import tempfile
import uuid
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyg_batchgnn.data import DatasetError, read_folder, verify_folder
from pyg_batchgnn.data.files import Journal
from pyg_batchgnn.tables import GraphDescription, convert
from tests.support.table_graphs import TableGraph, table_graphs
from tests.support.tiers import ALL
from tests.tables.conftest import Converted

QUICK = settings(max_examples=30 if ALL else 8, deadline=None)
MIB = 1 << 20
USERS = '[nodes.user]\nfiles = "users.parquet"\nkey = "id"\n'
BOTH_WAYS = '[edges."user,knows,user"]\nfiles = "links.parquet"\nsource = "a"\ntarget = "b"\n'
LINKS = BOTH_WAYS + "reverse = false\n"
AS_CSV, LINKS_CSV = USERS.replace("parquet", "csv"), BOTH_WAYS.replace("parquet", "csv")
#: Users who know users.
LINKED: dict[str, Any] = {
    "nodes": {"user": {"files": "user.parquet", "key": "id"}},
    "edges": {"user,knows,user": {"files": "links.parquet", "source": "a", "target": "b"}},
}


def bytes_of(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def arrays_of(folder: Path) -> dict[str, np.ndarray]:
    return {
        path.relative_to(folder).with_suffix("").as_posix(): np.load(path) for path in folder.rglob("*.npy")
    }


@QUICK
@given(table_graphs())
def test_a_folder_is_what_plain_python_makes(graph: TableGraph) -> None:
    with tempfile.TemporaryDirectory() as work:
        folder = Path(work) / "data"
        convert(graph.write(Path(work) / "tables", "parquet"), folder, threads=1)
        found, expected = arrays_of(folder), graph.expected()
        assert found.keys() == expected.keys()
        for name, array in expected.items():
            assert found[name].dtype == array.dtype and found[name].shape == array.shape, name
            np.testing.assert_allclose(found[name], array, rtol=1e-6, atol=1e-6, err_msg=name)
        dataset = read_folder(folder)
        assert dataset.nodes_of("user").num_nodes == len(graph.order)
        verify_folder(folder)
        keys = pq.read_table(folder / "keys" / "user.parquet")
        wanted = [graph.key(one) for one in graph.order]
        shown = [str(uuid.UUID(bytes=one[0])) for one in wanted] if graph.kind == "uuid" else None
        assert list(zip(*(column.to_pylist() for column in keys.columns), strict=True)) == (
            [(one,) for one in shown] if shown else wanted
        )


@QUICK
@given(table_graphs(["text", "odd text", "whole", "two columns"]))
def test_csv_gives_the_same_as_parquet(graph: TableGraph) -> None:
    with tempfile.TemporaryDirectory() as work:
        found = []
        for form in ("parquet", "csv"):
            convert(graph.write(Path(work) / form, form), Path(work) / f"data-{form}", threads=1)
            files = bytes_of(Path(work) / f"data-{form}")
            found.append({name: one for name, one in files.items() if name.endswith(".npy")})
        assert found[0] == found[1]
        keys = [
            pq.read_table(Path(work) / f"data-{form}" / "keys" / "user.parquet")
            for form in ("parquet", "csv")
        ]
        assert keys[0].to_pydict() == keys[1].to_pydict()


def large(folder: Path, count: int = 30_000, links: int = 400_000) -> GraphDescription:
    draw = np.random.default_rng(0)
    names = [f"{one:016x}" for one in draw.permutation(count)]
    folder.mkdir()
    pq.write_table(
        pa.table({"id": names, "n": draw.random(count)}), folder / "user.parquet", row_group_size=7_000
    )
    for part, at in enumerate((0, links // 3)):
        ends = [
            np.asarray(names)[draw.integers(count, size=links - at - (links // 3) * (part == 0))]
            for _ in range(2)
        ]
        pq.write_table(
            pa.table({"a": ends[0], "b": ends[1]}), folder / f"links.{part}.parquet", row_group_size=50_000
        )
    users = USERS.replace("users", "user") + 'features = { n = "quantile" }\n'
    (folder / "graph.toml").write_text(users + BOTH_WAYS.replace("links", "links.*"))
    return GraphDescription.read(folder)


def test_the_bytes_do_not_depend_on_threads_and_memory(tmp_path: Path) -> None:
    said = large(tmp_path / "tables")
    convert(said, tmp_path / "one", threads=1)
    convert(said, tmp_path / "two", threads=2, memory_limit=1024 * MIB)
    assert bytes_of(tmp_path / "one") == bytes_of(tmp_path / "two")
    names = pq.read_table(tmp_path / "tables" / "user.parquet")["id"].to_numpy()
    ends = pa.concat_tables([pq.read_table(tmp_path / "tables" / f"links.{part}.parquet") for part in (0, 1)])
    index = np.load(tmp_path / "one" / "edge_index" / "user__knows__user.npy")
    assert (names[index[0]] == ends["a"].to_numpy()).all() and (names[index[1]] == ends["b"].to_numpy()).all()


@pytest.mark.parametrize(
    "kind", [pa.int32(), pa.uint64(), pa.float64(), pa.string(), pa.dictionary(pa.int8(), pa.string())]
)
def test_keys_of_other_types_are_compared_by_value(tmp_path: Path, kind: pa.DataType) -> None:
    pq.write_table(pa.table({"id": pa.array([7, 70, 700], pa.int64())}), tmp_path / "user.parquet")
    ends = [
        pa.array([700, 7, 70]).cast(kind.value_type if hasattr(kind, "value_type") else kind).cast(kind)
    ] * 2
    pq.write_table(pa.table({"a": ends[0], "b": ends[1]}), tmp_path / "links.parquet")
    convert(GraphDescription.from_dict(LINKED, tmp_path), tmp_path / "data")
    assert np.load(tmp_path / "data/edge_index/user__knows__user.npy").tolist() == [[2, 0, 1]] * 2


@pytest.mark.parametrize(
    ("kind", "most"), [(pa.float16(), 2**11), (pa.float32(), 2**24), (pa.float64(), 2**53)]
)
def test_floats_name_a_node_while_they_are_one_number(
    converted: Converted, kind: pa.DataType, most: int
) -> None:
    """From `most` on, a float stands for several whole numbers. Files beside it keep theirs."""
    users = {"id": [0, 1, most, most + 1]}
    one = {"a": [most + 1, most], "b": [0, 0]}
    two = {"a": pa.array([0.0, 1.0], kind), "b": [1, 1]}
    links = LINKS.replace("links", "links*")
    found = converted(USERS + links, users=users, links1=one, links2=two)
    assert found["edge_index/user__knows__user"].tolist() == [[3, 2, 0, 1], [0, 0, 1, 1]]
    two["a"] = pa.array([0.0, float(most)], kind)
    for said in (USERS, '[nodes.user]\nfiles = "users.parquet"\n', ""):  # keys, positions, no table
        with pytest.raises(DatasetError, match=f"row 1: a: {float(most)} is the key of no"):
            converted(said + links, "other", users=users, links1={"a": [1], "b": [0]}, links2=two)


def test_columns_that_differ_by_case_are_told_apart(converted: Converted) -> None:
    users = {"id": ["u", "v"], "N": [1.0, 2.0], "n": [2.0, 1.0]}
    found = converted(USERS + "features = { n = 'number', N = 'number' }", users=users)
    assert found["nodes/user/x"].tolist() == [[1, -1], [-1, 1]]


def test_decimals_name_the_nodes_of_whole_numbers(converted: Converted) -> None:
    price = pa.array([1, 2], pa.int64()).cast(pa.decimal128(21, 2))
    links = {"a": price, "b": pa.array([2, 1])}
    assert converted(LINKS, links=links)["edge_index/user__knows__user"].tolist() == [[0, 1], [1, 0]]


def test_files_elsewhere_are_copied_once(tmp_path: Path) -> None:
    """Files of other file systems are read through fsspec; those in memory stand for s3:// here."""
    fsspec = pytest.importorskip("fsspec")
    files = fsspec.filesystem("memory")
    files.makedirs("/shop", exist_ok=True)
    for part, keys in ((9, ["a", "b"]), (10, ["c"])):
        with files.open(f"/shop/user.{part}.parquet", "wb") as stream:
            pq.write_table(pa.table({"id": keys}), stream)
    with files.open("/shop/links.csv", "wb") as stream:
        stream.write(b"a,b\nc,a\nb,c\n")
    said = {
        "nodes": {"user": {**LINKED["nodes"]["user"], "files": "memory://shop/user.*.parquet"}},
        "edges": {
            "user,knows,user": {**LINKED["edges"]["user,knows,user"], "files": "memory://shop/links.csv"}
        },
    }
    convert(GraphDescription.from_dict(said, tmp_path), tmp_path / "data")
    assert np.load(tmp_path / "data/edge_index/user__knows__user.npy").tolist() == [[2, 1], [0, 2]]
    local = {**LINKED, "nodes": {"user": {"files": f"file://{tmp_path}/data/keys/user.parquet", "key": "id"}}}
    local["edges"] = said["edges"]
    convert(GraphDescription.from_dict(local, tmp_path), tmp_path / "again")
    assert (
        bytes_of(tmp_path / "data")["keys/user.parquet"] == bytes_of(tmp_path / "again")["keys/user.parquet"]
    )


def test_compressed_csv_and_empty_tables(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "users.csv.gz", "wt") as stream:
        stream.write("id;n\na;1\nb;2\n")
    (tmp_path / "links.csv").write_text("a,b\n")
    users = AS_CSV.replace("csv", "csv.gz") + 'delimiter = ";"\nfeatures = { n = "quantile" }\n'
    links = LINKS_CSV.replace("knows,user", "buys,item") + 'features = { b = "category" }\n'
    (tmp_path / "graph.toml").write_text(f"{users}split = {{ fractions = [1, 0, 0] }}\n{links}")
    made = convert(GraphDescription.read(tmp_path), tmp_path / "data")
    assert made.nodes == {"user": 2, "item": 0} and made.edges == {("user", "buys", "item"): 0}
    assert read_folder(tmp_path / "data").nodes_of("user").tables["x"].tolist() == [
        [pytest.approx(-(3**0.5))],
        [pytest.approx(3**0.5)],
    ]
    (tmp_path / "latin.csv").write_bytes("name,größe\n".encode("latin-1"))
    (tmp_path / "graph.toml").write_text(links.replace("links.csv", "latin.csv"))
    with pytest.raises(DatasetError, match=r"latin.csv: not readable as CSV .* give files in UTF-8"):
        convert(GraphDescription.read(tmp_path), tmp_path / "other")


SAID = AS_CSV + 'features = { n = "number" }\n' + LINKS_CSV + 'features = { w = "number" }\n'


def write_tables(folder: Path) -> GraphDescription:
    folder.mkdir()
    (folder / "users.csv").write_text("id,n\n" + "".join(f"u{at},{at % 7}\n" for at in range(300)))
    rows = "".join(f"u{at * 7 % 300},u{at * 11 % 300},{at}\n" for at in range(2000))
    (folder / "links.csv").write_text("a,b,w\n" + rows)
    (folder / "graph.toml").write_text(SAID)
    return GraphDescription.read(folder)


class _StoppedError(Exception):
    """Ends a conversion like a signal."""


def stopped(said: GraphDescription, folder: Path, step: str) -> None:
    def progress(name: str) -> None:
        if name == step:
            raise _StoppedError

    with pytest.raises(_StoppedError):
        convert(said, folder, progress=progress)


def test_changed_tables_and_damaged_steps_are_made_again(tmp_path: Path) -> None:
    said = write_tables(tmp_path / "tables")
    convert(said, tmp_path / "whole")
    stopped(said, tmp_path / "data", "reverse user,knows,user")
    file = tmp_path / ".data.converting/edge_index/user__knows__user.npy"
    file.write_bytes(file.read_bytes()[:-4] + b"\1\0\0\0")
    convert(said, tmp_path / "data")
    assert bytes_of(tmp_path / "data") == bytes_of(tmp_path / "whole")
    stopped(said, tmp_path / "other", "finish")
    users = tmp_path / "tables" / "users.csv"
    users.write_text(users.read_text().replace("u5,5", "u5,50"))
    convert(said, tmp_path / "new")
    convert(said, tmp_path / "other")
    assert bytes_of(tmp_path / "other") == bytes_of(tmp_path / "new") != bytes_of(tmp_path / "whole")


def test_two_processes_do_not_make_one_folder(tmp_path: Path) -> None:
    said = write_tables(tmp_path / "tables")
    journal = Journal(tmp_path / "data", {})
    with pytest.raises(DatasetError, match="another process is making it"):
        convert(said, tmp_path / "data")
    journal.close()
    convert(said, tmp_path / "data")
    with pytest.raises(DatasetError, match="exists already"):
        convert(said, tmp_path / "data")


GOOD = {"id": ["u", "v", "w"]}


def features(encoder: str) -> str:
    return f"{USERS}features = {{ n = '{encoder}' }}"


TIMED = USERS + "time = 'n'"
DATES = [date(1969, 1, 1), date(1970, 1, 1), date(9999, 12, 31)]
MAPS = pa.array([[("a", 1)]] * 3, pa.map_(pa.string(), pa.int64()))
DBL_MAX = float(np.finfo(np.float64).max)


@pytest.mark.parametrize(
    ("said", "columns", "message"),
    [
        (USERS, {"id": ["u", "v", None]}, "users.parquet: row group 1, row 2: id: None is a key without"),
        (USERS, {"id": ["u", "v", "w", "v"]}, "group 1, row 3: id: 'v' is the key of an earlier row"),
        (features("number"), {"n": ["1", "2.5", "three"]}, "row group 1, row 2: n: 'three' cannot be read"),
        (features("number"), {"n": [1.0, float("inf"), 3.0]}, "row group 0, row 1: n: inf cannot be read"),
        (features("list"), {"n": [[1.0, 2.0], None, [3.0]]}, r"n: \[3.0\] cannot be read"),
        (TIMED, {"n": ["2024-01-01", None, "2024"]}, "n: '2024' cannot be read"),
        (TIMED, {"n": [1, None, 3]}, "row 1: n: None is a time without a value"),
        (TIMED, {"n": pa.array([1, 2**63, 3], pa.uint64())}, f"row 1: n: {2**63} cannot be read"),
        (TIMED + "\n[options]\ntime_unit = 'ns'", {"n": DATES}, r"row 2: n: .*9999, 12, 31"),
        (USERS + "time = { column = 'n', timezone = 'Mars/Base' }", {}, "timezone is 'Mars/Base'; give"),
        (USERS + "foreign_keys = { f = 'user' }", {"f": [None, "u", "z"]}, "row 2: f: 'z' is the key"),
        (USERS.replace('"id"', '"no"'), {}, "key: there is no column 'no' in .*; it has id"),
        (USERS.replace('"id"', '"f"'), {"f": [1.5] * 3}, "key: f has the type double; keys are texts"),
        (USERS.replace("users.p", "no.p"), {}, "'no.parquet' stands for no file"),
        (USERS, {"ID": [1] * 3}, "users.parquet: column .id.: .* only by case"),
        (USERS, {"File_Row_Number": [1] * 3}, "column .File_Row_Number.: .* that DuckDB takes"),
        (USERS.replace('"id"', '""'), {"": [1] * 3}, "column .*: has no name, .*; rename it"),
        (USERS + "split = 'n'", {"n": ["a", None, "b"]}, "split: n: no row has one of the values train, val"),
        (features("hashed"), {"n": MAPS}, "features.n: has the type map.*; give another column"),
        (features("list"), {"n": [[["a"]]] * 3}, "n: has the type list.*, expected lists of numbers; give"),
        (USERS + "features = { id = 'number' }", {"id": [b"u"]}, "has the type binary, expected numbers"),
        (features("list"), {"n": [[1.0], [2.0], [1e300]]}, r"row 2: n: \[1e.300\] cannot be read"),
        (features("number"), {"n": [1.0, 2.0, DBL_MAX]}, "row 2: n: 1.797.*e.308 cannot be read"),
        (USERS + "label = 'n'", {"n": [1.0, 2.0, 1e300]}, "row 2: n: 1e.300 cannot be read"),
        (
            USERS + "label = { column = 'n', kind = 'class' }",
            {"n": [1.0, 2.0, float("inf")]},
            "n: inf cannot",
        ),
        (
            USERS + "foreign_keys = { f = 'user' }",
            {"f": [7, 8, 9]},
            r"7 is the key of no user \(these are int64",
        ),
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
    (tmp_path / "users.csv").write_text('id,n\n\nu,1\nv\n"w\nw",3\n"w\nw",3\n')
    (tmp_path / "graph.toml").write_text(
        '[nodes.user]\nfiles = "users.csv"\nkey = "id"\non_bad_rows = "set aside"\n'
        'foreign_keys = { n = "number" }\n'
    )
    made = convert(GraphDescription.read(tmp_path), tmp_path / "data")
    assert made.nodes == {"user": 2, "number": 2}
    assert made.bad == {"user": {"wrong number of columns": 1, "is the key of an earlier row too": 1}}
    rows = pq.read_table(tmp_path / "data/bad_rows/user.parquet").to_pydict()
    assert rows["value"] == ["w\nw", "v"] and rows["reason"][1] == "wrong number of columns"
    assert rows["line"] == [8, 4] and rows["row"] == [None, None]  # as messages name them


def test_positions_are_keys_where_a_table_has_none(converted: Converted) -> None:
    users = {"n": [1.0, float("inf"), 3.0]}
    links = {"a": pa.array([2, 1, 3, 0], pa.int32()), "b": ["x", "y", "z", "x"]}
    aside = 'on_bad_rows = "set aside"\n'
    said = '[nodes.user]\nfiles = "users.parquet"\nfeatures = { n = "number" }\n' + aside
    said += '[edges."user,has,thing"]\nfiles = "links.parquet"\nsource = "a"\ntarget = "b"\n' + aside
    found = converted(said, users=users, links=links)
    assert found["edge_index/user__has__thing"].tolist() == [[1, 0], [0, 0]]


KEYS = st.none() | st.sampled_from("abcdefgh")


@QUICK
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


def test_a_damaged_page_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    file = tmp_path / "users.parquet"
    pq.write_table(pa.table({"id": [f"user {at % 7}" for at in range(500)]}), file, use_dictionary=False)
    damaged = bytearray(file.read_bytes())
    damaged[40:80] = bytes(40)
    file.write_bytes(damaged)
    pq.write_table(pa.table({"a": ["user 0"], "b": ["user 1"]}), tmp_path / "links.parquet")
    (tmp_path / "graph.toml").write_text(USERS + LINKS)
    with pytest.raises(DatasetError, match=r"users\.parquet: is damaged") as caught:
        convert(GraphDescription.read(tmp_path / "graph.toml"), tmp_path / "data", threads=1)
    assert "\n" not in str(caught.value)
