"""``batchgnn tables`` from three files to a data folder, and one line for a mistake."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.training_runs import batchgnn


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
    assert batchgnn("verify", "again") == 0
    assert (tmp_path / "data/nodes/user/x.npy").read_bytes() == (
        tmp_path / "again/nodes/user/x.npy"
    ).read_bytes()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["describe", "no"], "no: no such folder"),
        (
            ["convert", "no", "--out", "data"],
            "no: no such file; batchgnn tables describe FOLDER writes a first",
        ),
        (
            ["convert", "shop", "--out", "data", "--memory-limit", "1MiB"],
            "memory_limit: is 1,048,576 bytes; give",
        ),
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
    assert batchgnn("tables", *arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith("batchgnn: ") and said in error and error.count("\n") == 1


def test_missing_libraries_are_named(tmp_path: Path) -> None:
    """DuckDB and pyarrow are imported only when they are needed, and their absence is one line."""
    pq.write_table(pa.table({"a": [1]}), tmp_path / "t.parquet")
    program = (
        "import sys\n"
        "import pyg_batchgnn.tables as tables\n"
        "tables.GraphDescription, tables.convert, tables.draft\n"
        "assert not {'duckdb', 'pyarrow'} & set(sys.modules)\n"
        "sys.modules['duckdb'] = None\n"
        f"tables.draft({str(tmp_path)!r})\n"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "DatasetError: tables need duckdb; pip install 'pyg_batchgnn[tables]'" in ran.stderr
