"""The jobs of ranks in test_types.py: tables of several node types over ranks."""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import HeteroData

from pyg_batchgnn import MacrobatchNeighborLoader
from pyg_batchgnn.comm import Communicator, MessageKind
from pyg_batchgnn.data import Schema
from pyg_batchgnn.embed import SGD, Embedding, EmbeddingOptimizer, SparseAdam
from pyg_batchgnn.store import TypedGraph
from tests.support.rank_graphs import GRAPHS, arguments_of, stores_of
from tests.support.reference_partition import book_of, internal_ids_by_type, typed_part
from tests.support.typed_graphs import SCHEMAS

SCHEMA: Schema = SCHEMAS[3]
NODES = {"author": 50, "paper": 30, "field": 7, "lonely": 3}
COLUMNS = {"field": 3, "author": 5}  # named in another order than the types
STEPS = 3


def graph() -> TypedGraph:
    none = torch.empty(2, 0, dtype=torch.int64)
    return TypedGraph.from_edge_indices(SCHEMA, NODES, dict.fromkeys(SCHEMA.relations, none))


def wanted(rank: int, step: int) -> dict[str, Tensor]:
    """The ids that a rank's minibatch has, duplicates among them; one of them is empty."""
    draw = torch.Generator().manual_seed(10 * step + rank)
    sizes = dict.fromkeys(NODES, 0 if (rank, step) == (1, 1) else 2 + rank)
    return {name: torch.randint(NODES[name], (size,), generator=draw) for name, size in sizes.items()}


def loss_of(rows: dict[str, Tensor], rank: int, step: int) -> Tensor:
    """A loss; that of one rank and step leaves a type out."""
    losses = [
        one.sin().sum() * (rank + 1) for name, one in rows.items() if (rank, step, name) != (0, 2, "field")
    ]
    return torch.stack(losses).sum()


def types() -> None:
    """Rows of all types come and change together, in one exchange each."""
    with Communicator.create("graph", timeout=30) as ids, Communicator.create("rows", timeout=30) as comm:
        size, draw = comm.size, torch.Generator().manual_seed(3)
        owners = [torch.randint(size, (count,), generator=draw) for count in NODES.values()]
        part = typed_part(graph(), owners, size, comm.rank)
        internal = internal_ids_by_type(owners, book_of(owners, size))
        for rule, make in (
            (SparseAdam(lr=0.1), lambda p: torch.optim.SparseAdam(p, lr=0.1)),
            (SGD(lr=0.1), lambda p: torch.optim.SGD(p, lr=0.1)),
        ):
            embedding = Embedding(part, COLUMNS, seed=2, comm=comm, dtype=torch.float64)
            optimizer = EmbeddingOptimizer(embedding, rule)
            references, before = reference(embedding), comm.counters.snapshot()
            theirs = make([one.weight for one in references.values()])
            plans = [
                [internal[at][one] for at, one in enumerate(wanted(comm.rank, step).values())]
                for step in range(STEPS)
            ]
            for step, planned in enumerate(embedding.plan(plans, ids, epoch=0, macrobatch=0)):
                batch = batch_of(wanted(comm.rank, step))
                embedding.attach(batch, planned)
                rows = embedding(batch)
                assert list(rows) == ["author", "field"]
                for name, one in rows.items():
                    assert torch.allclose(one, references[name](batch[name].n_id), atol=1e-10)
                loss_of(rows, comm.rank, step).backward()
                optimizer.step(weight=float(comm.rank + 1))
                replay(references, theirs, step, size)
            embedding.synchronize()
            counts = (comm.counters.snapshot() - before)[MessageKind.EMBEDDINGS]
            assert counts.rounds == 2 * STEPS
            for name, one in references.items():
                found = embedding.rows(torch.arange(NODES[name]), name)
                assert torch.allclose(found, one.weight, atol=1e-10), name


def loaders() -> None:
    """Loaders of typed graphs, with times and disjoint too, tell which rows they need."""
    with Communicator.create("graph", timeout=30) as ids, Communicator.create("rows", timeout=30) as comm:
        for option, export, hybrid in (
            ("uniform", "native", False),
            ("last", "pyg", False),
            ("disjoint", "native", False),
            ("uniform", "pyg", True),
        ):
            data = stores_of(ids, GRAPHS["typed"], "random", hybrid)
            columns = dict(zip(data[1].part.schema.node_types, (3, 2, 4), strict=False))
            embedding = Embedding(data, columns, seed=2, comm=comm, dtype=torch.float64)
            counts = {name: embedding.owners.book.num_nodes_of(at) for at, name in enumerate(columns)}
            rows = {name: embedding.rows(torch.arange(counts[name]), name).clone() for name in columns}
            loader = MacrobatchNeighborLoader(
                data,
                **arguments_of("typed", option, "several"),
                export=export,
                macrobatch_size=2,
                embedding=embedding,
            )
            optimizer = EmbeddingOptimizer(embedding, SGD(lr=0.5))
            for batch in loader:
                own = {
                    name: batch.nodes_of(name).node if export == "native" else batch[name].n_id
                    for name in columns
                }
                found = embedding(batch)
                for name, node in own.items():
                    assert torch.allclose(found[name], rows[name][node], atol=1e-10)
                torch.stack([one.sin().sum() for one in found.values()]).sum().backward()
                optimizer.step()
                changes = {name: torch.zeros_like(one) for name, one in rows.items()}
                everyones = ids.all_gather_json({name: node.tolist() for name, node in own.items()})
                for name, nodes in itertools.chain.from_iterable(one.items() for one in everyones):
                    node = torch.tensor(nodes, dtype=torch.int64)
                    changes[name].index_add_(0, node, rows[name][node].cos())
                for name, one in rows.items():
                    one -= 0.5 / comm.size * changes[name]


def batch_of(ids: dict[str, Tensor]) -> Any:
    batch = HeteroData()
    for name, one in ids.items():
        batch[name].n_id = one
    return batch


def reference(embedding: Embedding) -> dict[str, torch.nn.Embedding]:
    """Returns torch's modules with the initial rows of all ranks; collective."""
    every = {name: embedding.rows(torch.arange(NODES[name]), name) for name in embedding.node_types}
    return {
        name: torch.nn.Embedding.from_pretrained(rows.clone(), freeze=False, sparse=True)
        for name, rows in every.items()
    }


def replay(references: dict[str, torch.nn.Embedding], optimizer: Any, step: int, size: int) -> None:
    """Makes the step of all ranks in one process."""
    optimizer.zero_grad()
    total = sum(range(1, size + 1))
    for rank in range(size):
        rows = {name: one(wanted(rank, step)[name]) for name, one in references.items()}
        (loss_of(rows, rank, step) * (rank + 1) / total).backward()
    optimizer.step()
