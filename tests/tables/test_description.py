"""Descriptions: what is read is what was written, and mistakes are named."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from pyg_batchgnn.data import DatasetError
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
        ("nodes = 3", "nodes: is 3; give a table"),
        ("[nodes.user]\nkey = 'id'", "[nodes.user]: files: is missing"),
        (TABLE + "tiem = 'at'", "tiem: is not known; is time meant?; known here: foreign_keys, files, key"),
        (TABLE + "time = {column = 'at', unit = 'minutes'}", "unit: is 'minutes'; choose among D, s, ms"),
        (TABLE + "key = 3", "[nodes.user]: key: is 3; give a text or a list of texts"),
        (TABLE + "on_bad_rows = 'ignore'", "on_bad_rows: is 'ignore'; choose among error, set aside"),
        (TABLE + "[nodes.user.features]\na = 'onehot'", "encoder 'onehot' does not exist; choose among"),
        (TABLE + "[nodes.user.features]\na = 'since_seed'", "is not known before sampling"),
        (TABLE + "[nodes.user.features]\na = 'text'", "give vectors of the texts"),
        (TABLE + "features = {a = {encoder = 'number', limit = 3}}", "features.a]: limit: is not known"),
        (TABLE + "features = {a = {encoder = 'hashed', buckets = 0}}", "buckets: is 0; give a whole number"),
        (TABLE + "split = {fractions = [0.5, 0.5]}", "split.fractions is [0.5, 0.5]; give three shares"),
        (TABLE + "split = {train_until = 3}", "train_until without val_until"),
        (TABLE + "split = {train_until = 3, val_until = 4}", "needs the column of times; give time"),
        (TABLE + "split = {column = 'a', fractions = [1, 0, 0]}", "and one of them alone"),
        (TABLE + "reverse = true", "[nodes.user]: reverse: is not known"),
        (TABLE + "label = 'a'\nfeatures = {a = 'number'}\n" + LINK, "features.a: is the label; leave it out"),
        (TABLE, "no relations; describe foreign_keys"),
        (TABLE + LINK.replace("user,knows,user", "user,user"), "names no relation"),
        (TABLE + "key = ['a', 'b']\n" + LINK, "a: 1 columns, but the key of user has 2; name as many"),
        (
            TABLE + "key = ['a', 'b']\nforeign_keys = {c = 'user'}",
            "names 1 columns, but the key of user has 2",
        ),
        (TABLE + "foreign_keys = {knows = 'user'}\n" + LINK, "there is a link table of this relation"),
        (TABLE + "[options]\nreverse = 'yes'", "[options]: reverse: is 'yes'; give true or false"),
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
