"""Embedding tables over ranks equal those of one process; counts are exact; runs repeat."""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import re
import runpy
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch._dynamo
from torch import Tensor

from pyg_batchgnn import MacrobatchNeighborLoader
from pyg_batchgnn.comm import CommError, Communicator, KindCounts, MessageKind
from pyg_batchgnn.data import HOMOGENEOUS, NODES, DatasetError
from pyg_batchgnn.embed import SGD, Adagrad, Embedding, EmbeddingOptimizer, SparseAdam, UpdateRule
from pyg_batchgnn.embed.tables import InitialRows, make_table
from pyg_batchgnn.nn import SAGE
from pyg_batchgnn.store import DistFeatureStore, DistGraphStore
from tests.support.partitioned_graphs import CASES, Case, owners, part_of, whole
from tests.support.rank_epochs import stores
from tests.support.rank_graphs import GRAPHS, arguments_of, stores_of
from tests.support.ranks import ROOT, run_ranks
from tests.support.tiers import ALL, all_only, in_all

F, CLASSES = 6, 7
WEIGHT = torch.randn(F, CLASSES, generator=torch.Generator().manual_seed(0))
RULES: tuple[tuple[UpdateRule, Any], ...] = (
    (SparseAdam(lr=0.05), lambda p: torch.optim.SparseAdam(p, lr=0.05)),
    (Adagrad(lr=0.2), lambda p: torch.optim.Adagrad(p, lr=0.2)),
    (SGD(lr=0.5), lambda p: torch.optim.SGD(p, lr=0.5)),
)


def loss_of(rows: Tensor, batch: Any) -> Tensor:
    source, target = batch.edge_index
    sums = torch.zeros_like(rows).index_add(0, target, rows[source])
    logits = (rows + sums)[: batch.batch_size] @ WEIGHT
    return torch.nn.functional.cross_entropy(logits, batch.y[: batch.batch_size], reduction="sum")


class Training:
    def __init__(self, graph: Communicator, comm: Communicator, case: Case, **options: Any) -> None:
        self.comm, self.case = comm, case
        rule = options.pop("rule", RULES[0][0])
        arguments = {
            "num_neighbors": [3, 2],
            "batch_size": 8,
            "shuffle": True,
            "seed": 11,
            "export": "native",
            "macrobatch_size": 3,
            "fetch_size": 2,
            "input_nodes": whole(case).train_mask.nonzero().view(-1),
            **options,
        }
        data = stores(graph, case, arguments.pop("hybrid", False), edges=False)
        stale = arguments.pop("stale_steps", 0)
        self.embedding = Embedding(data, F, seed=5, comm=comm, stale_steps=stale)
        self.loader = MacrobatchNeighborLoader(data, embedding=self.embedding, **arguments)
        self.optimizer = EmbeddingOptimizer(self.embedding, rule)

    def loss(self, batch: Any, weight: float) -> Tensor:
        return loss_of(self.embedding(batch)["node"], batch) * weight

    def step(self, batch: Any) -> None:
        self.loss(batch, self.loader.loss_weight).backward()
        self.optimizer.step()

    def epoch(self) -> list[list[int]]:
        seeds = []
        for batch in self.loader:
            self.step(batch)
            seeds.append(batch.input_id.tolist())
        return seeds

    def all_rows(self) -> Tensor:
        """Returns the rows of all nodes; collective."""
        return self.embedding.rows(torch.arange(self.case.nodes))


def replay(case: Case, make: Any, epochs: list[list[list[list[list[int]]]]], ahead: bool = False) -> Tensor:
    """Returns the rows of one process that replays the minibatches of all ranks."""
    data = whole(case)
    table = make_table(HOMOGENEOUS, 0, torch.arange(case.nodes), F, torch.float32)
    InitialRows(5).fill(table, HOMOGENEOUS)
    reference = torch.nn.Embedding.from_pretrained(table.weight, freeze=False, sparse=True)
    optimizer = make(reference.parameters())
    loader = MacrobatchNeighborLoader(
        data, [3, 2], data.train_mask.nonzero().view(-1), seed=11, export="native", batch_size=8
    )

    def loss(step: Sequence[list[list[int]]]) -> Tensor:
        total = torch.zeros(())
        for each in zip(*step, strict=True):
            count = max(sum(map(len, each)), 1)
            for one in each:
                batch = loader(torch.tensor(one, dtype=torch.int64))
                total = total + loss_of(reference(batch.node), batch) / count
        return total

    for epoch, by_rank in enumerate(epochs):
        loader.set_epoch(epoch)
        steps = list(zip(*by_rank, strict=True))
        losses = [loss(steps[0])]
        for at, following in enumerate([*steps[1:], None]):
            if ahead and following is not None:
                losses.append(loss(following))
            optimizer.zero_grad()
            losses[at].backward()
            optimizer.step()
            if not ahead and following is not None:
                losses.append(loss(following))
    return reference.weight.detach()


def settings() -> Iterator[tuple[Case, dict[str, Any]]]:
    sizes = itertools.cycle([(1, 1), (3, 2), ("auto", "auto"), (5, 1)])
    others = itertools.cycle(
        [{"prefetch": 1}, {"export": "pyg"}, {"hybrid": True, "prefetch": 2}, {"hybrid": True}]
    )
    rules = itertools.cycle(RULES)
    for case in (CASES[0], CASES[3], CASES[4], CASES[6]):
        for schedule in ("local", "global"):
            macrobatch, fetch = next(sizes)
            yield (
                case,
                {
                    "schedule": schedule,
                    "macrobatch_size": macrobatch,
                    "fetch_size": fetch,
                    "rule": next(rules),
                    **next(others),
                },
            )


def equals_one_process(graph: Communicator, comm: Communicator) -> None:
    for case, arguments in settings():
        rule, make = arguments.pop("rule")
        training = Training(graph, comm, case, rule=rule, **arguments)
        seeds = [graph.all_gather_json([[one] for one in training.epoch()]) for _ in range(2)]
        found, wanted = training.all_rows(), replay(case, make, seeds)
        assert torch.allclose(found, wanted, rtol=2e-4, atol=2e-5), (case, arguments)
        own = training.embedding.table_of()
        assert torch.equal(own.node, owners(case, comm.size).eq(comm.rank).nonzero().view(-1))


def several_batches_a_step(graph: Communicator, comm: Communicator) -> None:
    case = CASES[0]
    for (rule, make), how in itertools.product(RULES, ("one loss", "two passes", "ahead")):
        stale = 1 if how == "two passes" and make is RULES[2][1] else 0
        training = Training(graph, comm, case, rule=rule, batch_size=5, stale_steps=stale)
        groups: list[list[Any]] = []
        batches = [(batch, training.loader.loss_weight) for batch in training.loader]
        if how == "ahead":
            losses = []
            for batch in batches:  # the update of each batch comes when the next one was read
                losses.append(training.loss(*batch))
                if len(losses) > 1:
                    losses[-2].backward()
                    training.optimizer.step()
            losses[-1].backward()
            training.optimizer.step()
            groups = [[batch] for batch in batches]
        else:
            for at in range(0, len(batches), 2):
                groups.append(batches[at : at + 2])
                losses = [training.loss(*batch) for batch in groups[-1]]
                if how == "one loss":
                    torch.stack(losses).sum().backward()
                else:
                    for loss in losses:
                        loss.backward()
                training.optimizer.step()
        if stale:
            continue  # that runs end is what is asked of them
        everyones = graph.all_gather_json([[one.input_id.tolist() for one, _ in each] for each in groups])
        wanted = replay(case, make, [everyones], ahead=how == "ahead")
        assert torch.allclose(training.all_rows(), wanted, rtol=2e-4, atol=2e-5), (how, rule)


def counted(comm: Communicator, before: Any) -> KindCounts:
    counts: KindCounts = (comm.counters.snapshot() - before)[MessageKind.EMBEDDINGS]
    return counts


def repeats(graph: Communicator, comm: Communicator, folder: str) -> list[str]:
    case, path = CASES[0], Path(folder)
    results = []
    for stale in (0, 2):
        whole_run = Training(graph, comm, case, stale_steps=stale, macrobatch_size=2, batch_size=4)
        for _ in range(2):
            whole_run.epoch()
        results.append(whole_run.all_rows())
    assert not torch.equal(*results)
    again = Training(graph, comm, case, stale_steps=2, macrobatch_size=2, batch_size=4, prefetch=1)
    again.epoch()
    again.epoch()
    assert torch.equal(again.all_rows(), results[1])
    first = Training(graph, comm, case, macrobatch_size=2, batch_size=4)
    first.epoch()
    batches = iter(first.loader)
    for _ in range(3):
        first.step(next(batches))
    first.embedding.save(path / "saved")
    place = first.loader.state_dict()
    first.step(next(batches))  # what comes behind the save does not matter
    resumed = Training(graph, comm, case, macrobatch_size=2, batch_size=4)
    resumed.embedding.load(path / "saved")
    resumed.loader.load_state_dict(place)
    resumed.epoch()
    assert torch.equal(resumed.all_rows(), results[0])
    resumed.embedding.export_rows(path / "rows.npy")
    graph.barrier()
    assert torch.equal(torch.from_numpy(np.load(path / "rows.npy")), results[0])
    with pytest.raises(DatasetError, match="exists already"):
        resumed.embedding.save(path / "saved")
    resumed.embedding.save(path / "end")
    return [path.name for path in sorted(path.iterdir())]


def continues(graph: Communicator, comm: Communicator, folder: str) -> None:
    case, path = CASES[0], Path(folder)
    training = Training(graph, comm, case, schedule="global")
    training.embedding.load(path / "end")
    rows = torch.from_numpy(np.load(path / "rows.npy"))
    assert torch.equal(training.all_rows(), rows) and training.embedding.steps > 0
    saved = [training.embedding.table_of().state[at].clone() for at in range(2)]
    assert all(bool(state.abs().sum()) for state in saved)
    training.epoch()
    fresh = Training(graph, comm, case)
    assert not torch.equal(fresh.all_rows(), rows)
    fresh.embedding.read_rows(path / "rows.npy")
    assert torch.equal(fresh.all_rows(), rows)
    assert torch.equal(fresh.embedding.rows(torch.tensor([7, 3, 7])), rows[[7, 3, 7]])
    frozen = torch.arange(case.nodes) % 3 == 0
    fresh.embedding.freeze(frozen)
    fresh.epoch()
    found = fresh.all_rows()
    assert torch.equal(found[frozen], rows[frozen]) and not torch.equal(found, rows)


def weights(graph: Communicator, comm: Communicator) -> None:
    case = CASES[0]
    training = Training(graph, comm, case, rule=SGD(lr=1.0), shuffle=False)
    for weights, silent in (([0.0, 1.0, 2.0], -1), ([1.0, 1.0, 2.0], 1)):
        before = training.all_rows()
        batch = next(iter(training.loader))
        rows = training.embedding(batch)["node"]
        if comm.rank != silent:
            rows.sum().backward()
        training.optimizer.step(weight=weights[comm.rank])
        change = torch.zeros(case.nodes)
        for rank, nodes in enumerate(graph.all_gather_json(batch.node.tolist())):
            share = 0.0 if rank == silent else weights[rank] / sum(weights)
            change.index_add_(0, torch.tensor(nodes), torch.full((len(nodes),), share))
        assert torch.allclose(before - training.all_rows(), change[:, None].expand(-1, F), atol=1e-6)


def inference(graph: Communicator, comm: Communicator) -> None:
    case = CASES[0]
    for share in (True, False):
        part = part_of(case, comm.size, comm.rank, edge_attributes=False)
        data = DistFeatureStore(part, graph, share=share), DistGraphStore(part, graph)
        embedding = Embedding(data, F, seed=5, comm=comm)
        torch.manual_seed(0)
        model = SAGE(5 + F, 8, 2, 3).eval()
        features = embedding.as_features(data)
        found = model.inference(MacrobatchNeighborLoader(features, [2], batch_size=4))
        one = whole(case)
        rows = torch.cat([one.x, embedding.rows(torch.arange(case.nodes))], dim=1)
        with torch.no_grad():
            expected = model(rows, one.edge_index)
        assert torch.allclose(found, expected[part.node], atol=1e-5)
        assert features[0].fields[NODES]["x"].shape == (5 + F,)
        assert data[0].fields[NODES]["x"].shape == (5,)


def fault(how: str) -> dict[str, Any]:
    graph, comm = (Communicator.create(name, timeout=8.0) for name in ("graph", "rows"))
    try:
        with comm, graph:
            training = Training(graph, comm, CASES[0], batch_size=2)
            for number, batch in enumerate(training.loader):
                if number == 4 and comm.rank == 1:
                    if how == "kill":
                        os.kill(os.getpid(), signal.SIGKILL)
                    raise ValueError("the disk is full")
                training.step(batch)
    except CommError as error:
        return {"text": str(error), "ranks": error.ranks}
    except ValueError:
        return {"text": "", "ranks": []}
    return {"text": "nothing", "ranks": []}


def refusals(graph: Communicator, comm: Communicator) -> None:
    case = CASES[0]
    data = stores(graph, case, edges=False)
    embedding = Embedding(data, F, comm=comm)
    batch = next(iter(MacrobatchNeighborLoader(data, [2], batch_size=4, export="native")))
    with pytest.raises(ValueError, match="make the loader with embedding="):
        embedding(batch)
    with pytest.raises(ValueError, match="part 0 of 1 cannot be on rank"):
        Embedding(whole(case), F, comm=comm)


def loaders(ids: Communicator, comm: Communicator) -> None:
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
        optimizer, before = EmbeddingOptimizer(embedding, SGD(lr=0.5)), comm.counters.snapshot()
        steps = 0
        for batch in loader:
            own = {
                name: batch.nodes_of(name).node if export == "native" else batch[name].n_id
                for name in columns
            }
            found = embedding(batch)
            for name, node in own.items():
                assert torch.allclose(found[name], rows[name][node], atol=1e-10)
            if (comm.rank, steps) == (0, 1):
                own.popitem()  # the loss leaves a type out
            torch.stack([found[name].sin().sum() for name in own]).sum().backward()
            optimizer.step(weight=float(comm.rank + 1))
            steps += 1
            changes = {name: torch.zeros_like(one) for name, one in rows.items()}
            everyones = ids.all_gather_json({name: node.tolist() for name, node in own.items()})
            for rank, nodes_of_rank in enumerate(everyones):
                for name, nodes in nodes_of_rank.items():
                    node = torch.tensor(nodes, dtype=torch.int64)
                    changes[name].index_add_(0, node, (rank + 1) * rows[name][node].cos())
            for name, one in rows.items():
                one -= 0.5 / sum(range(1, comm.size + 1)) * changes[name]
        embedding.synchronize()
        assert steps > 1 and counted(comm, before).rounds == 2 * steps


def run() -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        runpy.run_path(str(ROOT / "examples" / "embeddings.py"), run_name="__main__")
    return out.getvalue()


@pytest.mark.parametrize("ranks", [*in_all(1), 2, *in_all(4)])
def test_training_equals_one_process(ranks: int) -> None:
    run_ranks(equals_one_process, ranks)


@pytest.mark.parametrize("ranks", [*in_all(1, 3), 2])
def test_gradients_of_several_batches_are_added(ranks: int) -> None:
    run_ranks(several_batches_a_step, ranks)


def test_runs_repeat_resume_and_continue_on_other_ranks(tmp_path: Path) -> None:
    for result in run_ranks(repeats, 3 if ALL else 2, {"folder": str(tmp_path)}):
        assert result.value == ["end", "rows.npy", "saved"]
    for ranks in (3, 1, 2) if ALL else (1,):
        run_ranks(continues, ranks, {"folder": str(tmp_path)})


def test_gradients_are_weighed() -> None:
    run_ranks(weights, 3)


def test_all_nodes_are_inferred_from_learned_rows() -> None:
    run_ranks(inference, 2)


@pytest.mark.parametrize(
    ("how", "words"),
    [*in_all(("kill", "no longer exists")), ("raise", "raised ValueError: the disk is full")],
)
def test_a_rank_that_fails_is_named(how: str, words: str) -> None:
    results = run_ranks(fault, 3, {"how": how}, check=False)
    for result in (results[0], results[2]):
        assert 1 in result.value["ranks"] and words in result.value["text"]


def test_what_cannot_be_is_refused() -> None:
    run_ranks(refusals, 2)


@pytest.mark.parametrize("ranks", [2, *in_all(3)])
def test_rows_of_all_types_travel_together(ranks: int) -> None:
    run_ranks(loaders, ranks)


@all_only
def test_it_learns_over_ranks() -> None:
    first, second = run_ranks(run, 2, timeout=120.0)
    form = r"epoch \d  loss (\d\.\d{4})  test accuracy (\d\.\d{4})\n"
    losses, accuracies = zip(*re.findall(form, first.value), strict=True)
    assert len(losses) == 4 and float(losses[-1]) < 0.7 * float(losses[0])
    assert float(accuracies[-1]) > 0.6 and second.value == ""
