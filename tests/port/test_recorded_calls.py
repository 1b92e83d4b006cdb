"""Batches of all kinds, and what surrounds a model: copies, files, compilers, threads, ranks."""

from __future__ import annotations

import copy
import warnings
import weakref
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._dynamo  # DistributedDataParallel imports it: once here, not in every rank
import torch_geometric.nn as pyg
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint
from torch_geometric.data import Data

from pyg_batchgnn import MacrobatchNeighborLoader
from pyg_batchgnn.comm import Communicator, Header, MessageKind, gradient_hook
from pyg_batchgnn.port import accelerate
from tests.support.ported_models import GRAPH
from tests.support.ranks import run_ranks
from tests.support.recorded_models import (
    Options,
    as_data,
    assert_close,
    assert_recorded,
    assert_trimmed,
    batches,
    compare,
    found_in,
    gradients,
    pair,
)

# Jobs of ranks ####################################################################################


class Net(torch.nn.Module):
    """Two convolutions with a skip connection and a norm."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = pyg.SAGEConv(6, 8), pyg.GraphConv(8, 5)
        self.skip, self.norm = torch.nn.Linear(6, 8), torch.nn.LayerNorm(8)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = self.norm(self.first(x, edge_index) + self.skip(x)).relu()
        return self.second(x, edge_index)


def gradients_are_means() -> None:
    """The hook of a communicator has each seed of all ranks weigh the same."""
    torch.manual_seed(0)
    plain = Net().double()
    ours = accelerate(copy.deepcopy(plain))
    given = batches()
    with Communicator.create("gradients", timeout=60) as comm:
        with comm.guard(MessageKind.CONTROL):
            parallel = DistributedDataParallel(ours, process_group=comm.group, broadcast_buffers=False)
        state = {"weight": 0.0, "step": 0}
        header = lambda: Header(MessageKind.GRADIENTS, 0, int(state["step"]))  # noqa: E731
        parallel.register_comm_hook(None, gradient_hook(comm, lambda: state["weight"], header))
        for step in range(2):
            batch = given[step + comm.rank]
            state.update(weight=batch.batch_size, step=step)
            ours.zero_grad()
            parallel(batch).square().mean().backward()
            rows = [plain(one.x, one.edge_index)[: one.batch_size] for one in given[step : step + comm.size]]
            wanted = torch.autograd.grad(torch.cat(rows).square().mean(), list(plain.parameters()))
            for parameter, grad in zip(ours.parameters(), wanted, strict=True):
                assert parameter.grad is not None and torch.allclose(parameter.grad, grad, atol=1e-12)
    assert_trimmed(ours, [1, 0])


# Batches ##########################################################################################


def test_native_batches_and_those_of_pyg_share_a_graph() -> None:
    ours, plain = pair(Options())
    for one, other in zip(batches(), batches(export="native"), strict=True):
        for given in (one, other):
            found, wanted = ours(given), plain(one.x, one.edge_index)[: one.batch_size]
            assert_close(found, wanted)
            assert_close(gradients(ours, found), gradients(plain, wanted))
    assert len(found_in(ours).graphs) <= 2 and found_in(ours).reasons == []


def test_batches_of_worker_processes() -> None:
    ours, plain = pair(Options())
    compare(ours, plain, batches(num_workers=1))
    assert_trimmed(ours, [1, 0])


class Watched(torch.nn.Module):
    """A model that notes whether its first rows are gone once nobody reads them."""

    def __init__(self, columns: int) -> None:
        super().__init__()
        self.convs = torch.nn.ModuleList([pyg.SAGEConv(columns, 8), pyg.SAGEConv(8, 4)])

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h = self.convs[0](x, edge_index)
        first = weakref.ref(h)
        h = h.relu()
        SEEN.append(first() is None)
        return self.convs[1](h, edge_index)


SEEN: list[Any] = []


def test_a_recording_keeps_no_rows() -> None:
    """Rows of all hops of a large batch would not fit beside each other."""
    SEEN.clear()
    batch = batches()[0]
    ours = accelerate(Watched(batch.x.size(1)).double())
    ours(batch).sum().backward()
    assert SEEN == [True]  # forward ran once, while it was recorded


def test_gradients_inside_a_forward_are_refused() -> None:
    class Forces(torch.nn.Module):
        def __init__(self, columns: int) -> None:
            super().__init__()
            self.conv = pyg.SAGEConv(columns, 4)

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            x = x.detach().clone().requires_grad_()
            return torch.autograd.grad(self.conv(x, edge_index).square().sum(), x)[0]

    batch = batches()[0]
    ours, plain = pair(Forces(batch.x.size(1)))
    assert_close(ours(batch), plain(batch.x, batch.edge_index)[: batch.batch_size])


def _batch(seeds: list[int], fanouts: Sequence[int] = (4, 3)) -> Any:
    loader = MacrobatchNeighborLoader(GRAPH, list(fanouts), torch.tensor(seeds), batch_size=100, seed=1)
    (batch,) = loader
    return batch


ODD = {
    "isolated": lambda: _batch([190, 199, 185]),
    "one isolated": lambda: _batch([190]),
    "duplicates": lambda: _batch([3, 3, 5, 3]),
    "all neighbours": lambda: _batch([1, 2], (-1, -1)),
    "no neighbours": lambda: _batch([1, 2], (0, 3)),
    "many hops": lambda: _batch([1, 2], (2, 1, 1, 1)),
    "one hop": lambda: _batch([1, 2], (2,)),
    "empty": lambda: as_data(GRAPH.x[:0], torch.empty(2, 0, dtype=torch.int64), [0, 0, 0], [0, 0]),
    "without counts": lambda: Data(x=GRAPH.x, edge_index=GRAPH.edge_index, batch_size=4),
    "wrong counts": lambda: as_data(GRAPH.x, GRAPH.edge_index, [4, 100, 96], [700, 870]),
    "induced": lambda: next(iter(_induced())),
    "bidirectional": lambda: next(iter(_induced("bidirectional"))),
    "disjoint": lambda: next(iter(_induced("directional", disjoint=True))),
}


def _induced(kind: str = "induced", **options: Any) -> Any:
    return MacrobatchNeighborLoader(
        GRAPH, [4, 3], torch.arange(9), batch_size=9, seed=1, subgraph_type=kind, **options
    )


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("first", [True, False], ids=["first", "later"])
def test_odd_batches(name: str, first: bool) -> None:
    ours, plain = pair(Options())
    if not first:
        compare(ours, plain)
    batch = ODD[name]()
    compare(ours, plain, [batch])
    found, wanted = (model(batch.x, batch.edge_index) for model in (ours, plain))
    assert_close(found, wanted)
    assert_close(gradients(ours, found), gradients(plain, wanted))
    compare(ours, plain)
    assert found_in(ours).reasons == []


def test_rows_of_other_widths_and_types() -> None:
    class Wide(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.conv = torch.nn.Embedding(200, 4), pyg.SAGEConv(4, 3)

        def forward(self, n_id: Tensor, edge_index: Tensor) -> Tensor:
            return self.conv(self.table(n_id), edge_index)

    ours, plain = pair(Wide())
    compare(ours, plain, call=lambda model, batch: model(batch.n_id, batch.edge_index))
    assert_trimmed(ours, [0])
    compare_native = [ours(batch) for batch in batches(export="native")]
    for found, batch in zip(compare_native, batches(), strict=True):
        assert_close(found, plain(batch.n_id, batch.edge_index)[: batch.batch_size])


@pytest.mark.parametrize("export", ["pyg", "native"])
def test_features_that_take_gradients(export: str) -> None:
    ours, plain = pair(Options())
    for batch in batches():
        batch = batch.clone()
        batch.x.requires_grad_()
        found, wanted = ours(batch), plain(batch.x, batch.edge_index)[: batch.batch_size]
        assert_close(gradients(ours, found, [batch.x]), gradients(plain, wanted, [batch.x]))


# What surrounds a model ###########################################################################


def test_copies_and_files(tmp_path: Path) -> None:
    ours, plain = pair(Options())
    keys = list(plain.state_dict())
    for when in ("before the first call", "after it"):
        assert list(ours.state_dict()) == keys, when
        torch.save(ours, tmp_path / "model")
        others = [copy.deepcopy(ours), torch.load(tmp_path / "model", weights_only=False), copy.copy(ours)]
        fresh = accelerate(Options().double())
        fresh.load_state_dict(ours.state_dict())
        for other in (*others, fresh):
            assert isinstance(other, Options) and type(other) is type(ours)
            compare(other, plain)
            assert_trimmed(other)
        with torch.no_grad():
            others[0].norms[0].weight.zero_()
        compare(ours, plain)


def test_a_compiled_or_traced_model_runs_pygs_code() -> None:
    ours, plain = pair(Options())
    (first, *_) = batches()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        traced = torch.jit.trace(ours, (first.x, first.edge_index), check_trace=False)
    for batch in batches():
        assert_close(traced(batch.x, batch.edge_index), plain(batch.x, batch.edge_index))
    compiled = torch.compile(ours, backend="eager")
    assert_close(compiled(first.x, first.edge_index), plain(first.x, first.edge_index))
    symbolic = torch.fx.symbolic_trace(copy.deepcopy(ours), concrete_args={"edge_weight": None, "power": 1})
    assert_close(symbolic(first.x, first.edge_index), plain(first.x, first.edge_index))
    assert found_in(ours).graphs == []
    compare(ours, plain)


def test_a_part_of_another_model_is_recorded_alone() -> None:
    """A module of Lightning, or one like it, calls the accelerated model."""

    class Task(torch.nn.Module):
        def __init__(self, model: torch.nn.Module) -> None:
            super().__init__()
            self.model = model

        def forward(self, *given: Any, **named: Any) -> Any:
            return self.model(*given, **named)

        def training_step(self, batch: Any) -> Tensor:
            return self(batch).square().mean()

    inner, plain = pair(Options())
    task = Task(inner)
    compare(task, plain)
    assert task.training_step(batches()[0]).requires_grad
    assert_trimmed(inner, [1, 0])
    whole = accelerate(Task(Options().double()))
    whole.model.load_state_dict(plain.state_dict())
    for batch in batches():
        found = whole(batch.x, batch.edge_index)
        assert_close(found, plain(batch.x, batch.edge_index))


@pytest.mark.parametrize("export", ["pyg", "native"])
def test_autocast_in_bfloat16(export: str) -> None:
    torch.manual_seed(0)
    ours, plain = pair(Options(), torch.float32)
    for batch, given in zip(
        batches(dtype=torch.float32), batches(dtype=torch.float32, export=export), strict=True
    ):
        exact = plain(batch.x, batch.edge_index)[: batch.batch_size]
        with torch.autocast("cpu", torch.bfloat16):
            found, wanted = ours(given), plain(batch.x, batch.edge_index)[: batch.batch_size]
        assert_close(found.float(), wanted.float(), 5e-2)
        rough = gradients(ours, found)
        assert all(
            map(torch.allclose, rough.values(), gradients(plain, exact).values(), repeat(0.2), repeat(1.0))
        )
        assert_close(ours(given), exact, 1e-4)
    assert_recorded(ours, 2 if export == "pyg" else len(found_in(ours).graphs))


def test_checkpoints_around_a_call() -> None:
    ours, plain = pair(Options())
    for batch in batches():
        found = checkpoint(ours, batch.x, batch.edge_index, use_reentrant=False)
        assert_close(gradients(ours, found), gradients(plain, plain(batch.x, batch.edge_index)))
        found = checkpoint(lambda given: ours(given), batch, use_reentrant=False)
        wanted = plain(batch.x, batch.edge_index)[: batch.batch_size]
        assert_close(gradients(ours, found), gradients(plain, wanted))


def test_threads_that_call_one_model() -> None:
    ours, plain = pair(Options())
    given = batches() * 4
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(ours, given))
    for one, batch in zip(found, given, strict=True):
        assert_close(one, plain(batch.x, batch.edge_index)[: batch.batch_size])


def test_gradients_that_are_off_have_a_graph_of_their_own() -> None:
    ours, plain = pair(Options())
    for context in (torch.no_grad, torch.inference_mode, torch.enable_grad):
        for batch in batches():
            with context():
                found, wanted = ours(batch), plain(batch.x, batch.edge_index)[: batch.batch_size]
            assert_close(found, wanted)
            assert found.requires_grad == wanted.requires_grad
            if wanted.requires_grad:
                assert_close(gradients(ours, found), gradients(plain, wanted))


def test_data_parallel_ranks_with_the_hook_of_a_communicator() -> None:
    run_ranks(gradients_are_means, 2, timeout=120)
