"""Saved tables: what is damaged or of other tables is refused, and names the file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.data import Data, HeteroData

from pyg_batchgnn.data import DatasetError
from pyg_batchgnn.embed import Adagrad, Embedding, EmbeddingOptimizer, SparseAdam

NODES = 12


def trained() -> Embedding:
    """Returns tables with state and frozen rows."""
    embedding = Embedding(Data(num_nodes=NODES), 3)
    optimizer = EmbeddingOptimizer(embedding, SparseAdam(lr=0.1))
    embedding.freeze(torch.tensor([2]))
    embedding(Data(n_id=torch.arange(8)))["node"].sum().backward()
    optimizer.step()
    return embedding


def test_everything_comes_back(tmp_path: Path) -> None:
    embedding = trained()
    embedding.save(tmp_path / "tables")
    again = Embedding(Data(num_nodes=NODES), 3, seed=9)
    again.load(tmp_path / "tables")
    one, other = embedding.table_of(), again.table_of()
    assert again.steps == 1 and torch.equal(one.weight, other.weight)
    assert all(torch.equal(a, b) for a, b in zip(one.state, other.state, strict=True))
    assert other.frozen is not None and other.frozen.nonzero().tolist() == [[2]]
    EmbeddingOptimizer(again, SparseAdam(lr=0.1))
    files = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.npy"))
    assert files == [
        f"tables/part-00000/nodes/{name}.npy" for name in ("frozen", "node", "state0", "state1", "weight")
    ]


def test_types_have_folders_of_their_own(tmp_path: Path) -> None:
    data = HeteroData()
    data["a"].num_nodes, data["b/c"].num_nodes = 4, 5
    embedding = Embedding(data, {"a": 2, "b/c": 3})
    embedding.save(tmp_path / "tables")
    again = Embedding(data, {"a": 2, "b/c": 3}, seed=5)
    again.load(tmp_path / "tables")
    for name in ("a", "b/c"):
        assert torch.equal(embedding.table_of(name).weight, again.table_of(name).weight)
        embedding.export_rows(tmp_path / "rows.npy", name)
        assert np.array_equal(np.load(tmp_path / "rows.npy"), embedding.table_of(name).weight.numpy())


def truncate(folder: Path) -> None:
    path = folder / "part-00000/nodes/weight.npy"
    path.write_bytes(path.read_bytes()[:-4])


def alter(folder: Path) -> None:
    path = folder / "part-00000/nodes/state1.npy"
    path.write_bytes(path.read_bytes()[:-1] + b"\x7f")


def rewrite(**changes: object) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        meta = folder / "META.json"
        meta.write_text(json.dumps({**json.loads(meta.read_text()), **changes}))

    return change


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "truncated": (truncate, r"weight.npy.*truncated"),
    "altered": (alter, r"state1.npy.*sha256"),
    "missing": (lambda folder: (folder / "part-00000/nodes/node.npy").unlink(), r"node.npy"),
    "no META": (lambda folder: (folder / "META.json").unlink(), "META.json"),
    "another format": (rewrite(format="x"), "expected 'pyg_batchgnn.embedding'"),
    "other columns": (rewrite(columns={"node": 4}), "4"),
    "damaged": (rewrite(steps="many"), "damaged"),
    "fewer parts": (rewrite(parts=0), "rows for 0 of the 12 nodes"),
    "no array": (rewrite(arrays={}), "not among the arrays"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_damage_is_named(name: str, tmp_path: Path) -> None:
    damage, words = DAMAGES[name]
    folder = tmp_path / "tables"
    trained().save(folder)
    damage(folder)
    with pytest.raises(DatasetError, match=f"(?s){words}"):
        Embedding(Data(num_nodes=NODES), 3).load(folder)


def test_another_rule_is_refused(tmp_path: Path) -> None:
    trained().save(tmp_path / "tables")
    embedding = Embedding(Data(num_nodes=NODES), 3)
    EmbeddingOptimizer(embedding, Adagrad())
    with pytest.raises(DatasetError, match="make the optimizer with the rule"):
        embedding.load(tmp_path / "tables")


def test_rows_come_from_a_file_that_is_never_unpickled(tmp_path: Path) -> None:
    embedding = Embedding(Data(num_nodes=NODES), 3)
    rows = np.random.default_rng(0).random((NODES, 3))
    np.save(tmp_path / "rows.npy", rows)
    embedding.read_rows(tmp_path / "rows.npy")
    assert torch.equal(embedding.table_of().weight, torch.from_numpy(rows).float())
    np.save(tmp_path / "pickle.npy", np.array([{"a": 1}] * NODES, dtype=object), allow_pickle=True)
    with pytest.raises(DatasetError, match="never read"):
        embedding.read_rows(tmp_path / "pickle.npy")
    np.save(tmp_path / "other.npy", rows[:5])
    with pytest.raises(DatasetError, match=r"expected floats of shape \[12, 3\]"):
        embedding.read_rows(tmp_path / "other.npy")
