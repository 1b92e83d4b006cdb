"""Predictions with the keys of the nodes, and files that name nodes by their keys."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest

from pyg_batchgnn.data import load_dataset, write_folder
from tests.support.launched_runs import assert_ended, launch
from tests.support.timed_graphs import ITEMS, USERS, bank, shop, write_keyed
from tests.support.training_runs import SMALL, batchgnn, mistake

TIMED = ["--time-attr", "time", "--temporal-strategy", "last"]
OF_NODES = [*SMALL, "--node-type", "payment", "--batch-size", "64", "--epochs", "1"]
OF_LINKS = [*SMALL, "--task", "link", "--edge-type", "user,buys,item", "--batch-size", "64", "--epochs", "1"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folders of runs on labels, classes, values and links, beside their data."""
    path = tmp_path_factory.mktemp("keyed")
    for labels in ("labels", "classes", "values"):
        data = write_keyed(bank(labels), path / f"{labels} data")
        times = TIMED if labels == "labels" else []
        assert batchgnn("train", data, *OF_NODES, *times, "--run", path / labels) == 0
    data = write_keyed(shop(), path / "links data")
    some = [*OF_LINKS, *TIMED, "--ranked-among", "5"]
    assert batchgnn("train", data, *some, "--run", path / "links") == 0
    assert batchgnn("train", data, *OF_LINKS, "--run", path / "untimed") == 0
    return path


@pytest.fixture(autouse=True)
def _small_row_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyg_batchgnn.train.keyed_tables._ROWS", 16)


def predicted(runs: Path, run: str, out: Path, *options: object) -> dict[str, np.ndarray]:
    assert batchgnn("predict", runs / run, *options, "--out", out) == 0
    return {path.stem: np.load(path) for path in out.glob("*.npy")}


def read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = pq.read_table(path).to_pydict()
    return found


def keys(runs: Path, run: str, node_type: str, ids: np.ndarray) -> dict[str, Any]:
    table = pq.read_table(runs / f"{run} data" / "keys" / f"{node_type}.parquet")
    found: dict[str, Any] = table.take(pa.array(ids)).to_pydict()
    return found


def test_labels_with_their_keys_and_times(runs: Path, tmp_path: Path) -> None:
    arrays = predicted(runs, "labels", tmp_path / "out", "--nodes", "test", "--embeddings")
    file = pq.ParquetFile(tmp_path / "out" / "predictions.parquet")
    assert file.metadata.num_row_groups == -(-len(arrays["node_ids"]) // 16) > 1
    assert file.schema_arrow.field("time").type == pa.timestamp("ms", "UTC")  # Parquet has no seconds
    found, ids = read(tmp_path / "out" / "predictions.parquet"), arrays["node_ids"]
    assert list(found) == ["payment_id", "time", "prediction", "score", "embedding"]
    assert found["payment_id"] == keys(runs, "labels", "payment", ids)["payment_id"]
    time = bank().nodes_of("payment").tables["time"][ids].tolist()
    assert [one.timestamp() for one in found["time"]] == time
    assert found["prediction"] == (arrays["predictions"][:, 0] == 1).tolist()
    np.testing.assert_array_equal(np.float32(found["score"]), arrays["probabilities"][:, 0])
    np.testing.assert_array_equal(np.float32(found["embedding"]), arrays["embeddings"])


def test_classes_by_their_values(runs: Path, tmp_path: Path) -> None:
    arrays = predicted(runs, "classes", tmp_path / "out", "--nodes", "val")
    found, values = read(tmp_path / "out" / "predictions.parquet"), ["rock", "jazz", "pop"]
    assert list(found) == ["payment_id", "time", "prediction", *(f"score_{one}" for one in values)]
    assert found["prediction"] == [values[one] for one in arrays["predictions"]]
    for at, name in enumerate(values):
        np.testing.assert_array_equal(np.float32(found[f"score_{name}"]), arrays["probabilities"][:, at])


def test_other_values_of_classes(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, values = write_keyed(bank("classes"), tmp_path / "data"), [2**63, 2**64 - 1, 3]
    file = data / "keys" / "payment.classes.json"
    file.write_text(json.dumps({"column": "y", "values": values}))
    arrays = predicted(runs, "classes", tmp_path / "large", "--dataset", data)
    found = read(tmp_path / "large" / "predictions.parquet")
    assert found["prediction"] == [values[one] for one in arrays["predictions"]]
    file.write_text('{"column": "y", "values": ["rock"]}')
    said = mistake(capsys, "predict", runs / "classes", "--dataset", data, "--out", tmp_path / "out")
    assert "the keys name 1 classes of 'payment', but the model has 3" in said
    assert not (tmp_path / "out").exists()


def test_values_of_nodes_that_a_file_names(runs: Path, tmp_path: Path) -> None:
    ids = np.array([7, 399, 0, 7])
    wanted = pa.table(keys(runs, "values", "payment", ids)).append_column("note", pa.array(list("abcd")))
    pc.write_csv(wanted, tmp_path / "some.csv")
    pq.write_table(wanted, tmp_path / "some.parquet")
    for file in ("some.csv", "some.parquet"):
        arrays = predicted(runs, "values", tmp_path / f"of {file}", "--nodes", tmp_path / file, "--exact")
        assert arrays["node_ids"].tolist() == ids.tolist()
        found = read(tmp_path / f"of {file}" / "predictions.parquet")
        assert found["payment_id"] == wanted.to_pydict()["payment_id"]
        np.testing.assert_array_equal(np.float32(found["prediction"]), arrays["predictions"])


def test_pairs_and_partners(runs: Path, tmp_path: Path) -> None:
    users, items = np.arange(USERS)[::-1], np.arange(USERS) % ITEMS
    named = keys(runs, "links", "user", users) | keys(runs, "links", "item", items)
    pc.write_csv(pa.table(named), tmp_path / "pairs.csv")
    for run, at in (("links", ["--at", "1970-01-01T00:10"]), ("untimed", [])):
        out = tmp_path / run
        arrays = predicted(runs, run, out / "pairs", "--pairs", tmp_path / "pairs.csv", *at)
        assert arrays["pairs"].tolist() == np.stack([users, items], axis=1).tolist()
        found = read(out / "pairs" / "predictions.parquet")
        assert list(found) == ["user_id", "item_id", *(["time"] if at else []), "score"]
        assert {name: found[name] for name in named} == named
        np.testing.assert_array_equal(np.float32(found["score"]), arrays["scores"])
        if at:
            assert {one.timestamp() for one in found["time"]} == {600.0}
        best = predicted(runs, run, out / "top", "--top", 3, "--nodes", tmp_path / "pairs.csv", *at)
        found = read(out / "top" / "predictions.parquet")
        assert found["user_id"] == np.repeat(named["user_id"], 3).tolist()
        assert found["rank"] == [1, 2, 3] * USERS
        assert found["item_id"] == keys(runs, "links", "item", best["partners"].reshape(-1))["item_id"]
        np.testing.assert_array_equal(np.float32(found["score"]), best["scores"].reshape(-1))


def test_embeddings_by_type(runs: Path, tmp_path: Path) -> None:
    arrays = predicted(runs, "classes", tmp_path / "out", "--embeddings-of", "all")
    assert arrays.keys() == {"payment", "card"}
    found = read(tmp_path / "out" / "card.parquet")
    assert list(found) == ["bank", "number", "embedding"]
    assert {name: found[name] for name in ("bank", "number")} == keys(runs, "classes", "card", np.arange(40))
    np.testing.assert_array_equal(np.float32(found["embedding"]), arrays["card"])
    predicted(runs, "links", tmp_path / "timed", "--embeddings-of", "item")
    assert list(read(tmp_path / "timed" / "item.parquet")) == ["item_id", "time", "embedding"]


def test_an_unknown_key_is_named_and_nothing_is_written(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "some.csv").write_text("payment_id\np-001\np-xyz\n")
    (tmp_path / "empty.csv").write_text("payment_id\n")
    for file, says in (
        ("some.csv", "row 1: no payment of the data set has the key payment_id='p-xyz'"),
        ("empty.csv", "no nodes to predict"),
        ("none.csv", "no such file"),
    ):
        arguments = ["predict", runs / "labels", "--nodes", tmp_path / file, "--out", tmp_path / "out"]
        assert says in mistake(capsys, *arguments) and not (tmp_path / "out").exists()


def test_a_data_set_without_keys_has_no_tables(runs: Path, tmp_path: Path) -> None:
    plain = write_folder(load_dataset(runs / "labels data"), tmp_path / "plain")
    (tmp_path / "some.csv").write_text("id\n5\n3\n")
    options = ["--nodes", tmp_path / "some.csv", "--dataset", plain]
    arrays = predicted(runs, "labels", tmp_path / "out", *options)
    assert arrays["node_ids"].tolist() == [5, 3]
    assert not list((tmp_path / "out").glob("*.parquet"))


def test_two_ranks_write_the_same_table(runs: Path, tmp_path: Path) -> None:
    users = pa.table(keys(runs, "links", "user", np.arange(USERS)[::2]))
    pq.write_table(users, tmp_path / "users.parquet")
    commands = {"labels": ["--nodes", "test"], "links": ["--top", 2, "--nodes", tmp_path / "users.parquet"]}
    made = [
        {"arguments": [str(one) for one in ["predict", runs / run, *options, "--out", tmp_path / run]]}
        for run, options in commands.items()
    ]
    for seen in launch(2, *made):
        assert_ended(seen, 0)
    for run, options in commands.items():
        predicted(runs, run, tmp_path / f"{run} alone", *options)
        one, other = (read(tmp_path / name / "predictions.parquet") for name in (run, f"{run} alone"))
        np.testing.assert_allclose(one.pop("score"), other.pop("score"), atol=1e-6)
        assert one == other
        about = json.loads((tmp_path / run / "META.json").read_text())
        assert about == json.loads((tmp_path / f"{run} alone" / "META.json").read_text())
