"""Descriptions: what is read is what was written, mistakes are named, drafts are guessed."""

from __future__ import annotations

import gzip
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pyg_batchgnn.data import DatasetError, read_folder
from pyg_batchgnn.sample import PygNeighborSampler
from pyg_batchgnn.tables import (
    ColumnFeature,
    EdgeTable,
    ForeignKey,
    GraphDescription,
    LabelColumn,
    NodeTable,
    TableOptions,
    TableSplit,
    TimeColumn,
    check,
    convert,
    draft,
    write_draft,
)

WHOLE = GraphDescription(
    {
        "payment": NodeTable(
            ("payments/*.parquet", "late.parquet"),
            ("bank", "number"),
            TimeColumn("at", "ms"),
            LabelColumn("fraud", "boolean"),
            TableSplit(train_until=date(2024, 3, 1), val_until="2024-04-01T12:00:00Z"),
            {
                "by": ForeignKey(("card",), "card", False),
                "account": ForeignKey(("bank", "no"), "account"),
                "to": ForeignKey(("card_id",), "card"),
            },
            {
                "amount": ColumnFeature("log"),
                'odd "name"': ColumnFeature("category", limit=9),
                "city": ColumnFeature("hashed", buckets=16),
                "at": ColumnFeature("calendar", parts=("hour", "weekday"), timezone="Europe/Berlin"),
            },
            on_bad_rows="set aside",
        ),
        "account": NodeTable(
            ("accounts.csv",), ("bank", "no"), format="csv", delimiter=";", nulls=("", "NA")
        ),
    },
    {
        ("card", "of", "account"): EdgeTable(
            ("of.csv",), ("card",), ("bank", "no"), split=TableSplit(fractions=(0.8, 0.1, 0.1)), reverse=False
        )
    },
    TableOptions("bank", False, "s"),
    Path("somewhere"),
)


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    file = WHOLE.write(tmp_path)
    assert file.name == "graph.toml"
    read = GraphDescription.read(file)
    assert read.to_dict() == WHOLE.to_dict()
    assert read.nodes == WHOLE.nodes and read.edges == WHOLE.edges and read.options == WHOLE.options
    assert read.folder == tmp_path
    assert read.types() == ["payment", "account", "card"]
    assert list(read.relations()) == [
        ("card", "of", "account"),
        ("payment", "by", "card"),
        ("payment", "account", "account"),
        ("payment", "to", "card"),
    ]


TABLE = '[nodes.user]\nfiles = "u.csv"\n'
LINK = '[edges."user,knows,user"]\nfiles = "k.csv"\nsource = "a"\ntarget = "b"\n'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[nodes.user", "not valid TOML"),
        ("", "no tables; describe some"),
        ("[nodes.user]\nkey = 'id'", "[nodes.user]: files: is missing"),
        (TABLE + "tiem = 'at'", "tiem: is not known; is time meant?; known here: files, key, time"),
        (TABLE + "time = {column = 'at', unit = 'minutes'}", "unit: is 'minutes'; choose among D, s, ms"),
        (TABLE + "on_bad_rows = 'ignore'", "on_bad_rows: is 'ignore'; choose among error, set aside"),
        (TABLE + "[nodes.user.features]\na = 'onehot'", "encoder 'onehot' does not exist; choose among"),
        (TABLE + "[nodes.user.features]\na = 'since_seed'", "is not known before sampling"),
        (TABLE + "features = {a = {encoder = 'hashed', buckets = 0}}", "buckets: is 0; give a whole number"),
        ("nodes = 3", "nodes: is 3; give a table"),
        (TABLE + "key = 3", "[nodes.user]: key: is 3; give a text or a list of texts"),
        (TABLE + "split = {column = 'a', fractions = [1, 0, 0]}", "and one of them alone"),
        (TABLE + "split = {fractions = [0.5, 0.5]}", "split.fractions is [0.5, 0.5]; give three shares"),
        (TABLE + "split = {train_until = 3}", "train_until without val_until"),
        (TABLE + "split = {train_until = 3, val_until = 4}", "needs the column of times; give time"),
        (TABLE + "label = 'a'\nfeatures = {a = 'number'}\n" + LINK, "features.a: is the label; leave it out"),
        (TABLE, "no relations; describe foreign_keys"),
        (TABLE + LINK.replace("user,knows,user", "user,user"), "names no relation"),
        (TABLE + "key = ['a', 'b']\n" + LINK, "a: 1 columns, but the key of user has 2; name as many"),
        (
            TABLE + "key = ['a', 'b']\nforeign_keys = {c = 'user'}",
            "names 1 columns, but the key of user has 2",
        ),
        (TABLE + "foreign_keys = {knows = 'user'}\n" + LINK, "there is a link table of this relation"),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "graph.toml"
    file.write_text(text)
    with pytest.raises(DatasetError) as caught:
        GraphDescription.read(tmp_path)
    assert said in str(caught.value) and str(file) in str(caught.value)
    assert "\n" not in str(caught.value).replace("\\n", "")


def test_a_missing_description_names_the_command(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="batchgnn tables describe"):
        GraphDescription.read(tmp_path)


def write(folder: Path, name: str, columns: dict[str, Any]) -> None:
    file = folder / f"{name}.parquet"
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), file)


def bank(folder: Path) -> None:
    """Writes the tables of a bank; payments have no key and lie in a folder of parts."""
    draw = np.random.default_rng(0)
    write(folder, "cards", {"card_id": [f"c{at}" for at in range(60)], "limit": draw.gamma(2, 1000, 60)})
    write(folder, "merchants", {"id": np.arange(100, 130), "kind": ["shop", "bar", "web"] * 10})
    for part in (2, 10):
        count = 200
        times = [datetime(2024, 1, part, at % 24, at % 60) for at in range(count)]
        columns = {
            "card": [f"c{one}" for one in draw.integers(60, size=count)],
            "merchant_id": draw.integers(100, 130, size=count),
            "amount": np.exp(draw.normal(3, 2, count)),
            "night": draw.random(count) < 0.3,
            "paid_at": pa.array(times, pa.timestamp("us")),
            "fraud": draw.random(count) < 0.1,
            "note": [f"note {part} {at}" for at in range(count)],
        }
        write(folder, f"payments/part-{part}", columns)


def test_a_bank(tmp_path: Path) -> None:
    bank(tmp_path)
    text = draft(tmp_path)
    file = write_draft(tmp_path)
    assert file.read_text() == text
    said = GraphDescription.read(tmp_path)
    payment = said.nodes["payment"]
    assert payment.key == () and payment.files == ("payments/*.parquet",)
    assert {name: one.type for name, one in payment.foreign_keys.items()} == {
        "card": "card",
        "merchant": "merchant",
    }
    assert payment.foreign_keys["merchant"].columns == ("merchant_id",)
    assert payment.label is not None and payment.label.column == "fraud"
    assert payment.time is not None and payment.time.column == "paid_at"
    assert payment.split is not None and payment.split.is_by_time
    assert {name: one.encoder for name, one in payment.features.items()} == {
        "amount": "log",
        "night": "boolean",
    }
    assert said.nodes["card"].key == ("card_id",) and said.nodes["merchant"].key == ("id",)
    assert said.nodes["merchant"].features["kind"].encoder == "category"
    assert "Not used: note (text" in text and "No column is a key" in text
    made = convert(said, tmp_path / "data")
    assert made.training == " --node-type payment --time-attr time"
    dataset = read_folder(tmp_path / "data")
    shares = [len(one) / 400 for one in dataset.nodes_of("payment").splits.values()]
    assert shares == pytest.approx([0.2, 0.6, 0.2], abs=0.02)  # test, train, val
    # The memory of training: the bytes of the edges by destination with their order by time.
    sampler = PygNeighborSampler(dataset.to_pyg(), [2], time_attr="time")
    held = [one.indptr.nbytes + one.indices.nbytes + 4 * one.num_edges for one in sampler.graph.relations]
    orders = [one for one in sampler.macrobatch.times if one is not None]
    held += [one.time.nbytes + one.time.numel() * 4 for one in orders]
    found = check(said)
    assert orders and found.training_bytes - found.nbytes == sum(held)


def test_a_shop_of_three_csv_files(tmp_path: Path) -> None:
    (tmp_path / "users.csv").write_text(
        "user_id,age\n" + "".join(f"u{at},{20 + at % 40}\n" for at in range(50))
    )
    (tmp_path / "items.csv").write_text("item_id,price\n" + "".join(f"i{at},{at}.5\n" for at in range(40)))
    rows = (f"u{at % 50},i{at * 7 % 40},{date(2024, 1, 1) + timedelta(days=at % 300)}\n" for at in range(500))
    (tmp_path / "orders.csv").write_text("user_id,item_id,day\n" + "".join(rows))
    write_draft(tmp_path)
    said = GraphDescription.read(tmp_path)
    links = said.edges["user", "orders", "item"]
    assert (links.source, links.target) == (("user_id",), ("item_id",))
    assert links.split is not None and links.split.is_by_time
    made = convert(said, tmp_path / "data")
    assert made.training == " --task link --edge-type user,orders,item --time-attr time"
    with pytest.raises(DatasetError, match="exists already; remove it, or give another file with --out"):
        write_draft(tmp_path)


def test_links_alone_name_their_types(tmp_path: Path) -> None:
    for part in (1, 2):
        write(
            tmp_path,
            f"ratings_{part}",
            {"user_id": ["a", "b", "a"], "movie_id": [3, 4, 3], "stars": [1.0, 2.0, 3.0]},
        )
    said = GraphDescription.from_dict(_toml(draft(tmp_path)), tmp_path)
    assert said.nodes == {} and list(said.edges) == [("user", "ratings", "movie")]
    assert said.edges["user", "ratings", "movie"].files == ("ratings_1.parquet", "ratings_2.parquet")
    assert said.edges["user", "ratings", "movie"].split is not None


def _toml(text: str) -> dict[str, Any]:
    from pyg_batchgnn.tables.description import _toml as module

    return dict(module().loads(text))


def test_edges_between_nodes_of_one_type(tmp_path: Path) -> None:
    write(
        tmp_path,
        "people",
        {"id": np.arange(30), "y": np.arange(30) % 3, "born": pa.array([0] * 30, pa.date32())},
    )
    write(tmp_path, "knows", {"src": np.arange(29), "dst": np.arange(1, 30)})
    said = GraphDescription.from_dict(_toml(draft(tmp_path)), tmp_path)
    assert list(said.edges) == [("people", "knows", "people")]
    assert said.nodes["people"].time is None and said.nodes["people"].features["born"].parts == (
        "weekday",
        "day",
        "month",
    )


def test_files_as_people_have_them(tmp_path: Path) -> None:
    """Names with spaces, keys with zeros in front, another delimiter, gzip, and an empty file."""
    people = "".join(f'{at:03};"a;b";{"" if at == 3 else at % 3 > 0}\n' for at in range(40))
    (tmp_path / "people.csv").write_text("Person No;full.name;Is Fraud\n" + people, "utf-8-sig")
    with gzip.open(tmp_path / "visits [1],x.csv.gz", "wt") as stream:
        stream.write(
            "person no,shopId,when\n" + "".join(f"{at % 40:03},s{at % 7},{at}\n" for at in range(90))
        )
    (tmp_path / "nothing.csv").touch()
    (tmp_path / ".hidden.csv").write_text("\0")
    said = GraphDescription.read(write_draft(tmp_path))
    assert "Left out, as they are empty: nothing.csv" in (tmp_path / "graph.toml").read_text()
    assert said.nodes["people"].key == ("Person No",)
    assert said.nodes["people"].label == LabelColumn("Is Fraud")
    (links,) = said.edges.values()
    assert (links.source, links.target, links.time) == (("person no",), ("shopId",), TimeColumn("when"))
    assert list(convert(said, tmp_path / "data").edges.values()) == [90]
    keys = pq.read_table(tmp_path / "data/keys/people.parquet")["Person No"]
    assert keys.to_pylist() == [f"{at:03}" for at in range(40)]


def test_an_orders_table_alone_is_split_by_its_times(tmp_path: Path) -> None:
    write(tmp_path, "orders", {"buyer_id": [1, 1, 2, 2], "sku_id": [3, 4, 3, 4], "at": [10, 20, 30, 40]})
    (links,) = GraphDescription.from_dict(_toml(draft(tmp_path)), tmp_path).edges.values()
    assert links.time == TimeColumn("at") and links.split is not None and links.split.is_by_time


def test_what_a_person_may_have_forgotten_is_said(tmp_path: Path) -> None:
    """Columns that may be labels, and times of day without a zone."""
    users = {"id": ["a", "b", "c"], "active": [0, 1, 1], "old": [True, False, True], "age": [1, 2, 3]}
    pq.write_table(pa.table(users), tmp_path / "users.parquet")
    at = datetime(2024, 1, 1)
    kinds = {
        "orders": ["2024-01-01T10:00:00"] * 3,
        "views": [at] * 3,
        "zoned": pa.array([at] * 3, pa.timestamp("s", "UTC")),
    }
    for name, times in kinds.items():
        pq.write_table(pa.table({"user_id": ["a", "b", "a"], "at": times}), tmp_path / f"{name}.parquet")
    said = draft(tmp_path)
    assert "# Columns of two values, as labels are: user.active, user.old." in said
    utc = 'time = "at"  # without a zone: UTC, or else { column = "at", timezone = "Europe/Berlin" }'
    assert said.count(utc) == 2 and said.count('time = "at"\n') == 1


def test_a_database_is_no_table(tmp_path: Path) -> None:
    """A description names the tables of a database; without one there is no draft."""
    import duckdb

    file = tmp_path / "shop.db"
    with duckdb.connect(str(file)) as database:
        database.execute("CREATE TABLE orders AS SELECT 'u' || range % 7 AS a, range AS b FROM range(20)")
    for folder in (tmp_path, file):
        with pytest.raises(DatasetError, match=r"shop.db: is a database, of which there is no draft"):
            draft(folder)
    links = {"files": "shop.db", "source": "a", "target": "b"}

    def made(table: str | None) -> Any:
        said = {"nodes": {}, "edges": {"a,b,c": links | ({"table": table} if table else {})}}
        return convert(GraphDescription.from_dict(said, tmp_path), tmp_path / (table or "none"))

    assert made("orders").nodes == {"a": 7, "c": 20}
    for table in ("order", None):
        with pytest.raises(DatasetError, match=f"has no table {table!r}; it has orders"):
            made(table)
    file.write_bytes(file.read_bytes()[:200])
    with pytest.raises(DatasetError, match=r"shop.db: not readable as a DuckDB database"):
        made("orders of today")
    (tmp_path / "k.csv").write_text("a,b\nx,1\n")
    links["files"] = "k.csv"
    with pytest.raises(DatasetError, match=r"k.csv is no DuckDB database; leave table out"):
        made("orders of old")


def test_a_folder_without_tables(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"has no files that end in \.parquet, \.csv, \.tsv"):
        draft(tmp_path)
    with pytest.raises(DatasetError, match="no such folder"):
        draft(tmp_path / "no")


def test_a_report(tmp_path: Path) -> None:
    bank(tmp_path)
    write_draft(tmp_path)
    write(tmp_path, "cards", {"card_id": ["c0", "c1", "c1", None], "limit": [1.0, 2.0, 3.0, 4.0]})
    found = check(GraphDescription.read(tmp_path), threads=1)
    assert found.bad["card"] == {"is a key without a value": 1, "is the key of an earlier row too": 1}
    assert found.bad["payment,card,card"]["is the key of no card"] > 300
    assert found.nodes["card"][0] == "2"
    assert found.nodes["payment"][3].startswith("fraud: ") and "% true" in found.nodes["payment"][3]
    assert found.edges["payment", "merchant", "merchant"][0] == "400"
    assert found.nbytes > 0 and "train with --time-attr time" in found.notes[0]
    from rich.console import Console

    console = Console(width=200, record=True)
    for table in found.tables():
        console.print(table)
    assert "is the key of no card" in console.export_text()


def test_edges_out_of_time_are_reported(tmp_path: Path) -> None:
    write(tmp_path, "a", {"id": [0, 1, 2], "t": [5, 1, 9], "l": [0, 1, 1]})
    write(tmp_path, "k", {"s": [0, 1], "d": [1, 2], "t": [4, 20]})
    (tmp_path / "graph.toml").write_text(
        '[nodes.a]\nfiles = "a.parquet"\nkey = "id"\ntime = "t"\nlabel = "l"\n'
        "split = { fractions = [1, 0, 0] }\n"
        '[edges."a,k,a"]\nfiles = "k.parquet"\nsource = "s"\ntarget = "d"\ntime = "t"\n'
    )
    found = check(GraphDescription.read(tmp_path))
    assert found.edges["a", "k", "a"] == (
        "2",
        "0.7, 1",
        "4 to 20",
        "1 later than the last seed, 1 before an end",
    )
    assert found.nodes["a"] == ("3", "none: learned", "train 3, val 0, test 0", "l: 1 66.7 %, 0 33.3 %")
    assert found.notes == ()
