"""Columns as tensors: encoders, labels of all kinds, and splits."""

from __future__ import annotations

import json
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pyg_batchgnn.data import DatasetError, read_folder
from pyg_batchgnn.data.meta import read_meta
from pyg_batchgnn.tables import ColumnFeature, GraphDescription, apply
from pyg_batchgnn.tables.features import encoder_of
from pyg_batchgnn.tables.values import hash_texts, mixed
from tests.tables.conftest import Converted


def encoded(said: ColumnFeature, train: Any, values: Any) -> np.ndarray:
    train, values = pa.chunked_array([pa.array(train)]), pa.chunked_array([pa.array(values)])
    learning = encoder_of("here", said, len(train))
    for at in range(0, len(train), 2):
        learning.see(train.slice(at, 2))
    learned = json.loads(json.dumps(learning.state()))
    encoder = encoder_of("here", said, learned=learned)
    assert len(encoder.names()) == (0 if said.encoder == "ids" else encoder.encode(values).shape[1])
    return encoder.encode(values)


def test_numbers() -> None:
    train = [1.0, 4.0, 4.0, 7.0, 9.0]
    found = encoded(ColumnFeature("number"), train, [2.0, None, 9.0])
    assert found[:, 0] == pytest.approx((np.asarray([2.0, np.mean(train), 9.0]) - 5) / np.std(train))
    assert encoded(ColumnFeature("number"), [1.0, None, 3.0], [None, 3.0]).tolist() == [[0, 1], [1, 0]]
    assert encoded(ColumnFeature("number"), [5, 5, 5], [5, 7]).tolist() == [[0], [2]]
    logs = np.log1p([0, 9, 99])
    found = encoded(ColumnFeature("log"), ["0", "9", "99"], ["-9", "0"])
    assert found[:, 0] == pytest.approx((np.asarray([-np.log(10), 0]) - logs.mean()) / logs.std())


def test_quantiles() -> None:
    found = encoded(ColumnFeature("quantile"), [0.0, 1.0, 2.0, 3.0, 100.0], [-5.0, 0.0, 2.0, 100.0, 1e9])
    assert found[:, 0] == pytest.approx((np.asarray([0, 0, 0.5, 1, 1]) - 0.5) * 12**0.5)
    tied = encoded(ColumnFeature("quantile"), [0.0] * 50 + [1.0], [0.0])
    assert abs(float(tied[0, 0])) < 0.1


def test_booleans_and_categories() -> None:
    words = ["true", "NO", "1", "f"]
    assert encoded(ColumnFeature("boolean"), words, ["y", "false", None]).tolist() == [[1], [0], [0]]
    assert encoded(ColumnFeature("boolean"), [True, None], [None, True]).tolist() == [[0, 1], [1, 0]]
    train = ["b", "a", "b", "c", "c"]
    assert encoded(ColumnFeature("category", limit=2), train, ["b", "a", None, "new", "c"]).tolist() == [
        [1, 0, 0],
        [0, 0, 1],
        [0, 0, 0],
        [0, 0, 1],
        [0, 1, 0],
    ]
    assert encoded(ColumnFeature("ids"), train, ["c", None, "new", "a"]).tolist() == [4, 0, 1, 2]
    assert encoded(ColumnFeature("category"), [3, 1], [1, 2]).tolist() == [[1, 0, 0], [0, 0, 1]]


#: One column, as files of several kinds hold it.
ALIKE = [
    [
        [1, 2, None],
        [1.0, 2.0, None],
        ["1", "2", None],
        ["1.0", "2.0", None],
        [Decimal("1.00"), Decimal(2), None],
    ],
    [[True, False], ["True", "False"], ["TRUE", "FALSE"], ["true", "false"]],
    [[1.5, 2.0], [Decimal("1.50"), Decimal("2.00")], ["1.5", "2"]],
    [pa.array([datetime(2024, 1, day) for day in (1, 2)], pa.timestamp(unit)) for unit in ("s", "us", "ns")],
]


@pytest.mark.parametrize("encoder", ["category", "hashed", "ids"])
@pytest.mark.parametrize("columns", ALIKE)
def test_a_category_is_one_in_files_of_all_kinds(encoder: str, columns: list[Any]) -> None:
    expected = encoded(ColumnFeature(encoder), columns[0], columns[0])
    for train in columns:
        for values in columns:
            assert (encoded(ColumnFeature(encoder), train, values) == expected).all(), (train, values)


def test_what_earlier_releases_learned_is_known() -> None:
    learned = encoder_of("here", ColumnFeature("category"), learned={"categories": ["1", "1.0", "True"]})
    found = learned.encode(pa.array(["1.0", "1", "true", "1.00", "x"]))
    assert found.argmax(1).tolist() == [1, 0, 2, 0, 3]
    hashed = encoder_of("here", ColumnFeature("hashed", buckets=1 << 16), learned={})
    assert hashed.encode(pa.array(["True"])).argmax() == hash_texts(pa.array(["True"]))[0] % (1 << 16)


def test_the_hash_is_the_one_that_is_said() -> None:
    texts = ["", "a", "Zürich", "x" * 100]
    for text, value in zip(texts, hash_texts(pa.array(texts)), strict=True):
        total, power = 0, 1
        for byte in text.encode():
            power = power * 0x9E3779B97F4A7C15 % 2**64
            total = (total + (byte + 1) * power) % 2**64
        for factor, shift in ((0xBF58476D1CE4E5B9, 30), (0x94D049BB133111EB, 27)):
            total = (total ^ (total >> shift)) * factor % 2**64
        assert int(value) == total ^ (total >> 31)
    sliced = hash_texts(pa.array(["other", *texts]).slice(1))
    assert sliced.tolist() == hash_texts(pa.array(texts)).tolist()
    assert mixed(np.arange(3, dtype=np.uint64)).tolist() != [0, 1, 2]
    buckets = encoded(ColumnFeature("hashed", buckets=8), texts, texts)
    assert buckets.argmax(1).tolist() == (hash_texts(pa.array(texts)) % 8).tolist()


def test_calendar() -> None:
    times = [datetime(2024, 2, 29, 6), None]
    found = encoded(ColumnFeature("calendar"), times, times)
    shares = [6 / 24, 3 / 7, 28 / 29, 1 / 12]  # Thursday; February has 29 days
    waves = [wave(2 * np.pi * share) for share in shares for wave in (np.sin, np.cos)]
    assert found[0] == pytest.approx(np.asarray(waves), abs=1e-6)
    assert not found[1].any()
    days = encoded(ColumnFeature("calendar", parts=("day",)), [date(2024, 2, 29)], [date(2024, 2, 29)])
    assert days[0] == pytest.approx(np.asarray(waves[4:6]), abs=1e-6)
    with pytest.raises(DatasetError, match="has whole numbers; give unit"):
        encoded(ColumnFeature("calendar"), [3], [3])


def test_vectors() -> None:
    fixed = pa.array([[1.0, 2.0], None, [3.0, 4.0]], pa.list_(pa.float32(), 2))
    assert encoded(ColumnFeature("list"), fixed, fixed).tolist() == [[1, 2], [0, 0], [3, 4]]
    assert encoded(ColumnFeature("list"), ["[1, 2]"], ["[3, 4]", None]).tolist() == [[3, 4], [0, 0]]


SAID = """
[nodes.p]
files = "p.parquet"
key = "id"
time = { column = "t", unit = "D" }
label = "fraud"
split = { train_until = 2, val_until = 3 }
features = { n = "number", c = "category" }
[nodes.card]
files = "card.parquet"
key = "id"
features = { limit = "number" }
[edges."p,by,card"]
files = "by.parquet"
source = "p"
target = "card"
time = { column = "t", unit = "D" }
features = { w = "number" }
"""
TABLES = {
    "p": {
        "id": ["a", "b", "c", "d"],
        "t": [0, 1, 2, 3],
        "fraud": [True, False, None, True],
        "n": [1.0, 3.0, 100.0, -100.0],
        "c": ["x", "y", "z", "x"],
    },
    "card": {"id": [7, 8], "limit": [1.0, 2.0]},
    "by": {"p": ["a", "b", "d"], "card": [7, 7, 8], "t": [0, 1, 3], "w": [1.0, 3.0, 50.0]},
}


def test_statistics_come_from_training_rows(converted: Converted) -> None:
    found = converted(SAID, **TABLES)
    assert found["nodes/p/x"][:, 0].tolist() == [-1, 1, 98, -102]
    assert found["nodes/p/x"][:, 1:].tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 0, 0]]
    assert found["nodes/card/x"][:, 0].tolist() == [-1, 1]
    assert found["edges/p__by__card/edge_attr"][:, 0].tolist() == [-1, 1, 48]  # not later than day 1
    assert found["splits/p/train"].tolist() == [0, 1]


def test_what_was_fitted_is_applied_to_new_tables(converted: Converted, tmp_path: Path) -> None:
    converted(SAID, **TABLES)
    today = tmp_path / "today"
    today.mkdir()
    new = {"id": ["e", "f"], "t": [4, 5], "n": [3.0, 2.0], "c": ["y", "new"]}
    pq.write_table(pa.table(new), today / "p.parquet")
    for name in ("card", "by"):
        columns = {**TABLES[name]} if name == "card" else {"p": ["e"], "card": [8], "t": [4], "w": [2.0]}
        pq.write_table(pa.table(columns), today / f"{name}.parquet")
    made = apply(tmp_path / "data", today, tmp_path / "scored")
    assert made.nodes == {"p": 2, "card": 2}
    x = np.load(tmp_path / "scored/nodes/p/x.npy")
    assert x.tolist() == [[1, 0, 1, 0], [0, 0, 0, 1]]
    assert np.load(tmp_path / "scored/nodes/p/y.npy").tolist() == [[-1], [-1]]  # there are no labels
    assert read_meta(tmp_path / "scored").origin == read_meta(tmp_path / "data").origin
    assert np.load(tmp_path / "scored/splits/p/test.npy").tolist() == []  # without labels
    assert np.load(tmp_path / "scored/edges/p__by__card/edge_attr.npy").tolist() == [[0]]
    said = json.loads((tmp_path / "scored/tables.json").read_text())
    assert said["features"] == json.loads((tmp_path / "data/tables.json").read_text())["features"]
    (tmp_path / "graph.toml").write_text(SAID.replace('n = "number", ', ""))
    with pytest.raises(DatasetError, match="features: are c, but fitted were n, c; describe the new tables"):
        apply(tmp_path / "data", GraphDescription.read(tmp_path), tmp_path / "other")
    pq.write_table(pa.table({**new, "c": ["q", "r"]}), today / "p.parquet")
    with pytest.warns(
        UserWarning, match="features.c: no row has a category that was learned, so all 2 count"
    ):
        apply(tmp_path / "data", today, tmp_path / "unknown")
    with pytest.raises(DatasetError, match="give a data folder that batchgnn tables convert wrote"):
        apply(today, today, tmp_path / "other")


def test_links_of_a_model_stay_edges_of_new_tables(converted: Converted, tmp_path: Path) -> None:
    """Nothing is learned from new tables, so all their links are seen."""
    said = '[edges."u,buys,i"]\nfiles = "buys.parquet"\nsource = "u"\ntarget = "i"\n'
    rows = {"u": [f"u{at % 9}" for at in range(99)], "i": [f"i{at % 11}" for at in range(99)]}
    found = converted(said + "split = { fractions = [0.5, 0.2, 0.3] }\n", buys=rows)
    assert found["edge_index/u__buys__i"].shape[1] < 99
    made = apply(tmp_path / "data", tmp_path, tmp_path / "new")
    assert made.edges["u", "buys", "i"] == 99


USERS = '[nodes.user]\nfiles = "users.parquet"\nkey = "id"\n'


@pytest.mark.parametrize(
    ("values", "said", "y", "classes"),
    [
        ([True, None, False], "", [[True], [False], [False]], None),
        (["true", "False", None], "", [[True], [False], [False]], None),
        ([1, 0, None], "kind = 'boolean'", [[True], [False], [False]], None),
        ([0, 2, None], "", [0, 2, -1], None),
        ([10, -1, 10], "", [1, 0, 1], [-1, 10]),
        (["rock", None, "jazz"], "", [1, -1, 0], ["jazz", "rock"]),
        ([0.0, 1.0, None], "kind = 'class'", [0, 1, -1], None),
        ([0.5, 1.0, None], "", [0.5, 1.0, np.nan], None),
        (["0.5", "1", None], "", [0.5, 1.0, np.nan], None),
        ([3, 4, None], "kind = 'value'", [3.0, 4.0, np.nan], None),
    ],
)
def test_labels(
    converted: Converted,
    tmp_path: Path,
    values: list[Any],
    said: str,
    y: list[Any],
    classes: list[Any] | None,
) -> None:
    label = f"label = {{ column = 'l'{', ' + said if said else ''} }}\n"
    split = "split = { fractions = [1.0, 0, 0] }\n"
    found = converted(USERS + label + split, users={"id": ["a", "b", "c"], "l": values})
    np.testing.assert_array_equal(found["nodes/user/y"], np.asarray(y))
    assert found["nodes/user/y"].dtype == (np.float32 if isinstance(y[0], float) else np.asarray(y).dtype)
    assert found["splits/user/train"].tolist() == [at for at, one in enumerate(values) if one is not None]
    file = tmp_path / "data/keys/user.classes.json"
    assert (json.loads(file.read_text()) if classes else file.exists()) == (
        {"column": "l", "values": classes} if classes else False
    )
    known = len({one for one in values if one is not None})
    wanted = 0 if isinstance(y[0], list | float) else len(classes) if classes else max(y) + 1
    assert read_folder(tmp_path / "data").nodes_of("user").num_classes == wanted
    assert known == 2 or classes == [-1, 10]


def test_a_class_is_one_in_files_of_all_kinds(converted: Converted, tmp_path: Path) -> None:
    said = USERS + "label = { column = 'l', kind = 'class' }\nsplit = { fractions = [1.0, 0, 0] }\n"
    converted(said, users={"id": ["a", "b"], "l": [10, -1]})
    for number, values in enumerate((["10.0", "-1"], [10.0, -1.0], ["x", "-1"])):
        pq.write_table(pa.table({"id": ["a", "b"], "l": values}), tmp_path / "users.parquet")
        apply(tmp_path / "data", tmp_path, tmp_path / str(number))
        y = np.load(tmp_path / str(number) / "nodes/user/y.npy").tolist()
        assert y == [-1 if values[0] == "x" else 1, 0]


def test_features_that_float32_does_not_hold_are_refused(converted: Converted, tmp_path: Path) -> None:
    converted(USERS + "features = { n = 'number' }\n", users={"id": ["a", "b"], "n": [1e-10, 2e-10]})
    pq.write_table(pa.table({"id": ["a"], "n": [3e38]}), tmp_path / "users.parquet")
    with pytest.raises(DatasetError, match="n: a value is too far from those of training"):
        apply(tmp_path / "data", tmp_path, tmp_path / "new")


def test_a_split_by_a_hash_of_the_key_does_not_move(converted: Converted) -> None:
    said = USERS + "split = { fractions = [0.5, 0.3, 0.2] }\n"
    names = [f"user {at}" for at in range(1000)]
    found = converted(said, "first", users={"id": names})
    shares = (hash_texts(pa.array(names)) >> np.uint64(11)).astype(float) / 2**53
    for split, low, high in (("train", 0, 0.5), ("val", 0.5, 0.8), ("test", 0.8, 1)):
        assert (
            found[f"splits/user/{split}"].tolist()
            == np.flatnonzero((shares >= low) & (shares < high)).tolist()
        )
    assert 400 < len(found["splits/user/train"]) < 600
    later = converted(said, "second", users={"id": names[::-1]})
    assert {names[at] for at in found["splits/user/val"]} == {
        names[::-1][at] for at in later["splits/user/val"]
    }


def test_splits_by_a_column_and_by_time(converted: Converted, tmp_path: Path) -> None:
    users = {"id": list("abcdef"), "s": ["Train ", " VALID", "validation", "testing", "other", None]}
    found = converted(USERS + "split = 's'\n", "one", users=users)
    assert [found[f"splits/user/{name}"].tolist() for name in ("train", "val", "test")] == [[0], [1, 2], [3]]
    said = USERS + "time = 't'\nsplit = { train_until = 2024-03-01, val_until = '2024-03-02T00:00:00Z' }\n"
    times = [
        datetime(2024, 2, 29, 23, 59, 59),
        datetime(2024, 3, 1),
        datetime(2024, 3, 2),
        datetime(2025, 1, 1),
    ]
    users = {"id": list("abcd"), "t": pa.array(times, pa.timestamp("ms"))}
    found = converted(said, "two", users=users)
    assert [found[f"splits/user/{name}"].tolist() for name in ("train", "val", "test")] == [[0], [1], [2, 3]]
    assert json.loads((tmp_path / "two/keys/times.json").read_text()) == {"unit": "ms", "timezone": "UTC"}
    wanted = [int(one.replace(tzinfo=timezone.utc).timestamp() * 1000) for one in times]
    assert found["nodes/user/time"].tolist() == wanted


@pytest.mark.parametrize(
    ("column", "said", "unit", "times"),
    [
        ([3, 4], "'t'", None, [3, 4]),
        ([3, 4], "{ column = 't', unit = 'D' }", "D", [3, 4]),
        ([1.5, 2.25], "{ column = 't', unit = 'D' }", "us", [129_600_000_000, 194_400_000_000]),
        (pa.array([0, 1], pa.date32()), "'t'", "D", [0, 1]),
        (pa.array([1, 2], pa.timestamp("ns", "America/New_York")), "'t'", "ns", [1, 2]),
        (["1970-01-01T00:00:01+01:00", "1970-01-02"], "'t'", "us", [-3_599_000_000, 86_400_000_000]),
        (["1970-01-01T01:00:00", "2024-07-01T02:00:00"], "{ column = 't', timezone = 'Europe/Berlin' }", "us",
         [0, 1_719_792_000_000_000]),
    ],
)  # fmt: skip
def test_times_of_all_kinds(
    converted: Converted, tmp_path: Path, column: Any, said: str, unit: str | None, times: list[int]
) -> None:
    found = converted(USERS + f"time = {said}\n", users={"id": ["a", "b"], "t": column})
    assert found["nodes/user/time"].tolist() == times
    said_unit = json.loads((tmp_path / "data/keys/times.json").read_text())
    assert said_unit == {"unit": unit, "timezone": None if unit is None else "UTC"}


def test_plain_integers_are_not_compared_with_dates(converted: Converted) -> None:
    said = USERS + "time = 't'\n" + '[nodes.item]\nfiles = "items.parquet"\ntime = "t"\n'
    with pytest.raises(DatasetError, match=r"\[nodes.user\]: time: t: plain integers cannot be compared"):
        converted(said, users={"id": ["a"], "t": [1]}, items={"t": pa.array([1], pa.date32())})


LINKS = """
[edges."user,buys,item"]
files = "links.parquet"
source = "u"
target = "i"
time = "t"
"""
ROWS = {"u": ["a", "b", "a", "c"], "i": ["x", "y", "y", "x"], "t": [1, 2, 3, 4]}


def test_links_by_time_stay_edges(converted: Converted, tmp_path: Path) -> None:
    found = converted(LINKS + "split = { train_until = 3, val_until = 4 }\n", links=ROWS)
    assert found["edge_index/user__buys__item"].shape[1] == 4
    place = "links/user__buys__item"
    assert found[f"{place}/train/index"].tolist() == [[0, 1], [0, 1]]
    assert found[f"{place}/val/index"].tolist() == [[0], [1]] and found[f"{place}/val/time"].tolist() == [3]
    assert found[f"{place}/test/index"].tolist() == [[2], [0]]
    assert len(read_folder(tmp_path / "data").edges_of(("user", "buys", "item")).links) == 3


def test_other_links_leave_the_edges(converted: Converted) -> None:
    many = {
        "u": [f"u{at % 20}" for at in range(400)],
        "i": [f"i{at % 50}" for at in range(400)],
        "t": list(range(400)),
    }
    found = converted(LINKS + "split = { fractions = [0.6, 0.2, 0.2] }\n", links=many)
    held = {
        tuple(pair)
        for split in ("val", "test")
        for pair in found[f"links/user__buys__item/{split}/index"].T.tolist()
    }
    edges = found["edge_index/user__buys__item"].T.tolist()
    assert held and not held & set(map(tuple, edges))
    assert found["links/user__buys__item/train/index"].T.tolist() == edges
    assert found["edges/user__buys__item/time"].shape == (len(edges),)
    assert found["edge_index/item__rev_buys__user"].T.tolist() == [pair[::-1] for pair in edges]
