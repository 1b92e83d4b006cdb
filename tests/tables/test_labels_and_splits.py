"""Labels of all kinds, and splits by a column, a hash of the key, or time."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pyg_batchgnn.data import DatasetError, read_folder
from pyg_batchgnn.tables.values import hash_texts
from tests.tables.conftest import Converted

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
    users = {"id": list("abcd"), "s": ["train", "val", "other", None]}
    found = converted(USERS + "split = 's'\n", "one", users=users)
    assert [found[f"splits/user/{name}"].tolist() for name in ("train", "val", "test")] == [[0], [1], []]
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
