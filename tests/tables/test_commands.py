"""``batchgnn tables`` from three files to a data folder, and one line for a mistake."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pyg_batchgnn.data import DatasetError
from pyg_batchgnn.tables import draft
from tests.support.training_runs import SMALL, batchgnn, mistake


def write_shop(folder: Path) -> None:
    folder.mkdir()
    (folder / "users.csv").write_text(
        "user_id,age\n" + "".join(f"u{at},{20 + at % 40}\n" for at in range(50))
    )
    rows = "".join(f"u{at % 50},i{at * 7 % 40},{at}\n" for at in range(300))
    (folder / "orders.csv").write_text("user_id,item_id,price\n" + rows)


def test_the_commands_lead_to_a_data_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_shop(tmp_path / "shop")
    assert batchgnn("tables", "describe", "shop") == 0
    assert "wrote shop/graph.toml; read it, correct it" in capsys.readouterr().out
    assert batchgnn("tables", "check", "shop", "--memory-limit", "1GiB", "--threads", "1") == 0
    assert "arrays of the data folder" in capsys.readouterr().out
    assert batchgnn("tables", "convert", "shop", "--out", "data") == 0
    out = capsys.readouterr().out
    assert "user: 50 nodes" in out and "user-orders-item: " in out
    assert "train on it with: batchgnn train data --task link --edge-type user,orders,item" in out
    assert batchgnn("tables", "apply", "data", "shop", "--out", "again") == 0
    assert "score its rows with: batchgnn predict RUN --dataset again" in capsys.readouterr().out
    assert batchgnn("verify", "again") == 0
    one, other = (tmp_path / name / "nodes/user/x.npy" for name in ("data", "again"))
    assert one.read_bytes() == other.read_bytes()
    assert batchgnn("tables", "describe", "shop", "--out", "shop.toml", "--convert", "at once") == 0
    assert "wrote shop.toml; read what was guessed" in capsys.readouterr().out
    assert batchgnn("verify", "at once") == 0
    assert 'files = "shop/users.csv"' in (tmp_path / "shop.toml").read_text()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["describe", "no"], "no: no such folder"),
        (["convert", "no", "--out", "data"], "no such file; batchgnn tables describe FOLDER writes"),
        (["convert", "shop", "--out", "data", "--memory-limit", "1MiB"], "memory_limit: is 1,048,576"),
        (["convert", "shop", "--out", "shop"], "shop: exists already"),
        (["apply", "shop", "shop", "--out", "data"], "tables.json: no such file"),
    ],
)
def test_a_mistake_is_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    write_shop(tmp_path / "shop")
    (tmp_path / "shop/graph.toml").write_text(
        '[edges."user,orders,item"]\nfiles = "orders.csv"\nsource = "user_id"\ntarget = "item_id"\n'
    )
    assert said in mistake(capsys, "tables", *arguments)


def test_missing_libraries_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pq.write_table(pa.table({"a": [1]}), tmp_path / "t.parquet")
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(DatasetError, match=r"tables need duckdb; pip install 'pyg_batchgnn\[tables\]'"):
        draft(tmp_path)


def write_bank(folder: Path, first: int, count: int) -> None:
    folder.mkdir()
    cards = {"card": [f"c{at}" for at in range(20)], "limit": [float(at) for at in range(20)]}
    pq.write_table(pa.table(cards), folder / "cards.parquet")
    rows = range(first, first + count)
    payments = {
        "number": [f"p{at}" for at in rows],
        "card": [f"c{at % 20}" for at in rows],
        "amount": [float(at % 7) for at in rows],
    }
    if not first:
        payments["kind"] = [("shop", "bar")[at % 2] for at in rows]
    pq.write_table(pa.table(payments), folder / "payments.parquet")


@pytest.mark.parametrize("kind", ["class", "boolean"])
def test_new_tables_are_predicted_with_the_model_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    """New rows have no labels, so no metric is printed."""
    monkeypatch.chdir(tmp_path)
    write_bank(tmp_path / "bank", 0, 100)
    if kind == "boolean":
        table = pq.read_table(tmp_path / "bank/payments.parquet")
        labels = pa.array([one == "bar" for one in table["kind"].to_pylist()])
        pq.write_table(table.set_column(3, "kind", labels), tmp_path / "bank/payments.parquet")
    (tmp_path / "bank/graph.toml").write_text(
        '[nodes.payment]\nfiles = "payments.parquet"\nkey = "number"\nlabel = "kind"\n'
        "split = { fractions = [0.6, 0.2, 0.2] }\n"
        'features = { amount = "number" }\nforeign_keys = { card = "card" }\n'
        '[nodes.card]\nfiles = "cards.parquet"\nkey = "card"\nfeatures = { limit = "log" }\n'
    )
    write_bank(tmp_path / "today", 100, 30)
    said = mistake(capsys, "train", "bank", "--run", "run")
    assert "batchgnn tables describe bank, then batchgnn tables convert bank --out DATA" in said
    assert batchgnn("tables", "convert", "bank", "--out", "data") == 0
    arguments = ["--node-type", "payment", "--epochs", "1", "--run", "run", *SMALL]
    assert batchgnn("train", "data", *arguments) == 0
    assert batchgnn("tables", "apply", "data", "today", "--out", "new") == 0
    capsys.readouterr()
    assert batchgnn("predict", "run", "--dataset", "new", "--out", "scores") == 0
    assert "30 nodes, weights of epoch 1, no labels; written to" in capsys.readouterr().out
    assert np.load(tmp_path / "scores/predictions.npy").size == 30
    if kind == "boolean":
        return
    assert json.loads((tmp_path / "new/keys/payment.classes.json").read_text())["values"] == ["bar", "shop"]

    other = (tmp_path / "bank/graph.toml").read_text().replace('"number" }', '"log" }')
    (tmp_path / "bank/graph.toml").write_text(other)
    assert batchgnn("tables", "convert", "bank", "--out", "other") == 0
    said = mistake(capsys, "predict", "run", "--dataset", "other", "--out", "more")
    assert "is of another data set: its checksum is" in said


def test_a_model_with_learned_rows_knows_no_new_nodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_shop(tmp_path / "shop")
    (tmp_path / "shop/graph.toml").write_text(
        '[nodes.user]\nfiles = "users.csv"\nkey = "user_id"\nlabel = "age"\n'
        "split = { fractions = [0.6, 0.2, 0.2] }\n"
        '[edges."user,orders,item"]\nfiles = "orders.csv"\nsource = "user_id"\ntarget = "item_id"\n'
        'features = { price = "number" }\non_bad_rows = "set aside"\n'
    )
    with (tmp_path / "shop/orders.csv").open("a") as stream:
        stream.write("u1,i1\nu1,i1,cheap\nu1,i1,dear\n")
    assert batchgnn("tables", "convert", "shop", "--out", "data") == 0
    out = capsys.readouterr().out
    assert "set aside of user,orders,item: 1 row with a wrong number of columns" in out
    assert "set aside of user,orders,item: 2 rows with a value that cannot be read" in out
    assert batchgnn("train", "data", "--node-type", "user", "--epochs", "1", "--run", "run", *SMALL) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "features of edges of user-orders-item, item-rev_orders-user: sage reads" in out
    with (tmp_path / "shop/users.csv").open("a") as stream:
        stream.write("u50,22\n")
    assert batchgnn("tables", "apply", "data", "shop", "--out", "new") == 0
    said = mistake(capsys, "predict", "run", "--dataset", "new", "--out", "scores")
    assert "learned rows of the nodes of" in said
