"""Embedding tables in one process against torch's modules and optimizers."""

from __future__ import annotations

import weakref
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given
from torch import Tensor
from torch_geometric.data import Data, HeteroData

from pyg_batchgnn import MacrobatchLinkNeighborLoader, MacrobatchNeighborLoader
from pyg_batchgnn.comm import Communicator
from pyg_batchgnn.data import DatasetError
from pyg_batchgnn.embed import SGD, Adagrad, Embedding, EmbeddingOptimizer, SparseAdam, UpdateRule
from pyg_batchgnn.store import graph_from_pyg
from tests.support.damaged_folders import Attack, said
from tests.support.hetero_cases import make_hetero
from tests.support.partitioned_graphs import CASES, whole
from tests.support.tiers import each, examples
from tests.support.tiny_datasets import flip_byte

RULES: dict[str, tuple[UpdateRule, Any]] = {
    "sgd": (SGD(lr=0.1), lambda p: torch.optim.SGD(p, lr=0.1)),
    "adagrad": (
        Adagrad(lr=0.1, lr_decay=0.05, initial_accumulator_value=0.2),
        lambda p: torch.optim.Adagrad(p, lr=0.1, lr_decay=0.05, initial_accumulator_value=0.2),
    ),
    "adam": (SparseAdam(lr=0.05), lambda p: torch.optim.SparseAdam(p, lr=0.05)),
}


@pytest.fixture(scope="module")
def comm() -> Communicator:
    return Communicator.create("embedding")


def torchs(embedding: Embedding, node_type: str | None = None) -> torch.nn.Embedding:
    weight = embedding.table_of(node_type).weight.clone()
    return torch.nn.Embedding.from_pretrained(weight, freeze=False, sparse=True)


@each
@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@examples(25)
@given(data=st.data())
def test_rows_are_those_of_torchs_optimizers(
    name: str, dtype: torch.dtype, comm: Communicator, data: st.DataObject
) -> None:
    rule, make = RULES[name]
    nodes, columns = data.draw(st.integers(1, 12)), data.draw(st.sampled_from([1, 3, 8, 20]))
    embedding = Embedding(Data(num_nodes=nodes), columns, seed=nodes, dtype=dtype, comm=comm)
    reference = torchs(embedding)
    ours, theirs = EmbeddingOptimizer(embedding, rule), make(reference.parameters())
    draw = torch.Generator().manual_seed(columns)
    for _ in range(data.draw(st.integers(1, 5))):
        ids = torch.tensor(data.draw(st.lists(st.integers(0, nodes - 1), max_size=20)), dtype=torch.int64)
        factor = torch.randn(len(ids), columns, generator=draw, dtype=dtype)
        rows = embedding(Data(n_id=ids))["node"]
        assert torch.equal(rows, embedding.table_of().weight[ids])
        (rows.sin() * factor).sum().backward()
        ours.step()
        theirs.zero_grad()
        (reference(ids).sin() * factor).sum().backward()
        theirs.step()
    tolerance = 1e-5 if dtype == torch.float32 else 1e-12
    found = embedding.table_of().weight
    assert torch.allclose(found, reference.weight, rtol=tolerance, atol=tolerance)


#: Orders of reads (r), backward passes (b, of a sum: j) and steps (s) of batches by number.
ORDERS = {
    "two batches in one loss": "r0 r1 j01 s",
    "two backward passes": "r0 b0 r1 b1 s",
    "a batch read between forward and backward": "r0 r1 b0 s r2 b2 s",
    "a batch read ahead": "r0 r1 b0 s b1 r2 s b2 s",
    "the same batch twice": "r0 b0 r0 b0 s",
    "one batch is never used": "r0 r1 r2 b1 s r0 b0 s",
}


@each
@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
@pytest.mark.parametrize("name", [*RULES, "dense sgd"])
def test_gradients_of_several_batches_are_added_as_torch_does(
    name: str, order: str, comm: Communicator
) -> None:
    rule, make = RULES[name.split()[-1]]
    embedding = Embedding(Data(num_nodes=9), 4, dtype=torch.float64, comm=comm)
    reference = torch.nn.Embedding.from_pretrained(
        embedding.table_of().weight.clone(), freeze=False, sparse="dense" not in name
    )
    ours, theirs = EmbeddingOptimizer(embedding, rule), make(reference.parameters())
    ids = [torch.tensor(one) for one in ([0, 1, 1, 5], [1, 5, 6], [8, 1, 0])]
    batches = [Data(n_id=one) for one in ids]
    factors = [torch.randn(len(one), 4, dtype=torch.float64) for one in ids]
    losses: dict[int, list[Tensor]] = {}
    theirs.zero_grad()
    for word in order.split():
        at = [int(one) for one in word[1:]]
        if word[0] == "r":
            rows = embedding(batches[at[0]])["node"], reference(ids[at[0]])
            losses[at[0]] = [(one.sin() * factors[at[0]]).sum() for one in rows]
        elif word[0] == "s":
            ours.step()
            theirs.step()
            theirs.zero_grad()
        else:
            for side in range(2):
                torch.stack([losses[one][side] for one in at]).sum().backward()
    assert torch.allclose(embedding.table_of().weight, reference.weight, rtol=1e-12, atol=1e-14)


def test_a_gradient_that_comes_after_its_update_is_refused(comm: Communicator) -> None:
    embedding = Embedding(Data(num_nodes=9), 4, comm=comm)
    optimizer = EmbeddingOptimizer(embedding, SGD(lr=0.1))
    loss = embedding(Data(n_id=torch.arange(3)))["node"].sum()
    loss.backward(retain_graph=True)
    optimizer.step()
    with pytest.raises(RuntimeError, match=r"already taken; call step\(\) after all backward passes"):
        loss.backward()


def test_rows_that_were_read_and_given_up_cost_no_memory(comm: Communicator) -> None:
    """A script may evaluate without ``torch.no_grad``."""
    embedding = Embedding(Data(num_nodes=9), 4, comm=comm)
    optimizer = EmbeddingOptimizer(embedding, SGD(lr=0.1))
    kept = embedding(Data(n_id=torch.arange(3)))["node"]
    read = [weakref.ref(embedding(Data(n_id=torch.arange(at % 9)))["node"]) for at in range(200)]
    assert sum(one() is not None for one in read) <= 1 and len(embedding._read) < 100
    before = embedding.table_of().weight.clone()
    kept.sum().backward()
    optimizer.step()
    moved = (embedding.table_of().weight != before).any(dim=1)
    assert moved.tolist() == [True] * 3 + [False] * 6


@pytest.mark.parametrize("export", ["native", "pyg"])
def test_types_have_tables_of_their_own(export: Any) -> None:
    data = make_hetero()
    embedding = Embedding(data, {"author": 4, "lonely": 2}, seed=3)
    assert embedding.node_types == ["author", "lonely"] and embedding.table_of("lonely").columns == 2
    loader = MacrobatchNeighborLoader(
        data,
        [4, 3],
        "paper",
        batch_size=16,
        seed=0,
        export=export,
        embedding=embedding,
        transform=lambda batch: batch,
    )
    references = {name: torchs(embedding, name) for name in embedding.node_types}
    optimizer = EmbeddingOptimizer(embedding, Adagrad(lr=0.3))
    theirs = torch.optim.Adagrad([one.weight for one in references.values()], lr=0.3)
    for batch in loader:
        rows = embedding(batch)
        theirs.zero_grad()
        for name, one in rows.items():
            node = batch.nodes_of(name).node if export == "native" else batch[name].n_id
            assert torch.allclose(one, references[name](node), rtol=1e-5, atol=1e-6)
            one.cos().sum().backward()
            references[name](node).cos().sum().backward()
        optimizer.step()
        theirs.step()
    for name, reference in references.items():
        assert torch.allclose(embedding.table_of(name).weight, reference.weight, rtol=1e-4, atol=1e-6)


def test_links_have_rows() -> None:
    data = whole(CASES[0])
    embedding = Embedding(data, 4)
    loader = MacrobatchLinkNeighborLoader(
        data, [3], neg_sampling="binary", batch_size=64, seed=0, embedding=embedding
    )
    optimizer = EmbeddingOptimizer(embedding, SGD(lr=0.1))
    before = embedding.table_of().weight.clone()
    batch = next(iter(loader))
    embedding(batch)["node"].sum().backward()
    optimizer.step()
    changed = (embedding.table_of().weight != before).all(1).nonzero().view(-1)
    assert torch.equal(changed, batch.n_id.unique())


def test_initial_rows_depend_on_seed_type_and_id_alone() -> None:
    data = make_hetero()
    one = Embedding(data, {"author": 4, "paper": 4}, seed=3)
    alone = Embedding(data, {"author": 4}, seed=3)
    assert torch.equal(one.table_of("author").weight, alone.table_of("author").weight)
    authors, papers = one.table_of("author").weight, one.table_of("paper").weight
    assert not (authors == papers[:40]).any()
    other = Embedding(data, {"author": 4}, seed=4, bound=3.0).table_of("author").weight
    assert not (other == authors).any() and float(other.abs().max()) > 2
    graph = whole(CASES[0])
    rows = Embedding(graph, 5).table_of().weight
    assert torch.equal(rows, Embedding(graph_from_pyg(graph), 5).table_of().weight)
    assert float(rows.abs().max()) <= 5**-0.5 and len(rows.unique()) == rows.numel()


def test_rows_that_are_frozen_stay() -> None:
    embedding = Embedding(Data(num_nodes=10), 3)
    optimizer = EmbeddingOptimizer(embedding, SGD(lr=1.0))
    before = embedding.table_of().weight.clone()
    embedding.freeze(torch.tensor([1, 4]))
    embedding.freeze(torch.arange(10) == 7)
    embedding(Data(n_id=torch.arange(10)))["node"].sum().backward()
    optimizer.step()
    same = (embedding.table_of().weight == before).all(1)
    assert same.nonzero().view(-1).tolist() == [1, 4, 7]
    embedding.freeze()
    assert bool(embedding.table_of().frozen.all())  # type: ignore[union-attr]


def test_evaluation_reads_rows_without_training_them() -> None:
    embedding = Embedding(Data(num_nodes=10), 3)
    optimizer = EmbeddingOptimizer(embedding, SGD(lr=1.0))
    with torch.no_grad():
        rows = embedding(Data(n_id=torch.arange(4)))["node"]
    assert not rows.requires_grad
    assert torch.equal(embedding.rows(torch.tensor([3, 3, 0])), embedding.table_of().weight[[3, 3, 0]])
    with pytest.raises(RuntimeError, match="no rows were read since the last step"):
        optimizer.step()


def test_rows_are_features_of_all_nodes() -> None:
    data = whole(CASES[0])
    embedding = Embedding(data, 6)
    both = embedding.as_features(data)
    rows = embedding.table_of().weight
    assert torch.equal(both.x, torch.cat([data.x, rows], dim=1)) and data.x.shape == (120, 5)
    assert torch.equal(embedding.as_features(data, "learned").learned, rows)
    typed = make_hetero()
    tables = Embedding(typed, {"author": 4})
    assert torch.equal(tables.as_features(typed)["author"].x, tables.table_of().weight)
    assert "x" not in typed["author"]
    with pytest.raises(TypeError, match="data must be a Data"):
        embedding.as_features("graph")


def test_the_learning_rate_can_change() -> None:
    embedding = Embedding(Data(num_nodes=2), 1)
    optimizer = EmbeddingOptimizer(embedding, SGD(lr=1.0))
    before = embedding.table_of().weight.clone()
    optimizer.set(lr=0.5)
    embedding(Data(n_id=torch.arange(2)))["node"].sum().backward()
    optimizer.step()
    assert torch.allclose(embedding.table_of().weight, before - 0.5)


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: Embedding(Data(num_nodes=3), 0), ValueError, "at least 1"),
        (lambda: Embedding(make_hetero(), 3), ValueError, "give the columns by type"),
        (lambda: Embedding(make_hetero(), {"artist": 3}), KeyError, "artist"),
        (lambda: Embedding(Data(), 3), ValueError, "number of nodes is unknown"),
        (lambda: Embedding(Data(num_nodes=3), 3, dtype=torch.float16), TypeError, "float32 or torch.float64"),
        (lambda: Embedding(Data(num_nodes=3), 3, stale_steps=-1), ValueError, "stale_steps"),
        (lambda: Embedding("graph", 3), TypeError, "data must be"),
        (lambda: Embedding(Data(num_nodes=3), 3)("batch"), TypeError, "n_id"),
        (lambda: Embedding(make_hetero(), {"paper": 3}).table_of("author"), KeyError, "has no table"),
        (lambda: SGD(lr=-1.0), ValueError, "lr"),
        (lambda: SparseAdam(betas=(0.9, 1.0)), ValueError, "betas"),
    ],
)
def test_what_cannot_be_is_refused(make: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        make()


def test_a_loader_refuses_tables_of_another_graph() -> None:
    data = whole(CASES[0])
    with pytest.raises(ValueError, match="make the tables of the"):
        MacrobatchNeighborLoader(data, [2], embedding=Embedding(Data(num_nodes=3), 2))
    with pytest.raises(ValueError, match="num_workers=1"):
        MacrobatchNeighborLoader(data, [2], embedding=Embedding(data, 2), num_workers=1)


def test_a_rule_fits_the_state() -> None:
    embedding = Embedding(Data(num_nodes=3), 2)
    EmbeddingOptimizer(embedding, SparseAdam())
    with pytest.raises(ValueError, match="hold 2 numbers for each weight, but Adagrad keeps 1"):
        EmbeddingOptimizer(embedding, Adagrad())


def test_gradients_that_were_dropped_move_nothing(comm: Communicator) -> None:
    embedding = Embedding(Data(num_nodes=6), 3, seed=0, comm=comm)
    reference, optimizer = torchs(embedding), EmbeddingOptimizer(embedding, SGD(lr=0.1))
    for ids, factor in ((torch.tensor([0, 1]), float("nan")), (torch.tensor([1, 2]), 2.0)):
        rows = embedding(Data(n_id=ids))["node"]
        optimizer.zero_grad()  # before the backward pass it drops what came before
        (rows.sum() * factor).backward()
        del rows
        if factor == 2.0:
            optimizer.step()
    wanted = reference.weight.detach().clone()
    wanted[1:3] -= 0.2
    assert torch.allclose(embedding.table_of().weight, wanted)
    for _ in range(3):
        embedding(Data(n_id=torch.tensor([3])))["node"].sum().backward()
        optimizer.zero_grad()
    embedding(Data(n_id=torch.tensor([4])))["node"].sum().backward()
    optimizer.step()
    wanted[4] -= 0.1
    assert torch.allclose(embedding.table_of().weight, wanted) and not embedding._read


NODES = 12


def trained() -> Embedding:
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


DAMAGES: dict[str, tuple[Attack, str]] = {
    "altered": (lambda folder: flip_byte(folder / "part-00000/nodes/state1.npy"), r"state1.npy.*sha256"),
    "missing": (lambda folder: (folder / "part-00000/nodes/node.npy").unlink(), r"node.npy"),
    "no META": (lambda folder: (folder / "META.json").unlink(), "META.json"),
    "another format": (said("format", value="x"), "expected 'pyg_batchgnn.embedding'"),
    "other columns": (said("columns", value={"node": 4}), "4"),
    "damaged": (said("steps", value="many"), "damaged"),
    "fewer parts": (said("parts", value=0), "rows for 0 of the 12 nodes"),
    "no array": (said("arrays", value={}), "not among the arrays"),
}


@pytest.mark.parametrize(("damage", "words"), DAMAGES.values(), ids=DAMAGES)
def test_damage_is_named(damage: Attack, words: str, tmp_path: Path) -> None:
    trained().save(tmp_path / "tables")
    damage(tmp_path / "tables")
    with pytest.raises(DatasetError, match=f"(?s){words}"):
        Embedding(Data(num_nodes=NODES), 3).load(tmp_path / "tables")


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
